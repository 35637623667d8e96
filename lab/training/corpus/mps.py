"""NVIDIA's MPS: many small processes run concurrently on a GPU instead of taking turns (twice as fast here)."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

CONTROL = "nvidia-cuda-mps-control"
DAEMONS = "nvidia-cuda-mps"  # control and server
VARIABLES = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
TIMEOUT = 30.0  # seconds to wait for both to exit

log = logging.getLogger(__name__)


@contextmanager
def shared_gpus() -> Iterator[None]:
    """Share the machine's GPUs through MPS inside the ``with``, between processes that are started in it.

    If MPS is missing or already running, nothing is started or stopped. While the daemons shut down, CUDA calls fail
    with error 805, so the end of the ``with`` waits for them. They wait for all their clients: so other programs must
    not find them, and their pipes are in a folder that only this process and its children are told of.
    """
    if shutil.which(CONTROL) is None or shutil.which("pgrep") is None or _running():
        log.info("MPS is not started: it is missing, or already running")
        yield
        return
    with (
        tempfile.TemporaryDirectory(prefix="mps-") as folder,
        mock.patch.dict(os.environ, dict.fromkeys(VARIABLES, folder)),
    ):
        subprocess.run([CONTROL, "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run([CONTROL], input=b"quit\n", check=True)
            _await_end()


def _running() -> bool:
    return subprocess.run(["pgrep", DAEMONS], stdout=subprocess.DEVNULL).returncode == 0


def _await_end() -> None:
    until = time.monotonic() + TIMEOUT
    while _running():
        if time.monotonic() > until:
            raise RuntimeError(f"{DAEMONS} still runs {TIMEOUT:.0f} s after the quit command: stop it")
        time.sleep(0.2)
