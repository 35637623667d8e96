"""NVIDIA's MPS: many small processes run on a GPU side by side instead of in turns (twice as fast: NOTES.md)."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

CONTROL = "nvidia-cuda-mps-control"
DAEMONS = "nvidia-cuda-mps"  # control and server
PATIENCE = 30.0  # seconds until both have ended

log = logging.getLogger(__name__)


@contextmanager
def side_by_side() -> Iterator[None]:
    """Share the machine's GPUs through MPS for the length of the ``with``.

    Without MPS on the machine, or where it runs already, nothing is started or ended. What uses CUDA directly after
    the ``with`` would fail with error 805 while the daemons are ending: they are waited for.
    """
    if shutil.which(CONTROL) is None or shutil.which("pgrep") is None or _running():
        log.info("no MPS of our own is started")
        yield
        return
    subprocess.run([CONTROL, "-d"], check=True)
    try:
        yield
    finally:
        subprocess.run([CONTROL], input=b"quit\n", check=True)
        _await_end()


def _running() -> bool:
    return subprocess.run(["pgrep", DAEMONS], stdout=subprocess.DEVNULL).returncode == 0


def _await_end() -> None:
    until = time.monotonic() + PATIENCE
    while _running():
        if time.monotonic() > until:
            raise RuntimeError(f"{DAEMONS} still runs {PATIENCE:.0f} s after it was told to quit: end it")
        time.sleep(0.2)
