"""Fetch the sources that pip does not install: WordNet (Debian) and Kokoro's voices (npm)."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

WORDNET_PACKAGE = "wordnet-base"
WORDNET_FOLDER = Path("wordnet/usr/share/wordnet")
VOICES_PACKAGE = "kokoro-js@1.2.1"
VOICES_FOLDER = Path("package/voices")


def fetch_sources(folder: Path) -> None:
    """Download and unpack both under ``folder`` with apt-get, dpkg and npm; existing ones are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / WORDNET_FOLDER).is_dir():
        subprocess.run(["apt-get", "download", WORDNET_PACKAGE], cwd=folder, check=True)
        subprocess.run(
            ["dpkg", "-x", _one(folder, f"{WORDNET_PACKAGE}_*.deb").name, "wordnet"], cwd=folder, check=True
        )
    if not (folder / VOICES_FOLDER).is_dir():
        subprocess.run(["npm", "pack", "--silent", VOICES_PACKAGE], cwd=folder, check=True)
        with tarfile.open(_one(folder, "kokoro-js-*.tgz")) as archive:
            archive.extractall(folder, filter="data")


def _one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ValueError(f"{len(found)} files {pattern} in {folder}: need exactly one, remove the others")
    return found[0]
