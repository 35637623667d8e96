"""Judge a folder of wavs.

    python -m lab.judges --wavs DIR --texts FILE [--references DIR] [--originals DIR] [--json FILE]

Prints word and character error rates (whisper-base), the share of lines whose speaker is identified correctly
(Resemblyzer), speaker similarity and predicted opinion scores, each with its 95 % interval, and writes them to JSON
with the figures of every line. ``--references`` is a folder with one subfolder of wavs per speaker; ``--originals``
holds a wav of the same name for each wav.
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

from .asr import Comparison, Recogniser
from .clips import Clip, load_clip, read_texts
from .mos import Opinion, OpinionJudge
from .speaker import SpeakerEncoder, cosine, identify, profile
from .stats import Figure, mean, ratio, share

log = logging.getLogger("lab.judges")

# name: (factor, unit) for the printed table
SCALES = {"wer": (100, "%"), "cer": (100, "%"), "identified": (100, "%")}


@dataclass(frozen=True)
class Verdict:
    """All judgements of one line; None where there was nothing to compare with."""

    clip: Clip
    heard: Comparison
    opinion: Opinion
    identified_as: str | None
    similarity_to_reference: float | None
    similarity_to_original: float | None


@dataclass(frozen=True)
class Judges:
    """The loaded judges, and the speakers' profiles by name."""

    recogniser: Recogniser
    opinions: OpinionJudge
    encoder: SpeakerEncoder | None
    profiles: Mapping[str, np.ndarray]


def enrol(folder: Path, encoder: SpeakerEncoder) -> dict[str, np.ndarray]:
    """Return a profile of every speaker: one subfolder of references each."""
    speakers = sorted(path for path in folder.iterdir() if path.is_dir())
    if len(speakers) < 2:
        raise ValueError(f"{folder} has {len(speakers)} speaker folders, identification needs at least 2: add speakers")
    return {one.name: profile([encoder.embed(load_clip(wav)) for wav in sorted(one.glob("*.wav"))]) for one in speakers}


def judge_clip(clip: Clip, wavs: Path, originals: Path | None, judges: Judges) -> Verdict:
    """Run every judge on one wav."""
    audio = load_clip(wavs / clip.path)
    embedding = judges.encoder.embed(audio) if judges.encoder else None
    identified = to_reference = to_original = None
    if embedding is not None and judges.profiles:
        if clip.speaker not in judges.profiles:
            raise ValueError(f"{clip.path}: speaker {clip.speaker!r} has no folder in --references: add one")
        identified = identify(embedding, judges.profiles)
        to_reference = cosine(embedding, judges.profiles[clip.speaker])
    if embedding is not None and judges.encoder and originals:
        to_original = cosine(embedding, judges.encoder.embed(load_clip(originals / clip.path)))
    comparison = judges.recogniser.nearest(audio, (clip.text, *clip.spellings))
    return Verdict(clip, comparison, judges.opinions.judge(audio), identified, to_reference, to_original)


def summarise(verdicts: Sequence[Verdict]) -> dict[str, Figure]:
    """Return the figures of a run by name, each with its interval."""
    comparisons = [one.heard for one in verdicts]
    figures = {
        "wer": ratio([one.word_errors for one in comparisons], [one.words for one in comparisons]),
        "cer": ratio([one.letter_errors for one in comparisons], [one.letters for one in comparisons]),
    }
    if all(one.identified_as is not None for one in verdicts):
        figures["identified"] = share([one.identified_as == one.clip.speaker for one in verdicts])
    for name in ("similarity_to_reference", "similarity_to_original"):
        values = [value for one in verdicts if (value := getattr(one, name)) is not None]
        if values:
            figures[name] = mean(values)
    for name in Opinion.__dataclass_fields__:
        figures[name] = mean([getattr(one.opinion, name) for one in verdicts])
    return figures


def table(figures: Mapping[str, Figure]) -> str:
    """Format the figures as lines of text."""
    rows = [f"{'figure':24}{'value':>10}   {'95 % interval':>18}{'lines':>8}"]
    for name, figure in figures.items():
        scale, unit = SCALES.get(name, (1, ""))
        low, high = f"{figure.low * scale:.2f}", f"{figure.high * scale:.2f}"
        rows.append(f"{name:24}{figure.value * scale:>9.2f}{unit:1}   {low:>7} to {high:>7}{figure.lines:>8}")
    return "\n".join(rows)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.judges", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wavs", type=Path, required=True)
    parser.add_argument(
        "--texts", type=Path, required=True, help="file with PATH<tab>TEXT per line, and other spellings"
    )
    parser.add_argument("--references", type=Path, help="folder with one subfolder of wavs per speaker")
    parser.add_argument("--originals", type=Path, help="the same lines before coding, under the same paths")
    parser.add_argument("--json", type=Path, help="output file (default: judged.json next to the texts)")
    parser.add_argument(
        "--whisper",
        type=Path,
        default=Path("artifacts/whisper-base"),
        help="folder for whisper-base, assembled there on first use",
    )
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("faster_whisper").setLevel(logging.WARNING)  # it logs every clip
    clips = read_texts(options.texts)
    encoder = SpeakerEncoder() if options.references or options.originals else None
    profiles = enrol(options.references, encoder) if options.references and encoder else {}
    judges = Judges(Recogniser(options.whisper, options.threads), OpinionJudge(), encoder, profiles)
    verdicts = []
    for done, clip in enumerate(clips, 1):
        verdicts.append(judge_clip(clip, options.wavs, options.originals, judges))
        if done % 20 == 0 or done == len(clips):
            log.info("%d of %d wavs", done, len(clips))
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
