"""Names that users give to files: checked, so that no name leaves its folder or fails on another system."""

from __future__ import annotations

import unicodedata
from pathlib import Path

MAX_CHARACTERS = 80
MAX_BYTES = 200  # file systems allow 255 with the suffix
PUNCTUATION = " -_."
RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(10))}


def check_name(name: str) -> str:
    """Give a file name (without suffix) back, stripped and composed (NFC), when it is safe everywhere.

    Raises:
        ValueError: when it is empty, too long, reserved, begins or ends with a dot, or holds other characters.
    """
    name = unicodedata.normalize("NFC", name.strip())
    if not name:
        raise ValueError("name is empty: type a name")
    if len(name) > MAX_CHARACTERS:
        raise ValueError(f"name is longer than {MAX_CHARACTERS} characters: shorten it")
    foreign = sorted({char for place, char in enumerate(name) if not _allowed(char, name[:place])})
    if foreign:
        shown = " ".join(repr(char) for char in foreign)
        raise ValueError(f"name {name!r} holds {shown}: use letters, digits, spaces and - _ . only")
    if len(name.encode()) > MAX_BYTES:
        raise ValueError(f"name is longer than {MAX_BYTES} bytes in UTF-8: shorten it")
    if name.startswith(".") or name.endswith("."):
        raise ValueError(f"name {name!r} starts or ends with a dot: leave it out")
    # Windows takes COM1.txt, and COM with a superscript 1, for the port.
    if unicodedata.normalize("NFKC", name.split(".")[0]).strip().upper() in RESERVED:
        raise ValueError(f"name {name!r} is reserved on Windows: choose another")
    return name


def _allowed(char: str, before: str) -> bool:
    """Letters, digits, some punctuation, and marks (as of Thai, Hindi or an accent) that follow a letter or a mark."""
    if unicodedata.category(char).startswith("M"):
        return bool(before) and before[-1] not in PUNCTUATION
    return char.isalnum() or char in PUNCTUATION


def confine(folder: Path, file_name: str) -> Path:
    """The path of a file in ``folder`` itself; ValueError when it lies elsewhere (through a link, too)."""
    path = folder / file_name
    if path.resolve().parent != folder.resolve():
        raise ValueError(f"{file_name!r} lies outside {folder.name}: choose another name")
    return path
