"""Commands that are run one after another, each until it has made its result."""

from __future__ import annotations

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

STALL_SECONDS = (
    240.0  # without growth of its log, after which a training counts as hung: compiling takes at most 125
)
POLL_SECONDS = 0.5

log = logging.getLogger("training")


@dataclass(frozen=True)
class Step:
    """A command, and the file that marks it as done.

    Args:
        arguments: arguments of ``python -m lab.training.``.
        made: its result; touched when the command has succeeded.
        careful: additional arguments for a second try, after the first failed or its ``log`` stopped growing.
        log: a file that grows while the command makes progress.
        state: a file that a second try can resume from.
        minutes: its time limit; a second try gets what is left of it.
        limit: the argument that names the limit.
    """

    arguments: tuple[str, ...]
    made: Path
    careful: tuple[str, ...] = ()
    log: Path | None = None
    state: Path | None = None
    minutes: float = math.inf
    limit: str = "--minutes"


def run(todo: Sequence[Step]) -> None:
    """Run the steps that are not done; raises CalledProcessError if one fails, after its second try if it has one."""
    for step in todo:
        if step.made.exists():
            log.info("done before: %s", step.arguments[0])
            continue
        attempt(step)
        step.made.touch()


def attempt(step: Step, until: float = math.inf) -> None:
    """Run a step, twice if it fails and has a second try; raises CalledProcessError.

    Args:
        step: what to run.
        until: the time (``time.monotonic``) at which its command is killed.
    """
    started = time.monotonic()
    try:
        run_step(step, step.arguments, until)
    except subprocess.CalledProcessError as error:
        if not step.careful or time.monotonic() >= until:
            raise
        log.warning("%s; trying again with %s", error, " ".join(step.careful))
        run_step(step, second_try(step, (time.monotonic() - started) / 60), until)
    log.info("%s: %.0f s", step.arguments[0], time.monotonic() - started)


def second_try(step: Step, spent: float) -> tuple[str, ...]:
    """Return the arguments of a second try, ``spent`` minutes after the first started."""
    arguments = [*step.arguments, *step.careful]
    if step.state and step.state.is_file():
        arguments.append("--resume")
    if step.minutes < math.inf:
        arguments[arguments.index(step.limit) + 1] = str(max(0.1, step.minutes - spent))
    return tuple(arguments)


def run_step(step: Step, arguments: Sequence[str], until: float = math.inf) -> None:
    """Run a step's command to its end; raises CalledProcessError if it fails or is killed."""
    module, *rest = arguments
    log.info("python -m lab.training.%s %s", module, " ".join(rest))
    watch([sys.executable, "-m", f"lab.training.{module}", *rest], step.log, until)


def watch(command: Sequence[str], growing: Path | None, until: float = math.inf) -> None:
    """Run a command; kill it if the file ``growing`` stops growing, or at the time ``until``.

    Raises:
        CalledProcessError: it failed, or was killed.
    """
    process = subprocess.Popen(command, start_new_session=True)  # its own process group, to be killed as one
    size, moved = -1, time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
            if time.monotonic() >= until:
                log.warning("its time is over: killing %s", " ".join(command))
                break
            now = growing.stat().st_size if growing and growing.exists() else 0
            if now != size:
                size, moved = now, time.monotonic()
            elif growing and time.monotonic() - moved > STALL_SECONDS:
                log.warning("%s has not grown for %.0f s: killing its command", growing, STALL_SECONDS)
                break
    finally:
        kill_group(process)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children if it is still running."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
