"""Judge a folder of wavs.

    python -m lab.judges --wavs DIR --texts FILE [--references DIR] [--originals DIR] [--json FILE]

Prints word and letter error rates (whisper-base), the share of lines whose speaker is told from all others
(Resemblyzer), likeness, and predicted opinion scores, each with its 95 % interval, and writes them with every
line's own figures. ``--references`` holds a folder of wavs for each speaker; ``--originals`` a wav of the same name
for each wav.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from .asr import Heard, Recogniser
from .clips import Clip, load_clip, read_texts
from .mos import Opinion, OpinionJudge
from .speaker import SpeakerEncoder, cosine, identify, profile
from .stats import Figure, mean, ratio, share

log = logging.getLogger("lab.judges")

# name: digits after the point, and what it is multiplied by for the table
SCALES = {"wer": (100, "%"), "cer": (100, "%"), "identified": (100, "%")}


@dataclass(frozen=True)
class Verdict:
    """All that was found of one line; None where nothing was given to compare with."""

    clip: Clip
    heard: Heard
    opinion: Opinion
    identified_as: str | None
    likeness_to_reference: float | None
    likeness_to_original: float | None


@dataclass(frozen=True)
class Judges:
    """The loaded judges and the speakers' profiles."""

    recogniser: Recogniser
    opinions: OpinionJudge
    encoder: SpeakerEncoder | None
    profiles: Mapping[str, np.ndarray]


def enrol(folder: Path, encoder: SpeakerEncoder) -> dict[str, np.ndarray]:
    """A profile of every speaker in a folder of references."""
    speakers = sorted(path for path in folder.iterdir() if path.is_dir())
    if len(speakers) < 2:
        raise ValueError(f"{folder} holds {len(speakers)} speakers' folders: identification needs 2 or more")
    return {
        one.name: profile([encoder.embed(load_clip(wav)) for wav in sorted(one.glob("*.wav"))])
        for one in speakers
    }


def judge_clip(clip: Clip, wavs: Path, originals: Path | None, judges: Judges) -> Verdict:
    """Let every judge hear one wav."""
    audio = load_clip(wavs / clip.path)
    embedding = judges.encoder.embed(audio) if judges.encoder else None
    named = likeness = original = None
    if embedding is not None and judges.profiles:
        if clip.speaker not in judges.profiles:
            raise ValueError(f"{clip.path}: no references of speaker {clip.speaker!r}")
        named = identify(embedding, judges.profiles)
        likeness = cosine(embedding, judges.profiles[clip.speaker])
    if embedding is not None and judges.encoder and originals:
        original = cosine(embedding, judges.encoder.embed(load_clip(originals / clip.path)))
    heard = judges.recogniser.judge(audio, clip.text)
    return Verdict(clip, heard, judges.opinions.judge(audio), named, likeness, original)


def summarise(verdicts: Sequence[Verdict]) -> dict[str, Figure]:
    """The figures of a run, each with its interval."""
    heard = [one.heard for one in verdicts]
    figures = {
        "wer": ratio([one.word_errors for one in heard], [one.words for one in heard]),
        "cer": ratio([one.letter_errors for one in heard], [one.letters for one in heard]),
    }
    if all(one.identified_as is not None for one in verdicts):
        figures["identified"] = share([one.identified_as == one.clip.speaker for one in verdicts])
    for name in ("likeness_to_reference", "likeness_to_original"):
        values = [value for one in verdicts if (value := getattr(one, name)) is not None]
        if values:
            figures[name] = mean(values)
    for name in Opinion.__dataclass_fields__:
        figures[name] = mean([getattr(one.opinion, name) for one in verdicts])
    return figures


def table(figures: Mapping[str, Figure]) -> str:
    """The figures as lines of text."""
    rows = [f"{'figure':24}{'value':>10}   {'95 % interval':>18}{'lines':>8}"]
    for name, figure in figures.items():
        scale, unit = SCALES.get(name, (1, ""))
        low, high = f"{figure.low * scale:.2f}", f"{figure.high * scale:.2f}"
        rows.append(f"{name:24}{figure.value * scale:>9.2f}{unit:1}   {low:>7} to {high:>7}{figure.lines:>8}")
    return "\n".join(rows)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.judges", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wavs", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True, help="PATH<tab>TEXT a line")
    parser.add_argument("--references", type=Path, help="a folder of wavs for each speaker")
    parser.add_argument("--originals", type=Path, help="the same lines before coding, under the same paths")
    parser.add_argument("--json", type=Path, help="where the figures go; none: judged.json beside the texts")
    parser.add_argument(
        "--whisper", type=Path, default=Path("artifacts/whisper-base"), help="where it is joined"
    )
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("faster_whisper").setLevel(logging.WARNING)  # it tells of every clip
    clips = read_texts(options.texts)
    encoder = SpeakerEncoder() if options.references or options.originals else None
    profiles = enrol(options.references, encoder) if options.references and encoder else {}
    judges = Judges(Recogniser(options.whisper, options.threads), OpinionJudge(), encoder, profiles)
    verdicts = []
    for place, clip in enumerate(clips, 1):
        verdicts.append(judge_clip(clip, options.wavs, options.originals, judges))
        if place % 20 == 0 or place == len(clips):
            log.info("%d of %d wavs", place, len(clips))
    figures = summarise(verdicts)
    print(table(figures))
    file = options.json or options.texts.with_name("judged.json")
    report = {
        "figures": {name: asdict(one) for name, one in figures.items()},
        "lines": [asdict(one) for one in verdicts],
    }
    file.write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
