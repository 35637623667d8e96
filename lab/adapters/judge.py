"""Judge what ``lab.adapters.speak`` wrote: the speaker (Resemblyzer), the words (whisper-base) and the pitch.

    python -m lab.adapters.judge SPOKEN SPOKEN --recordings FOLDER --others VOICES --keep

FOLDER has the speaker's own recordings of the same lines, VOICES a folder of recordings for each other speaker. A line
is compared with the speaker's other recordings, not with that of its own text. It is identified if these are closer
than those of all other speakers. ``--keep`` adds the rows to ``lab/benchmarks/results/adapters.json``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from ..benchmarks.moods.measures import measure
from ..benchmarks.origin import Origin, add_output
from ..benchmarks.results import FOLDER, add_rows, installed_versions, machine_name
from ..judges.asr import Recogniser
from ..judges.clips import load_clip
from ..judges.speaker import SpeakerEncoder, cosine, identify, profile
from ..judges.stats import Figure, mean, ratio, share
from .pairs import read_texts
from .speak import SPOKEN

RESULTS = "adapters.json"
OWN, ALONE = "the recordings themselves", "0"  # as strengths
SPEAKER = "the speaker"  # in ``identify``
DIGITS = {"similarity": 2, "identified": 0, "wrong": 1, "pitch_hz": 0}  # of the page's table


@dataclass(frozen=True)
class JudgedRecording:
    """One line: similarity to the speaker's other recordings, whether they are the closest (None: there are no other
    speakers), words, and pitch in Hz.
    """

    similarity: float
    identified: bool | None
    word_errors: int
    words: int
    pitch_hz: float


@dataclass(frozen=True)
class VoiceJudges:
    """A recogniser, a speaker encoder, and the speakers to compare with.

    Args:
        recogniser: of words.
        encoder: of speakers.
        recordings: the speaker's, embedded, by name of the line.
        others: the profiles of other speakers.
    """

    recogniser: Recogniser
    encoder: SpeakerEncoder
    recordings: Mapping[str, np.ndarray]
    others: Mapping[str, np.ndarray]

    def judge_line(self, path: Path, text: str) -> JudgedRecording:
        """Judge a line, whose name is the file's."""
        audio = load_clip(path)
        embedding = self.encoder.embed(audio)
        own = profile([one for name, one in self.recordings.items() if name != path.stem])
        words = self.recogniser.judge(audio, text)
        return JudgedRecording(
            similarity=cosine(embedding, own),
            identified=identify(embedding, {SPEAKER: own, **self.others}) == SPEAKER if self.others else None,
            word_errors=words.word_errors,
            words=words.words,
            pitch_hz=2 ** (measure(*soundfile.read(path, dtype="float32")).pitch / 12),
        )


def figures_of(lines: Sequence[JudgedRecording]) -> dict[str, Figure]:
    """Return the figures of lines by name; shares are in percent."""
    known = [one.identified for one in lines if one.identified is not None]
    return {
        "similarity": mean([one.similarity for one in lines]),
        **({"identified": percent(share(known))} if known else {}),
        "wrong": ratio([100 * one.word_errors for one in lines], [one.words for one in lines]),
        "pitch_hz": mean([one.pitch_hz for one in lines]),
    }


def percent(one: Figure) -> Figure:
    return Figure(100 * one.value, 100 * one.low, 100 * one.high, one.lines)


def row(strength: str, lines: Sequence[JudgedRecording], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the results: each figure, and its interval."""
    figures = figures_of(lines)
    values = {name: round(one.value, 3) for name, one in figures.items()}
    ends = {f"{name}_95": [round(one.low, 3), round(one.high, 3)] for name, one in figures.items()}
    more = {**about, "failed": about["failed"].get(strength)}
    return {"table": "adapter", "strength": strength, "lines": len(lines), **values, **ends, **more}


def describe(one: Mapping[str, Any]) -> str:
    """Format a row as a row of the Markdown table in docs/log/adapters.md."""
    trained, strength = one["training"], one["strength"]
    what = f"{trained['layers']}, {trained['lines']} lines" if trained else ""
    cells = [what if strength not in (OWN, ALONE) else "", strength, str(one["lines"])]
    for name, digits in DIGITS.items():
        low, high = one.get(f"{name}_95", (0, 0))
        cells.append(f"{one[name]:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})" if name in one else "")
    return f"| {' | '.join(cells)} |"


def describe_training(one: Mapping[str, Any]) -> str:
    """Format a row's training as a row of that page's second table."""
    trained, device = one["training"], one["training"]["trained_on"]
    cells = [
        trained["layers"],
        str(trained["lines"]),
        f"{trained['speech_s']:.0f}",
        str(trained["kept_step"]),
    ]
    for before, after in zip(trained["losses_before"], trained["losses"], strict=True):
        cells.append(f"{before:.2f} to {after:.2f}")
    return f"| {' | '.join([*cells, device, format(trained['wall_s'], '.0f')])} |"


def load_judges(asked: argparse.Namespace, names: Iterable[str]) -> VoiceJudges:
    """Return the judges, with the recordings of these names and the other speakers' profiles."""
    encoder = SpeakerEncoder()
    own = {name: encoder.embed(load_clip(asked.recordings / f"{name}.wav")) for name in names}
    others = {
        place.name: profile([encoder.embed(load_clip(path)) for path in sorted(place.glob("*.wav"))])
        for place in sorted(asked.others.iterdir() if asked.others else [])
    }
    return VoiceJudges(Recogniser(asked.whisper), encoder, own, others)


def judge(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows: the recordings themselves, then each folder's strengths."""
    texts = read_texts(asked.recordings)
    judges = load_judges(asked, texts)

    def judge_line(folder: Path) -> list[JudgedRecording]:
        return [judges.judge_line(folder / f"{name}.wav", text) for name, text in texts.items()]

    said = [json.loads((place / SPOKEN).read_text(encoding="utf-8")) for place in asked.spoken]
    yield row(OWN, judge_line(asked.recordings), {**said[0], "failed": {}, "training": None})
    for place, about in zip(asked.spoken, said, strict=True):
        for strength in about["failed"]:
            yield row(strength, judge_line(place / strength), about)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.adapters.judge", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spoken", type=Path, nargs="+", help="folders that lab.adapters.speak wrote")
    parser.add_argument("--recordings", type=Path, required=True, help="the speaker's wavs of the same lines")
    parser.add_argument("--others", type=Path, help="folder with a folder of wavs for each other speaker")
    parser.add_argument("--whisper", type=Path, default=Path("artifacts/whisper-base"))
    parser.add_argument("--keep", action="store_true", help="write the rows to the results file")
    add_output(parser)
    asked = parser.parse_args(arguments)
    others = sorted(place.name for place in asked.others.iterdir()) if asked.others else []
    rows = []
    for one in judge(asked):
        print(describe(one), flush=True)
        rows.append({**one, "others": others, **asdict(Origin.of(asked.commit))})
    if asked.keep:
        document = {
            "machine": machine_name(torch.device("cpu")),
            "versions": installed_versions(),
            "rows": rows,
        }
        add_rows(document, (asked.out or FOLDER) / RESULTS)


if __name__ == "__main__":
    main()
