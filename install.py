"""Create a virtual environment and install into it, for ``speak.py`` and the tests.

ComfyUI needs only ``requirements.txt``: if ComfyUI-Manager runs this file, it does nothing.
"""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

STDERR = 2  # stdout is for a program's output, such as audio


def environment_python(path: Path) -> Path:
    return path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def create_environment(path: Path) -> Path:
    """Create a virtual environment unless one with pip exists; return the path of its Python."""
    python = environment_python(path)
    # Not "pip --version": that takes half a second, and speak.py asks before every command.
    if not python.exists() or subprocess.run([str(python), "-c", "import pip"], capture_output=True).returncode:
        venv.EnvBuilder(with_pip=True, clear=True, symlinks=os.name != "nt").create(path)
    return python


def pip_install(python: Path, *arguments: str) -> None:
    """Run ``pip install``, with its progress on stderr; CalledProcessError if it fails."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", *arguments]
    subprocess.run(command, check=True, stdout=STDERR)
