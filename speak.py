"""Speak through the hybrid crossbar decoder, without ComfyUI.

    python speak.py "Hello, this is the hybrid crossbar decoder speaking."
    python speak.py clone recording.wav --name Anna
    python speak.py --help

Needs only Python 3.10 or later: the first run creates an environment in ``.envs/speak`` and installs
torch and this pack's requirements into it. Without ``--checkpoint`` the demo voice in the pack speaks:
small, English only. It has four speakers (``--speaker michael``), and clones (``--reference recording.wav``).

The commands are those of ``serve/cli.py``; any other first word is a text to speak. The path of the file
goes to stdout and everything else to stderr. The exit code is 0, 1 if the environment cannot be created, 2 for bad
input, and 130 when interrupted.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import install
import pack

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".envs" / "speak"
TORCH = "torch==2.13.0"  # the version that the tests run; ComfyUI users keep their own


def run_in_environment(words: Sequence[str]) -> int:
    try:
        with one_at_a_time(ENVIRONMENT.parent):
            python = prepare_environment()
            if words[:1] == ["serve"]:
                add_server(python)
    except subprocess.CalledProcessError:
        why = ", see the message above: check the connection, then run the same command again"
    except OSError as error:
        fix = "put the pack where you may write and there is room, or use --here in a Python that has its requirements"
        why = f" ({error.strerror or error}): {fix}"
    else:
        return wait([str(python), __file__, "--here", *words])
    note(f"speak.py: the environment {ENVIRONMENT} cannot be made{why}")
    return 1


def wait(command: Sequence[str]) -> int:
    """Wait for a command however often it is interrupted: it gets the interrupts too, and handles them."""
    with subprocess.Popen(command) as process:
        before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())  # as a service is stopped
        try:
            while process.poll() is None:
                with suppress(KeyboardInterrupt):
                    process.wait()
        finally:
            signal.signal(signal.SIGTERM, before)
    code = process.returncode
    return code if code >= 0 else 128 - code  # a signal's number, as shells do


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold the folder of the environment; wait while another first run has it, and say so once."""
    from qwen3_tts_morph.serve.terminal.folders import exclusive

    waits = itertools.count()

    def wait_for_it(_: Path) -> None:
        if next(waits) == 0:
            note("another run prepares the environment: waiting for it")
        time.sleep(0.5)

    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder, wait_for_it):
        yield


def prepare_environment() -> Path:
    python = install.create_environment(ENVIRONMENT)
    ready = ENVIRONMENT / "ready"
    if not ready.exists() or ready.read_text(encoding="utf-8") != wanted():
        note("first run: installing torch and the pack's requirements, a few minutes:")
        install.pip_install(python, TORCH)
        install.pip_install(python, "-r", str(ROOT / "requirements.txt"))
        ready.write_text(wanted(), encoding="utf-8")
    return python


def add_server(python: Path) -> None:
    from qwen3_tts_morph.serve.process.server import PACKAGES

    ready, needed = ENVIRONMENT / "ready-serve", "\n".join(PACKAGES.values())
    if not ready.exists() or ready.read_text(encoding="utf-8") != needed:
        note("first run of the server: installing what it needs")
        install.pip_install(python, *PACKAGES.values())
        ready.write_text(needed, encoding="utf-8")


def wanted() -> str:
    """Return the requirements of a ready environment: a new version of the pack may need more."""
    return "\n".join([TORCH, (ROOT / "requirements.txt").read_text(encoding="utf-8")])


def note(text: str) -> None:
    from qwen3_tts_morph.serve.terminal.console import say

    say(text, sys.stderr)


def main() -> int:
    pack.load()
    from qwen3_tts_morph.serve.cli import main as run

    return run(sys.argv[1:], os.path.basename(__file__), run_in_environment)


if __name__ == "__main__":
    sys.exit(main())
