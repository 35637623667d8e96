"""The demo voice's talker trained further on a rented machine, in calls of some minutes.

    python -m lab.training.lease --root work --voice demo_voice --bundle teacher.tar.xz --back BACK --minutes 9

The teacher speaks a corpus, the shipped codec encodes it, the talker trains from the voice's own weights, and a voice
is exported. Every call does what it has time for; repeat it until its log says that all is done. ``--last`` ends a call
earlier. Everything is written under ``--root``. ``--back`` gets the talker so far after every call, in files that are
small enough to be sent; ``lab.training.export`` makes a voice of them anywhere.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .corpus.log import start_log
from .steps import Step, attempt
from .storage import read_about
from .talker.loop import STATE

NAMES = ("dev", "speak", "encode", "train", "export")
CONFIG = Path(__file__).parent / "configs" / "talker_further.json"
DEV_LINES = 200
TAKES = 2  # encodings of each training line, besides the flawed recording
# Minutes on one H200: what a command needs before it begins, and per hour of speech.
STARTING = 0.7
EXPORTING = 0.5
SPEAKING = 0.23
ENCODING = 0.05  # of each encoding
ENDING = 0.7  # of a training, to validate and save
LEAST_TRAINING = 3.0
# What may come back from the machine.
MOST_FILES = 8
MOST_BYTES = 16 << 20
MOST_IN_ALL = 64 << 20

log = logging.getLogger("training")


@dataclass(frozen=True)
class Lease:
    """What to make.

    Args:
        root: folder for everything.
        voice: the checkpoint to go on from, with its codec.
        bundle: the teacher's, packed.
        hours: of training speech.
        minutes: of the whole training, in which its learning rate falls.
        config: of the talker.
        seed: of the corpus; another one than an earlier lease's gives other speech.
        teachers: processes that speak.
        workers: processes that make recordings or batches; 0: the one on the GPU makes them.
        device: as torch names it.
    """

    root: Path
    voice: Path
    bundle: Path
    hours: float = 20.0
    minutes: float = 13.0
    config: Path = CONFIG
    seed: int = 0
    teachers: int = 16
    workers: int = 14
    device: str = "cuda"

    @property
    def codec(self) -> Path:
        return self.voice / "speech_tokenizer"

    @property
    def talker(self) -> Path:
        return self.root / "talker"


@dataclass(frozen=True)
class Stage:
    """A step of the lease.

    Args:
        name: one of ``NAMES``.
        step: its command.
        needs: minutes that it takes; it begins only if a call has that many left, or did nothing before it.
        partial: patterns of what an interrupted one leaves behind, which is removed before it begins.
    """

    name: str
    step: Step
    needs: float
    partial: tuple[Path, ...] = ()


def stages(lease: Lease, left: float) -> list[Stage]:
    """Return all stages in order; a training that begins now has ``left`` minutes until its call ends."""
    root, cuda = lease.root, lease.device == "cuda"
    shards = root / "shards"
    dev = ("--split", "dev", "--limit", str(DEV_LINES))
    train = ("--split", "train", "--hours", str(lease.hours), "--processes", str(lease.teachers))
    spoken = STARTING + lease.hours * SPEAKING if cuda else 0.0
    encoded = STARTING + lease.hours * (TAKES + 1) * ENCODING if cuda else 0.0
    return [
        Stage("dev", _speaking(lease, "dev", dev), STARTING, (shards / "dev-*",)),
        Stage("speak", _speaking(lease, "speak", train), spoken, (shards / "train-*",)),
        Stage("encode", _encoding(lease), encoded, (root / "codes" / "*",)),
        Stage("train", _training(lease, left), LEAST_TRAINING),
        Stage("export", _exporting(lease), EXPORTING),
    ]


def _speaking(lease: Lease, name: str, what: tuple[str, ...]) -> Step:
    command = ("corpus", "--root", str(lease.root), "--seed", str(lease.seed), "speak")
    where = ("--bundle", str(lease.bundle), "--device", lease.device)
    return Step((*command, *where, *what), lease.root / f"{name}.done")


def _encoding(lease: Lease) -> Step:
    root = lease.root
    where = ("--corpus", str(root / "shards"), "--codec", str(lease.codec), "--out", str(root / "codes"))
    how = ("--takes", str(TAKES), "--rough", "--bundle", str(root / "teacher"))
    size = ("--processes", "0", "--workers", str(lease.workers), "--device", lease.device)
    return Step(("talker.encode", *where, *how, *size), root / "encode.done")


def _training(lease: Lease, left: float) -> Step:
    """Return a slice of the training, which continues if there is a state."""
    cuda = lease.device == "cuda"
    minutes = max(0.01, left - ENDING)
    where = ("--codes", str(lease.root / "codes"), "--out", str(lease.talker), "--config", str(lease.config))
    how = ("--start", str(lease.voice), "--resume", "--minutes", str(lease.minutes))
    size = ("--processes", "0", "--workers", str(lease.workers), "--device", lease.device)
    return Step(
        ("talker.train", *where, *how, *size, "--slice", str(minutes), *(() if cuda else ("--no-compile",))),
        lease.root / "train.done",
        careful=("--no-capture",) if cuda else (),
        log=lease.talker / "log.jsonl" if cuda else None,
        minutes=minutes,
        limit="--slice",
    )


def _exporting(lease: Lease) -> Step:
    where = ("--talker", str(lease.talker), "--codec", str(lease.codec), "--out", str(lease.root / "voice"))
    return Step(("export", *where, "--config", str(lease.config)), lease.root / "export.done")


def run_call(lease: Lease, minutes: float, last: str = NAMES[-1]) -> bool:
    """Run the stages that are not done, as far as the minutes suffice; return whether all up to ``last`` are done.

    Raises:
        CalledProcessError: a stage failed, or was killed when the minutes were over.
    """
    until, began = time.monotonic() + 60 * minutes, False
    for index, name in enumerate(NAMES[: NAMES.index(last) + 1]):
        left = (until - time.monotonic()) / 60
        # Made again, in the order of NAMES: a training's command depends on the minutes left.
        stage = stages(lease, left)[index]
        if stage.step.made.exists():
            continue
        if began and stage.needs > left:
            log.info("%.1f minutes left, %s takes %.1f: it is for the next call", left, name, stage.needs)
            return False
        began = True
        clear(stage.partial)
        attempt(stage.step, until)
        if name == "train" and trained_minutes(lease) < lease.minutes:
            log.info("trained for %.2f of %s minutes: call again", trained_minutes(lease), lease.minutes)
            return False
        stage.step.made.touch()
    return True


def clear(partial: Sequence[Path]) -> None:
    """Remove what matches these patterns."""
    for pattern in partial:
        for path in pattern.parent.glob(pattern.name):
            log.info("removing %s of an interrupted call", path)
            path.unlink()


def trained_minutes(lease: Lease) -> float:
    """Return how long the talker has trained so far."""
    return float(read_about(lease.talker / STATE)["seconds"]) / 60


def send_back(lease: Lease, out: Path) -> list[Path]:
    """Copy the talker so far to ``out``, as far as the limits allow, the weights first; return the copies."""
    found = [path for part in ("weights", "tokenizer") for path in sorted((lease.talker / part).glob("*"))]
    found += sorted(lease.talker.glob("log.jsonl"))
    sent: list[Path] = []
    room = MOST_IN_ALL
    for path in found:
        size = path.stat().st_size
        if len(sent) == MOST_FILES or size > min(MOST_BYTES, room):
            log.warning(
                "%s stays behind: %d files of %d bytes at most are sent", path, MOST_FILES, MOST_BYTES
            )
            continue
        copy = out / path.relative_to(lease.talker)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        sent.append(copy)
        room -= size
    log.info("%d files, %.1f MB are to be sent back", len(sent), (MOST_IN_ALL - room) / 1e6)
    return sent


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.lease", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--voice", type=Path, default=Path("demo_voice"), help="the checkpoint to go on from")
    parser.add_argument("--bundle", type=Path, required=True, help="the teacher's bundle, packed")
    parser.add_argument("--back", type=Path, required=True, help="folder of what is to be sent back")
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call")
    parser.add_argument("--last", choices=NAMES, default=NAMES[-1], help="last stage of this call")
    parser.add_argument("--hours", type=float, default=Lease.hours, help="of training speech")
    parser.add_argument("--talker-minutes", type=float, default=Lease.minutes, help="of the whole training")
    parser.add_argument("--config", type=Path, default=CONFIG, help="of the talker")
    parser.add_argument("--seed", type=int, default=Lease.seed, help="of the corpus")
    parser.add_argument("--teachers", type=int, default=Lease.teachers, help="processes that speak")
    parser.add_argument("--workers", type=int, default=Lease.workers, help="processes that make batches")
    parser.add_argument("--device", default=Lease.device)
    return parser.parse_args(arguments)


def main() -> int:
    given = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a stage's command is killed with this one
    start_log(given.root / "log.txt")
    lease = Lease(
        root=given.root,
        voice=given.voice,
        bundle=given.bundle,
        hours=given.hours,
        minutes=given.talker_minutes,
        config=given.config,
        seed=given.seed,
        teachers=given.teachers,
        workers=given.workers,
        device=given.device,
    )
    try:
        done = run_call(lease, given.minutes, given.last)
    finally:
        if lease.talker.is_dir():
            send_back(lease, given.back)
    log.info("all is done" if done else "call again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
