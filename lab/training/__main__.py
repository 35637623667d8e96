"""The demo voice from the teacher's bundle to the checkpoint, one step after another.

    python -m lab.training --root work --hours 25 --codec-minutes 25 --talker-minutes 9 --device cuda

Corpus, codec and talker use all GPUs that there are. Every step is a command of its own (see the modules); what is
there already is not made again, so that the same command goes on after an interruption. Everything lies under --root:
``shards/`` (the corpus), ``codec/``, ``speech_tokenizer/``, ``codes/``, ``talker/``, ``drawn/`` (what the talker makes
of the codes), ``tuned/`` and ``tuned_tokenizer/`` (the codec whose decoder is used to that), ``voice/``, ``log.txt``.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .corpus.log import start_log

STILL = 240.0  # seconds without a line in its log after which a training hangs: compiling takes at most 125
LOOK = 0.5  # seconds between two looks

log = logging.getLogger("training")


@dataclass(frozen=True)
class Step:
    """A command and the file that says that it is done.

    Args:
        arguments: of ``python -m lab.training.``.
        made: what it leaves; touched when the command has ended well.
        careful: arguments to add on a second try, after it has failed or its ``log`` has stood still.
        log: a file that grows while the command gets on.
        state: a file from which a second try goes on.
        minutes: how long it may take, which a second try has less of.
    """

    arguments: tuple[str, ...]
    made: Path
    careful: tuple[str, ...] = ()
    log: Path | None = None
    state: Path | None = None
    minutes: float = math.inf


def steps(options: argparse.Namespace) -> list[Step]:
    """The whole way."""
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
    """Train a codec into the root's folder ``name``."""
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
        log=root / name / "train.log" if cuda else None,  # on a CPU it may take minutes between two lines
        state=root / name / "state.safetensors",
        minutes=minutes,
    )


def _export_step(training: Path, out: Path) -> Step:
    """Make a speech tokenizer of what a codec's training left."""
    return Step(
        ("codec.export", "--checkpoint", str(training / "weights"), "--out", str(out)), out / "config.json"
    )


def run(todo: Sequence[Step]) -> None:
    """Run the steps that are not done; CalledProcessError when one fails, also in its second try if it has one."""
    for step in todo:
        if step.made.exists():
            log.info("done before: %s", step.arguments[0])
            continue
        started = time.monotonic()
        try:
            run_step(step, step.arguments)
        except subprocess.CalledProcessError as error:
            if not step.careful:
                raise
            log.warning("%s; trying again with %s", error, " ".join(step.careful))
            run_step(step, second_try(step, (time.monotonic() - started) / 60))
        step.made.touch()
        log.info("%s: %.0f s", step.arguments[0], time.monotonic() - started)


def second_try(step: Step, spent: float) -> tuple[str, ...]:
    """The arguments of a second try, ``spent`` minutes later."""
    arguments = [*step.arguments, *step.careful]
    if step.state and step.state.is_file():
        arguments.append("--resume")
    if step.minutes < math.inf:
        arguments[arguments.index("--minutes") + 1] = str(max(0.1, step.minutes - spent))
    return tuple(arguments)


def run_step(step: Step, arguments: Sequence[str]) -> None:
    """Run a step's command to its end; CalledProcessError where it does not end well."""
    module, *rest = arguments
    log.info("python -m lab.training.%s %s", module, " ".join(rest))
    watch([sys.executable, "-m", f"lab.training.{module}", *rest], step.log)


def watch(command: Sequence[str], growing: Path | None) -> None:
    """Run a command; end it when the file ``growing`` stands still. CalledProcessError unless it ends well."""
    process = subprocess.Popen(command, start_new_session=True)  # a group of its own, to be ended as a whole
    size, moved = -1, time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(LOOK)
            now = growing.stat().st_size if growing and growing.exists() else 0
            if now != size:
                size, moved = now, time.monotonic()
            elif growing and time.monotonic() - moved > STILL:
                log.warning("%s stood still for %.0f s: its command is ended", growing, STILL)
                break
    finally:
        end_group(process)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children, if it runs still."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training", description=(__doc__ or "").splitlines()[0]
    )
    configs = Path(__file__).parent / "configs"
    parser.add_argument("--root", type=Path, required=True, help="holds teacher.tar.xz; gets everything")
    parser.add_argument("--hours", type=float, default=25.0, help="of training speech")
    parser.add_argument("--processes", type=int, default=16, help="teachers at once")
    parser.add_argument("--codec-minutes", type=float, default=25.0)
    parser.add_argument("--talker-minutes", type=float, default=9.0)
    parser.add_argument("--tune-minutes", type=float, default=6.0, help="of the decoder, on drawn codes")
    parser.add_argument("--takes", type=int, default=3, help="encodings of each training line")
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
