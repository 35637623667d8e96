"""Checks for file names that users type: no name may leave its folder or fail on another operating system."""

from __future__ import annotations

from pathlib import Path

from ..morph.text.names import check_name

__all__ = ["check_name", "confine"]


def confine(folder: Path, file_name: str) -> Path:
    """Return the path of a file directly in ``folder``; ValueError if it resolves elsewhere, also through a link."""
    path = folder / file_name
    if path.resolve().parent != folder.resolve():
        raise ValueError(f"{file_name!r} is outside the folder {folder.name}: choose another name")
    return path
