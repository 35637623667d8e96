"""Compare names that users type, and check that they are safe file names on every system."""

import logging
import os
import unicodedata
from pathlib import Path

from .split import is_encodable

log = logging.getLogger(__name__)

MAX_CHARACTERS = 80
MAX_BYTES = 200  # file systems allow 255, including the suffix
PUNCTUATION = " -_."
OF_VOICES = PUNCTUATION + "()"  # a mood is in parentheses: Anna (angry)
RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(10))}


def name_key(name: str) -> str:
    """Return a key, equal for names that look alike, in any case or encoding; "" if nothing is visible."""
    seen = "".join(char for char in name if unicodedata.category(char) != "Cf")
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", seen).casefold())
    return " ".join(folded.split())


def check_name(name: str, signs: str = PUNCTUATION) -> str:
    """Return a file name (without suffix), stripped and NFC-composed; raise ValueError if it is unsafe anywhere."""
    name = unicodedata.normalize("NFC", name.strip())
    if not name:
        raise ValueError("name is empty: type a name")
    if len(name) > MAX_CHARACTERS:
        raise ValueError(f"name is longer than {MAX_CHARACTERS} characters: shorten it")
    foreign = sorted({char for index, char in enumerate(name) if not _allowed(char, name[:index], signs)})
    if foreign:
        shown, known = " ".join(repr(char) for char in foreign), " ".join(signs.strip())
        raise ValueError(f"name {name!r} contains {shown}: use only letters, digits, spaces and {known}")
    if len(name.encode()) > MAX_BYTES:
        raise ValueError(f"name is longer than {MAX_BYTES} bytes in UTF-8: shorten it")
    if name.startswith(".") or name.endswith("."):
        raise ValueError(f"name {name!r} starts or ends with a dot: remove it")
    # Windows treats COM1.txt, and COM with a superscript 1, as the port.
    if unicodedata.normalize("NFKC", name.split(".")[0]).strip().upper() in RESERVED:
        raise ValueError(f"name {name!r} is reserved on Windows: choose another")
    return name


def _allowed(char: str, before: str, signs: str) -> bool:
    """Allow letters, digits, these signs, and combining marks (Thai, Hindi, accents) after a letter or a mark."""
    if unicodedata.category(char).startswith("M"):
        return bool(before) and before[-1] not in signs
    return char.isalnum() or char in signs


def file_names(folder: Path) -> list[str]:
    """Return a folder's sorted file names, without names that are not Unicode; log a warning if that fails."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:  # it is created when the first file is saved
        return []
    except OSError as error:
        log.warning("cannot list the files in %s: %s", folder, error)
        return []
    return sorted(name for name in names if is_encodable(name))


def confine(folder: Path, file_name: str) -> Path:
    """Return the path of a file directly in ``folder``; raise ValueError if it resolves elsewhere (links, too)."""
    path = folder / file_name
    if path.resolve().parent != folder.resolve():
        raise ValueError(f"{file_name!r} is outside the folder {folder.name}: choose another name")
    return path
