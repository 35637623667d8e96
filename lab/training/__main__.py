"""The demo voice from the teacher's bundle to the checkpoint, step by step.

    python -m lab.training --root work --hours 25 --codec-minutes 25 --talker-minutes 9 --device cuda

Corpus, codec and talker use all available GPUs. Every step is also a separate command (see the modules). Finished steps
are skipped, so the same command resumes after an interruption. Everything is written under --root: ``shards/`` (the
corpus), ``codec/``, ``speech_tokenizer/``, ``codes/``, ``talker/``, ``drawn/`` (codes that the talker samples for the
same lines), ``tuned/`` and ``tuned_tokenizer/`` (the codec, its decoder tuned on those), ``voice/``, ``log.txt``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .corpus.log import start_log
from .steps import Step, run


def steps(options: argparse.Namespace) -> list[Step]:
    """Return all steps in order."""
    root, device = options.root, ("--device", options.device)
    shards, codes, talker, drawn = root / "shards", root / "codes", root / "talker", root / "drawn"
    tokenizer, tuned, voice = root / "speech_tokenizer", root / "tuned_tokenizer", root / "voice"
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
        _codec_step(options, "codec", options.codec_minutes, options.codec_config),
        _export_step(root / "codec", tokenizer),
        Step(
            (
                *("talker.encode", "--corpus", str(shards), "--codec", str(tokenizer), "--out", str(codes)),
                *("--takes", str(options.takes), "--processes", "0", *device),
                *("--bundle", str(root / "teacher")),
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
            careful=("--no-capture",) if fast else (),
            log=talker / "log.jsonl" if fast else None,
            state=talker / "state.safetensors",
        ),
        Step(
            (
                *("talker.redraw", "--codes", str(codes), "--talker", str(talker), "--out", str(drawn)),
                *("--config", str(options.talker_config), "--processes", "0", *device),
            ),
            root / "drawn.done",
        ),
        _codec_step(
            options,
            "tuned",
            options.tune_minutes,
            options.tune_config,
            *("--start", str(root / "codec" / "weights"), "--codes", str(codes), "--drawn", str(drawn)),
        ),
        _export_step(root / "tuned", tuned),
        Step(
            (
                *("export", "--talker", str(talker), "--codec", str(tuned), "--out", str(voice)),
                *("--config", str(options.talker_config)),
            ),
            root / "voice.done",
        ),
    ]


def _codec_step(options: argparse.Namespace, name: str, minutes: float, config: Path, *more: str) -> Step:
    """Return the step that trains a codec into the root's folder ``name``."""
    root, cuda = options.root, options.device == "cuda"
    return Step(
        (
            *("codec.train", "--corpus", str(root / "shards"), "--out", str(root / name)),
            *("--minutes", str(minutes), "--whole-minutes", str(minutes), "--config", str(config)),
            *("--device", options.device, "--processes", "0"),
            *(("--fast",) if cuda else ()),
            *more,
        ),
        root / f"{name}.done",
        careful=("--no-capture",) if cuda else (),
        log=root / name / "train.log" if cuda else None,  # on a CPU there may be minutes between two lines
        state=root / name / "state.safetensors",
        minutes=minutes,
    )


def _export_step(training: Path, out: Path) -> Step:
    """Return the step that exports a trained codec as a speech tokenizer."""
    return Step(
        ("codec.export", "--checkpoint", str(training / "weights"), "--out", str(out)), out / "config.json"
    )


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training", description=(__doc__ or "").splitlines()[0]
    )
    configs = Path(__file__).parent / "configs"
    parser.add_argument(
        "--root", type=Path, required=True, help="folder that contains teacher.tar.xz; all output goes here"
    )
    parser.add_argument("--hours", type=float, default=25.0, help="hours of training speech")
    parser.add_argument("--processes", type=int, default=16, help="number of teacher processes")
    parser.add_argument("--codec-minutes", type=float, default=25.0)
    parser.add_argument("--talker-minutes", type=float, default=9.0)
    parser.add_argument(
        "--tune-minutes", type=float, default=6.0, help="minutes to tune the decoder on sampled codes"
    )
    parser.add_argument("--takes", type=int, default=3, help="encodings per training line")
    parser.add_argument("--codec-config", type=Path, default=configs / "codec.json")
    parser.add_argument("--tune-config", type=Path, default=configs / "codec_drawn.json")
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
