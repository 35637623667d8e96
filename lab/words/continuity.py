"""Table "continuity": the seams of long texts, with ``GenerateOptions.continuity`` and without.

    python -m lab.words.continuity --device cuda
    python -m lab.words.continuity --device cpu --texts 2 --pieces 6 --voices x_vector

Each voice speaks the same texts twice. At a seam the last two seconds of a piece are compared with the first two of the
next: the median pitch of what is voiced, and the level of what is loud. whisper-base hears every text (CPU, int8): its
wrong words, and words that a piece begins with and that were the last of the piece before, or of an ICL voice's
transcript (echo). Resemblyzer compares each text's last piece with its first. A line is printed for each text, and a
row stored for each voice, as soon as it is there.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from qwen3_tts_morph.morph.batch.stream import render_lines
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.hearing.words import count_errors, normalize
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PRECISIONS, GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.speech.takes import WRONG
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.text.split import split_text
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.postprocess.rates import resample

from pack import ROOT

from ..benchmarks.origin import add_output
from ..benchmarks.results import PartRow, save_rows
from ..judges.clips import JUDGE_RATE
from ..judges.speaker import SpeakerEncoder, cosine
from ..judges.stats import mean, median
from .heard import Ear, join
from .lines import read_part

VOICES = ("preset", "x_vector", "icl")
RECORDING = "austen-0870"
TRANSCRIPT = (
    "And Mister John Dashwood had then leisure to consider how much there might be prudently in his power to do for "
    "them."
)
NEAR_S = 2.0  # of speech on each side of a seam
LOUD_DB = 20.0  # below the loudest block: quieter ones are pauses
BLOCK_S = 0.05
PITCH_HZ = (60.0, 450.0)


@dataclass(frozen=True)
class Seams:
    """What was measured of one text.

    Args:
        pitch: the jump at each seam in semitones, where both sides are voiced.
        level: in dB.
        similarity: of the last piece to the first, a cosine.
        errors, words: how many words the recogniser heard wrong, and how many there are.
        echoes: how many pieces begin with the last words before them.
        ended: as the report says.
        fresh: whether the report says that pieces could not go on.
    """

    pitch: tuple[float, ...]
    level: tuple[float, ...]
    similarity: float
    errors: int
    words: int
    echoes: int
    ended: str
    fresh: bool


@dataclass(frozen=True)
class SeamsRow(PartRow):
    """All texts of one voice: medians over seams, the mean similarity, and sums; ``wrong``: lines that went wrong."""

    seq_groups: int
    voice: str
    continuity: bool
    texts: int
    seams: int
    pitch_semitones: float
    level_db: float
    similarity: float
    wrong_words_percent: float
    echoes: int
    wrong: int


def _in_turn(sentences: Sequence[str]) -> Iterator[str]:
    """Yield all sentences, and then all in other orders."""
    yield from sentences
    rng = random.Random(0)
    while True:
        yield from rng.sample(sentences, len(sentences))


def long_texts(count: int, pieces: int, limit: int) -> list[str]:
    """Return texts of held-out sentences, each long enough for this many pieces; all are used about as often."""
    source, texts = _in_turn(read_part("held_out")), list[str]()
    while len(texts) < count:
        text = next(source)
        while len(split_text(text, limit)) < pieces:
            text += " " + next(source)
        texts.append(text)
    return texts


def pitch_of(speech: np.ndarray, rate: int) -> float | None:
    """Return the median pitch of what is voiced, in semitones above 1 Hz; None if nothing is."""
    import librosa  # slow to import

    low, high = PITCH_HZ
    hertz, voiced, _ = librosa.pyin(resample(speech, rate, JUDGE_RATE), fmin=low, fmax=high, sr=JUDGE_RATE)
    return float(12 * np.log2(np.median(hertz[voiced]))) if voiced.any() else None


def level_of(speech: np.ndarray, rate: int) -> float:
    """Return the level of what is loud, in dB of full scale."""
    block = round(BLOCK_S * rate)
    power = np.square(speech[: len(speech) // block * block].reshape(-1, block), dtype=np.float64).mean(1)
    loud = power[power >= power.max() * 10 ** (-LOUD_DB / 10)]
    return float(10 * np.log10(loud.mean() + 1e-12))


def count_echoes(pieces: Sequence[str], heard: str, before: str = "") -> int:
    """Return how many pieces begin with words that end the piece before, or ``before``, and are not in their text."""
    parts = [normalize(text, "english", "a").split() for text in (before, *pieces)]
    asked = [word for part in parts for word in part]
    places = list(np.cumsum([len(part) for part in parts])[:-1])  # where pieces begin
    given = parts[0] + normalize(heard, "english", "a").split()
    echoes = 0
    for kind, first, _, start, stop in SequenceMatcher(None, asked, given, autojunk=False).get_opcodes():
        words = given[start:stop]
        if kind != "insert":
            continue
        # The words stand twice: which of the two is the added one is not known.
        ends = (place for place in (first, first + len(words)) if place in places)
        echoes += any(asked[place - len(words) : place] == words for place in ends)
    return echoes


class Judge:
    """Hears and compares; all on the CPU."""

    def __init__(self, threads: int):
        self.ear, self.speakers = Ear(Path(tempfile.gettempdir()) / "whisper-base", threads), SpeakerEncoder()

    def judge(self, spoken: Spoken, voice: Voice) -> Seams:
        """Measure a text."""
        rate, near = spoken.sample_rate, round(NEAR_S * spoken.sample_rate)
        waves = [spoken.waveform[span.start : span.end] for span in spoken.spans]
        sides = [(one[-near:], other[:near]) for one, other in pairwise(waves)]
        pitches = [[pitch_of(side, rate) for side in pair] for pair in sides]
        levels = [[level_of(side, rate) for side in pair] for pair in sides]
        first, last = (
            self.speakers.embed(resample(wave, rate, JUDGE_RATE)) for wave in (waves[0], waves[-1])
        )
        texts = [span.text for span in spoken.spans]
        heard = join(self.ear.hear(spoken.waveform, rate))
        errors, words = count_errors(" ".join(texts), heard, "english")
        return Seams(
            tuple(abs(one - other) for one, other in pitches if one is not None and other is not None),
            tuple(abs(one - other) for one, other in levels),
            cosine(first, last),
            errors,
            words,
            count_echoes(texts, heard, voice.transcript or ""),
            spoken.report.ended,
            any("from the voice alone" in note for note in spoken.report.notes),
        )


def summarise(seams: Sequence[Seams]) -> dict[str, Any]:
    """Return the figures of a row."""
    pitch = [jump for one in seams for jump in one.pitch]
    level = [jump for one in seams for jump in one.level]
    return {
        "texts": len(seams),
        "seams": len(level),
        "pitch_semitones": round(median(pitch).value, 2),
        "level_db": round(median(level).value, 2),
        "similarity": round(mean([one.similarity for one in seams]).value, 4),
        "wrong_words_percent": round(
            100 * sum(one.errors for one in seams) / sum(one.words for one in seams), 2
        ),
        "echoes": sum(one.echoes for one in seams),
        "wrong": sum(one.ended in WRONG for one in seams),
    }


def make_voice(model: Model, kind: str) -> Voice:
    """Return a preset, or a clone of the recording."""
    if kind == "preset":
        return preset_voice(model, next(iter(model.speakers)))
    waveform, rate = soundfile.read(ROOT / "tests" / "data" / f"{RECORDING}.flac", dtype="float32")
    transcript = TRANSCRIPT if kind == "icl" else None
    return clone_voice(model, waveform, rate, CloneOptions(kind, transcript, name=RECORDING))


def measure(
    synthesizer: Synthesizer, judge: Judge, kind: str, continuity: bool, asked: argparse.Namespace
) -> SeamsRow:
    """Speak and judge all texts with a voice."""
    model = synthesizer.model
    voice = make_voice(model, kind)
    options = GenerateOptions(asked.seq_groups, split_chars=asked.split_chars, continuity=continuity)
    limit = min(asked.split_chars, model.profile.longest_piece or asked.split_chars)
    texts = long_texts(asked.texts, asked.pieces, limit - 1)
    lines = [Line(text, voice, "english", seed=100 * index) for index, text in enumerate(texts)]
    seams = []
    for number, spoken in enumerate(render_lines(synthesizer, lines, options)):
        if asked.keep is not None:
            asked.keep.mkdir(parents=True, exist_ok=True)
            name = f"{kind}_{number}_{'on' if continuity else 'off'}.flac"
            soundfile.write(asked.keep / name, spoken.waveform, spoken.sample_rate)
        seams.append(judge.judge(spoken, voice))
        print(kind, "on" if continuity else "off", number, seams[-1], flush=True)
    precision = str(model.dtype).removeprefix("torch.")
    setting = (
        "continuity",
        "morph",
        model.name,
        synthesizer.engine.choose(model).engine,
        precision,
        len(lines),
    )
    return SeamsRow(*setting, asked.seq_groups, kind, continuity, **summarise(seams))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="its folder; none: the demo voice")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="auto")
    parser.add_argument("--voices", nargs="+", choices=VOICES, default=VOICES)
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--pieces", type=int, default=10, help="of each text")
    parser.add_argument("--split-chars", type=int, default=100, help="the longest piece")
    parser.add_argument("--seq-groups", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="of the recogniser")
    parser.add_argument("--keep", type=Path, help="folder for the recordings; none: they are not kept")
    add_output(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Speak, hear, compare, print and store the rows."""
    asked = parse(arguments)
    path = asked.checkpoint or demo_voice()
    synthesizer = Synthesizer(load_model(path, LoadOptions(asked.precision), torch.device(asked.device)))
    judge, rows = Judge(asked.threads), list[SeamsRow]()
    for kind in asked.voices:
        if kind == "preset" and not synthesizer.model.speakers:
            continue
        for continuity in (False, True):
            rows.append(measure(synthesizer, judge, kind, continuity, asked))
            print({name: value for name, value in rows[-1].flat().items() if value is not None}, flush=True)
            save_rows(rows, synthesizer.model.device, asked)


if __name__ == "__main__":
    main()
