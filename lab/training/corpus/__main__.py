"""Make the corpus, one command per step, from the repository's root.

    python -m lab.training.corpus fetch     # WordNet and the voices, through apt-get and npm
    python -m lab.training.corpus text      # sentences, split and phonemised
    python -m lab.training.corpus bundle    # teacher, voices and sentences in one file
    python -m lab.training.corpus speak --split train --hours 10 --processes 8 --device cuda
    python -m lab.training.corpus wavs --split test    # a spoken split as wavs, for lab.judges

The first three need lab/training/requirements.txt and requirements-no-deps.txt, speak needs what speak.py names. All
files are written under --root.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .log import start_log
from .plan import SPLITS

log = logging.getLogger("lab.training.corpus")


def make_text(options: argparse.Namespace) -> None:
    """Choose and phonemise the sentences."""
    from qwen3_tts_morph.morph.text.normalize import Normalizer

    from .phonemes import load_phonemizer
    from .plan import Line
    from .sources import WORDNET_FOLDER
    from .teacher import MOST_PHONEMES
    from .text import TextOptions, collect

    phonemize, normalizer = load_phonemizer(), Normalizer("en")
    sentences = collect(
        options.root / "sources" / WORDNET_FOLDER,
        TextOptions(seed=options.seed),
        lambda text: normalizer.write_out(text).text,
    )
    lines = [Line(one.text, phonemize(one.spoken), one.split, one.kind) for one in sentences]
    lines = [line for line in lines if 0 < len(line.phonemes) <= MOST_PHONEMES]
    rows = [json.dumps(asdict(line), ensure_ascii=False) for line in lines]
    (options.root / "lines.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    log.info(
        "%s; about %.1f h spoken once", dict(Counter((one.split, one.kind) for one in lines)), _hours(lines)
    )
    log.info("longest line: %d phonemes", max(len(line.phonemes) for line in lines))


def _hours(lines: Any) -> float:
    return sum(line.seconds for line in lines) / 3600


def make_bundle(options: argparse.Namespace) -> None:
    """Pack the teacher, the cast and the sentences."""
    from .bundle import pack_weights, read_styles, write_bundle
    from .onnx_weights import load_shipped_model, read_weights
    from .phonemes import read_vocabulary
    from .plan import Line
    from .sources import VOICES_FOLDER
    from .teacher import parameter_names
    from .voices import CastOptions, make_cast

    rows = (options.root / "lines.jsonl").read_text(encoding="utf-8").splitlines()
    lines = [Line(**json.loads(row)) for row in rows]
    styles = read_styles(options.root / "sources" / VOICES_FOLDER)
    longest = max(len(line.phonemes) for line in lines)
    cast = make_cast(
        {name: table[:longest] for name, table in styles.items()},
        CastOptions(seed=options.seed, strangers=options.strangers, foreign=options.foreign),
    )
    teacher = pack_weights(read_weights(load_shipped_model()), parameter_names())
    about = {"seed": options.seed, "vocabulary": read_vocabulary(), "cast": [asdict(voice) for voice in cast]}
    path = options.root / "teacher.tar.xz"
    write_bundle(path, teacher, styles, lines, about)
    log.info("%s: %.2f MiB, %d voices, %d lines", path, path.stat().st_size / 2**20, len(cast), len(lines))


def speak(options: argparse.Namespace) -> None:
    """Speak a split from the bundle."""
    from .bundle import unpack_bundle
    from .speak import SpeakOptions, speak_split

    folder = options.root / "teacher"
    if not folder.is_dir():
        unpack_bundle(options.bundle or options.root / "teacher.tar.xz", folder)
    choice = SpeakOptions(
        bundle=folder,
        out=options.out or options.root / "shards",
        split=options.split,
        hours=options.hours,
        seed=options.seed,
        processes=options.processes,
        device=options.device,
        limit=options.limit,
    )
    started = time.monotonic()
    made = speak_split(choice)
    wall = time.monotonic() - started
    log.info(
        "%s: %d lines, %.3f h in %.0f s including startup, %.1f times real time",
        *(choice.split, made.lines, made.seconds / 3600, wall, made.seconds / wall),
    )


def write_wavs(options: argparse.Namespace) -> None:
    """Write a split as OUT/SPEAKER/NUMBER.wav with OUT/texts.tsv."""
    from ..storage import write_wav
    from .shards import Corpus
    from .teacher import SAMPLE_RATE

    corpus = Corpus(options.shards or options.root / "shards", options.split)
    out = options.out or options.root / "wavs" / options.split
    rows = []
    for index in range(len(corpus)):
        line = corpus[index]
        path = f"{line.speaker}/{index:05}.wav"
        write_wav(out / path, line.audio, SAMPLE_RATE)
        rows.append(f"{path}\t{line.text}")
    (out / "texts.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    log.info("%s: %d wavs, %.1f s", out, len(corpus), corpus.seconds)


def fetch(options: argparse.Namespace) -> None:
    """Download WordNet and the voices."""
    from .sources import fetch_sources

    fetch_sources(options.root / "sources")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.corpus", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--root", type=Path, default=Path("artifacts/corpus"), help="folder for all files")
    parser.add_argument("--seed", type=int, default=0)
    steps = parser.add_subparsers(dest="step", required=True)
    for name, step in (("fetch", fetch), ("text", make_text)):
        steps.add_parser(name, help=step.__doc__).set_defaults(run=step)
    bundling = steps.add_parser("bundle", help=make_bundle.__doc__)
    for name in ("strangers", "foreign"):
        bundling.add_argument(f"--{name}", type=float, default=0.0, help="share of the mixes, see voices.py")
    bundling.set_defaults(run=make_bundle)
    speaking = steps.add_parser("speak", help=speak.__doc__)
    speaking.add_argument(
        "--bundle", type=Path, help="default: ROOT/teacher.tar.xz; unpacked to ROOT/teacher once"
    )
    speaking.add_argument("--split", required=True, help=", ".join(SPLITS))
    speaking.add_argument("--hours", type=float, default=0.0, help="approximate hours of training speech")
    speaking.add_argument("--processes", type=int, default=1)
    speaking.add_argument("--device", default="cpu")
    speaking.add_argument("--limit", type=int, default=0, help="speak only the plan's first lines (0: all)")
    speaking.add_argument("--out", type=Path, help="default: ROOT/shards")
    speaking.set_defaults(run=speak)
    wavs = steps.add_parser("wavs", help=write_wavs.__doc__)
    wavs.add_argument("--split", required=True)
    wavs.add_argument("--shards", type=Path, help="default: ROOT/shards")
    wavs.add_argument("--out", type=Path, help="default: ROOT/wavs/SPLIT")
    wavs.set_defaults(run=write_wavs)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    start_log(options.root / "log.txt")
    log.info("%s", " ".join(sys.argv[1:]))
    options.run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
