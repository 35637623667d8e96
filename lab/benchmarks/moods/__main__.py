"""Measure what shifts do to voices (``morph/voice/create.py``).

    python -m lab.benchmarks.moods artifacts/moods --strengths 1 2 --lines 6 --keep
    python -m lab.benchmarks.moods artifacts/moods --ends --lines 6 --keep
    python -m lab.benchmarks.moods --presets michael,george heart,emma --of recordings/austen.flac --lines 6
    python -m lab.benchmarks.moods FOLDER --of anna.wav --checkpoint CHECKPOINT

The folder has a subfolder per pair, with recordings in ``toward`` and ``away``: the means of their clones are the two
ends. Every voice speaks the same lines with the same seeds at each strength, and at strength 0 for comparison.
``--ends`` compares the two ends with each other instead, each as a voice: the most that the embeddings carry. Words are
judged by whisper-base, speakers by Resemblyzer. Figures have 95 % intervals (bootstrap over lines of all voices). With
``--keep`` they go to ``lab/benchmarks/results/moods.json``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import soundfile
import torch
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, Shift, blend_voices, clone_voice, preset_voice, shift_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from ...judges.asr import Comparison, Recogniser
from ...judges.clips import JUDGE_RATE
from ...judges.speaker import SpeakerEncoder, cosine, profile
from ...judges.stats import Figure, mean, ratio
from ...streams import render_lines
from ..origin import Origin, add_output
from ..results import FOLDER, add_rows, installed_versions, machine_name
from .measures import Sound, measure

TEXTS = Path(__file__).resolve().parents[1] / "quality" / "lines.txt"
RESULTS = FOLDER / "moods.json"
SIDES = ("toward", "away")
SUFFIXES = (".wav", ".flac")
FIGURES = ("pitch", "spread", "level", "rate", "similarity", "wrong")
RECORDINGS = "the recordings themselves"
ENDS = "both ends as voices"


@dataclass(frozen=True)
class Pair:
    """Recordings, or presets, that have a mood, and some that do not, by name."""

    name: str
    toward: Mapping[str, Path | str]
    away: Mapping[str, Path | str]

    @property
    def alike(self) -> list[tuple[Path | str, Path | str]]:
        """Recordings of both sides that have one name: the same text."""
        return [(self.toward[name], self.away[name]) for name in sorted(self.toward.keys() & self.away.keys())]


def pair_of(toward: str, away: str) -> Pair:
    """Return a pair of presets: names, with a comma between several."""
    first, second = ({name: name for name in words.split(",")} for words in (toward, away))
    return Pair(f"{toward} less {away}", first, second)


@dataclass(frozen=True)
class Judged:
    """The measurements and the transcript of one spoken line."""

    sound: Sound
    embedding: np.ndarray
    comparison: Comparison
    ended: str


@dataclass(frozen=True)
class Judges:
    """The recogniser and the speaker encoder."""

    recogniser: Recogniser
    encoder: SpeakerEncoder


def read_pairs(folder: Path) -> list[Pair]:
    """Return the pairs of a folder; ValueError for one without recordings on both sides."""
    pairs = []
    for place in sorted(one for one in folder.iterdir() if one.is_dir()):
        sides = [
            {one.stem: one for one in sorted((place / side).glob("*")) if one.suffix in SUFFIXES} for side in SIDES
        ]
        if not all(sides):
            raise ValueError(f"{place} has no recordings in toward or in away: add wav or flac files to both")
        pairs.append(Pair(place.name, *sides))
    if not pairs:
        raise ValueError(f"{folder} has no pairs: make a folder for each, with toward and away in it")
    return pairs


def voice_of(model: Model, word: Path | str) -> Voice:
    """Return the x-vector voice of a recording, or a preset by its name."""
    path = Path(word)
    if not path.is_file():
        return preset_voice(model, str(word))
    waveform, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return clone_voice(model, waveform.T, rate, CloneOptions(name=path.stem))


def speak(synthesizer: Synthesizer, voice: Voice, texts: Sequence[str]) -> list[Spoken]:
    """Return the texts, spoken by a voice with seeds 1, 2 and so on."""
    lines = [Line(text, voice, "auto", seed) for seed, text in enumerate(texts, 1)]
    return render_lines(synthesizer, lines, GenerateOptions(seq_groups=15, batch_size=8, retries=0))


def judge_all(synthesizer: Synthesizer, voice: Voice, texts: Sequence[str], judges: Judges) -> list[Judged]:
    """Return the texts as a voice speaks them (see ``speak``), measured and transcribed."""
    judged = []
    for spoken, text in zip(speak(synthesizer, voice, texts), texts, strict=True):
        audio = librosa.resample(spoken.waveform, orig_sr=spoken.sample_rate, target_sr=JUDGE_RATE)
        comparison, embedding = judges.recogniser.judge(audio, text), judges.encoder.embed(audio)
        judged.append(Judged(measure(spoken.waveform, spoken.sample_rate), embedding, comparison, spoken.report.ended))
    return judged


def likeness(judged: Sequence[Judged], plain: Sequence[Judged]) -> list[float]:
    """Return the similarity of each line to the voice without a shift: to the profile of its other lines."""
    found = []
    for place, one in enumerate(judged):
        others = [other.embedding for number, other in enumerate(plain) if number != place]
        found.append(cosine(one.embedding, profile(others)))
    return found


def figures_of(shifted: Sequence[Sequence[Judged]], plain: Sequence[Sequence[Judged]]) -> dict[str, Figure]:
    """Return the figures of one shift over all voices: changes against the same lines without it.

    Pitch in semitones, level in dB, rate in percent; the spread of the pitch in semitones, the similarity to the voice
    without the shift, and the share of wrong words are no changes.
    """
    pairs = [both for one, own in zip(shifted, plain, strict=True) for both in zip(one, own, strict=True)]
    alike = [value for one, own in zip(shifted, plain, strict=True) for value in likeness(one, own)]
    return {
        "pitch": mean([new.sound.pitch - old.sound.pitch for new, old in pairs]),
        "spread": mean([new.sound.spread for new, _ in pairs]),
        "level": mean([new.sound.level - old.sound.level for new, old in pairs]),
        "rate": mean([100 * (old.sound.seconds / new.sound.seconds - 1) for new, old in pairs]),
        "similarity": mean(alike),
        "wrong": ratio(
            [100 * new.comparison.word_errors for new, _ in pairs], [new.comparison.words for new, _ in pairs]
        ),
    }


def pair_figures(pair: Pair) -> dict[str, Figure]:
    """Return how the recordings of a pair differ, where both sides have one of the same name (the same text)."""
    return differences([measure(*soundfile.read(path, dtype="float32")) for path in paths] for paths in pair.alike)


def differences(pairs: Iterable[Sequence[Sound]]) -> dict[str, Figure]:
    """Return how sounds of the same texts differ, the first of each two from the second."""
    sounds = list(pairs)
    return {
        "pitch": mean([new.pitch - old.pitch for new, old in sounds]),
        "spread": mean([new.spread for new, _ in sounds]),
        "level": mean([new.level - old.level for new, old in sounds]),
        "rate": mean([100 * (old.seconds / new.seconds - 1) for new, old in sounds]),
    }


def row(pair: str, strength: float | str, figures: Mapping[str, Figure], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the results: each figure, and its interval."""
    values = {name: round(one.value, 3) for name, one in figures.items()}
    ends = {f"{name}_95": [round(one.low, 3), round(one.high, 3)] for name, one in figures.items()}
    lines = next(iter(figures.values())).lines
    return {"table": "moods", "pair": pair, "strength": strength, "lines": lines, **values, **ends, **more}


