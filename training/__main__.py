"""The demo voice from the teacher's bundle to the checkpoint, one step after another.

    python -m training --root work --hours 25 --codec-minutes 25 --talker-minutes 9 --device cuda

Corpus, codec and talker use all GPUs that there are. Every step is a command of its own (see the modules); what is
there already is not made again, so that the same command goes on after an interruption. Everything lies under --root:
``shards/`` (the corpus), ``codec/``, ``speech_tokenizer/``, ``codes/``, ``talker/`` and ``voice/``, and ``log.txt``.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .corpus.log import start_log

log = logging.getLogger("training")


@dataclass(frozen=True)
class Step:
    """A command (arguments of ``python -m training.``) and the file that it makes when it is done."""

    arguments: tuple[str, ...]
    made: Path


def steps(options: argparse.Namespace) -> list[Step]:
    """The whole way."""
    root, device = options.root, ("--device", options.device)
    shards, codes, talker = root / "shards", root / "codes", root / "talker"
    tokenizer, voice = root / "speech_tokenizer", root / "voice"
    minutes = str(options.codec_minutes)
    fast = ("--fast",) if options.device == "cuda" else ()
    speak = ("corpus", "--root", str(root), "speak", *device)
    return [
        Step((*speak, "--split", "dev", "--limit", "200"), root / "dev.done"),
        Step(
            (
                *speak,
                *("--split", "train", "--hours", str(options.hours)),
                *("--processes", str(options.processes)),
            ),
            root / "train.done",
        ),
        Step(
            (
                *("codec.train", "--corpus", str(shards), "--out", str(root / "codec"), *device),
                *("--minutes", minutes, "--whole-minutes", minutes, "--config", str(options.codec_config)),
                *("--processes", "0"),
                *fast,
            ),
            root / "codec.done",
        ),
        Step(
            ("codec.export", "--checkpoint", str(root / "codec" / "weights"), "--out", str(tokenizer)),
            tokenizer / "config.json",
        ),
        Step(
            (
                *("talker.encode", "--corpus", str(shards), "--codec", str(tokenizer), "--out", str(codes)),
                *("--takes", str(options.takes), *device),
            ),
            root / "codes.done",
        ),
        Step(
            (
                *("talker.train", "--codes", str(codes), "--out", str(talker), *device),
                *("--minutes", str(options.talker_minutes), "--config", str(options.talker_config)),
                *(("--processes", "0", "--workers", "14") if fast else ("--no-compile", "--workers", "1")),
            ),
            root / "talker.done",
        ),
        Step(
            (
                *("export", "--talker", str(talker), "--codec", str(tokenizer), "--out", str(voice)),
                *("--config", str(options.talker_config)),
            ),
            root / "voice.done",
        ),
    ]


def run(todo: Sequence[Step]) -> None:
    """Run the steps that are not done; CalledProcessError when one fails."""
    for step in todo:
        if step.made.exists():
            log.info("done before: %s", step.arguments[0])
            continue
        started = time.monotonic()
        module, *rest = step.arguments
        log.info("python -m training.%s %s", module, " ".join(rest))
        subprocess.run([sys.executable, "-m", f"training.{module}", *rest], check=True)
        step.made.touch()
        log.info("%s: %.0f s", module, time.monotonic() - started)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training", description=(__doc__ or "").splitlines()[0])
    configs = Path(__file__).parent / "configs"
    parser.add_argument("--root", type=Path, required=True, help="holds teacher.tar.xz; gets everything")
    parser.add_argument("--hours", type=float, default=25.0, help="of training speech")
    parser.add_argument("--processes", type=int, default=16, help="teachers at once")
    parser.add_argument("--codec-minutes", type=float, default=25.0)
    parser.add_argument("--talker-minutes", type=float, default=9.0)
    parser.add_argument("--takes", type=int, default=3, help="encodings of each training line")
    parser.add_argument("--codec-config", type=Path, default=configs / "codec.json")
    parser.add_argument("--talker-config", type=Path, default=configs / "talker.json")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args(arguments)


def main() -> int:
    options = parse_arguments()
    start_log(options.root / "log.txt")
    run(steps(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
