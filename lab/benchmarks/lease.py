"""Run commands side by side on the GPUs of a rented machine, each with its own time limit.

    python -m lab.benchmarks.lease lab/benchmarks/plans/one_gpu.json --out OUT --commit COMMIT

A plan is a JSON list of steps in the order in which they matter:

    [{"name": "server", "gpus": [0], "seconds": 260, "arguments": "-m lab.benchmarks.server --out {out} ..."}]

A step starts when no earlier step needs its GPUs, and sees only these. ``arguments`` are Python's; ``{out}`` is the
step's folder ``OUT/name``, ``{commit}`` the commit. Its output goes to ``OUT/name/log.txt``. At its limit it is
interrupted as by Ctrl+C, and killed with its processes if it does not end.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pack

from .origin import add_output

POLL_SECONDS = 0.1
CLOSING_SECONDS = 15.0  # from the interrupt until a step is killed

log = logging.getLogger("lease")


@dataclass(frozen=True)
class Step:
    """One command.

    Args:
        name: of its folder: letters, digits, ``_`` and ``-``.
        gpus: those it uses, by number.
        seconds: how long it may take.
        arguments: Python's, as one line.

    Raises:
        ValueError: for an invalid value.
    """

    name: str
    gpus: tuple[int, ...]
    seconds: float
    arguments: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+", self.name, re.ASCII):
            raise ValueError(f"a step's name is {self.name!r}: use letters, digits, _ and -")
        if not self.gpus or self.seconds <= 0 or not self.arguments:
            raise ValueError(f"step {self.name!r} needs gpus, seconds above 0 and arguments")

    def command(self, out: Path, commit: str) -> list[str]:
        """Return the command, with its folder and the commit filled in."""
        words = shlex.split(self.arguments)
        return [sys.executable, *(word.format(out=out, commit=commit) for word in words)]


def read_plan(path: Path) -> list[Step]:
    """Read the steps of a plan; ValueError if two have the same name, or one is not complete."""
    steps = []
    for entry in json.loads(path.read_text(encoding="utf-8")):
        try:
            steps.append(Step(**{**entry, "gpus": tuple(entry["gpus"])}))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: a step needs name, gpus, seconds and arguments: {error}") from error
    if len({step.name for step in steps}) < len(steps):
        raise ValueError(f"{path}: two steps have the same name")
    return steps


def heed_interrupts() -> None:
    """Let Ctrl+C end this process: background jobs of a shell, and their children, ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children if it is still running."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Running:
    """A running step. Its processes are one group, which can be killed together."""

    def __init__(self, step: Step, out: Path, commit: str):
        self.step = step
        self._began = time.monotonic()
        folder = out / step.name
        folder.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(map(str, step.gpus)), "PYTHONUNBUFFERED": "1"}
        with (folder / "log.txt").open("wb") as printed:
            self._process = subprocess.Popen(
                step.command(folder.resolve(), commit), cwd=pack.ROOT, env=env, stdout=printed,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=heed_interrupts,
            )  # fmt: skip
        log.info("%s: begins on GPU %s", step.name, env["CUDA_VISIBLE_DEVICES"])

    def ended(self) -> bool:
        """Whether the step has ended; stops it at its time limit."""
        if self._process.poll() is None:
            if time.monotonic() < self._began + self.step.seconds:
                return False
            log.warning("%s: its %.0f s are over", self.step.name, self.step.seconds)
            self.stop()
        log.info("%s: ended with %s after %.0f s", self.step.name, self.code, time.monotonic() - self._began)
        return True

    def stop(self) -> None:
        """Interrupt the step; kill it with its processes if it continues."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(CLOSING_SECONDS)
            except subprocess.TimeoutExpired:
                kill_group(self._process)

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.returncode


def startable(pending: Sequence[Step], busy: Iterable[int]) -> list[Step]:
    """Return the steps none of whose GPUs is busy or needed by a step before them."""
    taken, found = set(busy), []
    for step in pending:
        if taken.isdisjoint(step.gpus):
            found.append(step)
        taken.update(step.gpus)
    return found


def run_plan(steps: Sequence[Step], out: Path, commit: str) -> dict[str, int | None]:
    """Run all steps; return their exit codes by name. If interrupted, stop all of them."""
    pending, running, codes = list(steps), list[Running](), dict[str, int | None]()
    try:
        while pending or running:
            over = [one for one in running if one.ended()]
            codes |= {one.step.name: one.code for one in over}
            running = [one for one in running if one not in over]
            for step in startable(pending, [gpu for one in running for gpu in one.step.gpus]):
                pending.remove(step)
                running.append(Running(step, out, commit))
            time.sleep(POLL_SECONDS)
    finally:
        for one in running:
            one.stop()
    return codes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.lease", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plan", type=Path)
    add_output(parser)
    given = parser.parse_args()
    if given.out is None:
        parser.error("--out is missing: the folder for what the steps print and measure")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    return int(any(run_plan(read_plan(given.plan), given.out, given.commit).values()))


if __name__ == "__main__":
    sys.exit(main())