def measure_all(
    synthesizer: Synthesizer, pairs: Sequence[Pair], voices: Sequence[Voice], asked: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield the rows: the recordings of each pair, the voices without a shift, then each pair at each strength."""
    texts = TEXTS.read_text(encoding="utf-8").splitlines()[: asked.lines]
    judges = Judges(Recogniser(asked.whisper), SpeakerEncoder())
    more = {
        "voices": [voice.name for voice in voices],
        "model": synthesizer.model.name,
        "precision": "fp32",
        "machine": machine_name(synthesizer.model.device),
    }
    plain = [judge_all(synthesizer, voice, texts, judges) for voice in voices]
    yield row("none", 0, figures_of(plain, plain), {**more, "failed": failed(plain)})
    for pair in pairs:
        if pair.alike:
            yield row(pair.name, RECORDINGS, pair_figures(pair), {**more, "voices": [], "failed": 0})
        ends = [[voice_of(synthesizer.model, word) for word in side.values()] for side in (pair.toward, pair.away)]
        for strength in asked.strengths:
            shift = Shift(ends[0], ends[1], strength)
            moved = [shift_voice(voice, shift, synthesizer.model) for voice in voices]
            shifted = [judge_all(synthesizer, voice, texts, judges) for voice in moved]
            yield row(pair.name, strength, figures_of(shifted, plain), {**more, "failed": failed(shifted)})


def measure_ends(
    synthesizer: Synthesizer, pairs: Sequence[Pair], asked: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield a row for each pair: the mean of one side's clones against that of the other, as voices. No words."""
    texts = TEXTS.read_text(encoding="utf-8").splitlines()[: asked.lines]
    more = {
        "model": synthesizer.model.name,
        "precision": "fp32",
        "machine": machine_name(synthesizer.model.device),
    }
    for pair in pairs:
        spoken = []
        for side in (pair.toward, pair.away):
            voices = [voice_of(synthesizer.model, word) for word in side.values()]
            weights = [1.0] * len(voices)
            voice = blend_voices(voices, weights, synthesizer.model) if len(voices) > 1 else voices[0]
            spoken.append(speak(synthesizer, voice, texts))
        sounds = [[measure(one.waveform, one.sample_rate) for one in side] for side in spoken]
        bad = sum(one.report.ended != "eos" for side in spoken for one in side)
        yield row(pair.name, ENDS, differences(zip(*sounds, strict=True)), {**more, "failed": bad})


def failed(judged: Sequence[Sequence[Judged]]) -> int:
    """Return how many lines did not end by themselves."""
    return sum(line.ended != "eos" for one in judged for line in one)


def describe(one: Mapping[str, Any]) -> str:
    """Format a row as a row of the Markdown table in docs/log/moods.md."""
    cells = [
        one["pair"],
        one["strength"] if isinstance(one["strength"], str) else f"{one['strength']:g}",
        ", ".join(one.get("voices", ())),
        str(one["lines"]),
    ]
    for name in FIGURES:
        digits = 2 if name == "similarity" else 1
        if name not in one:
            cells.append("")
            continue
        low, high = one[f"{name}_95"]
        cells.append(f"{one[name]:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pairs", type=Path, nargs="?", help="folder with a folder per pair")
    parser.add_argument(
        "--presets",
        nargs=2,
        metavar=("TOWARD", "AWAY"),
        help="a pair of presets; several with a comma between",
    )
    parser.add_argument("--of", nargs="+", default=["heart", "george"], help="voices: presets, or recordings to clone")
    parser.add_argument("--strengths", type=float, nargs="+", default=[0.5, 1.0, 2.0])
    parser.add_argument("--lines", type=int, default=20, help="texts that each voice speaks")
    parser.add_argument("--checkpoint", type=Path, default=demo_voice(), help="a Base checkpoint")
    parser.add_argument("--whisper", type=Path, default=Path("artifacts/whisper-base"))
    parser.add_argument("--ends", action="store_true", help="compare the two ends as voices, instead of shifts")
    parser.add_argument("--keep", action="store_true", help="write the rows to the results file")
    add_output(parser)
    asked = parser.parse_args(arguments)
    if not (asked.pairs or asked.presets):
        parser.error("give a folder with pairs, or --presets")
    pairs = (read_pairs(asked.pairs) if asked.pairs else []) + ([pair_of(*asked.presets)] if asked.presets else [])
    torch.set_num_threads(1)
    synthesizer = Synthesizer.load(asked.checkpoint, LoadOptions("fp32"), torch.device("cpu"))
    model = synthesizer.model
    voices = [voice_of(model, word) for word in asked.of]
    path, rows = (asked.out or FOLDER) / RESULTS.name, []
    measured = measure_ends(synthesizer, pairs, asked) if asked.ends else measure_all(synthesizer, pairs, voices, asked)
    for one in measured:
        print(describe(one), flush=True)
        rows.append({**one, **asdict(Origin.of(asked.commit))})
        if asked.keep:  # after each row, as rows take long
            document = {"machine": machine_name(model.device), "versions": installed_versions(), "rows": rows}
            add_rows(document, path)


if __name__ == "__main__":
    main()
