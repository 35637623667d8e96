"""Decode users' text files, and characters in two halves; and the characters that no name or file can have."""

import codecs
import re
from pathlib import Path

# C0 and C1 controls, line separators, directions of writing, and halves of characters, which no file can take.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MOST_BYTES = 2_000_000  # of a file
UTF_16, UTF_32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
PLAIN = re.compile(rb"[A-Za-z0-9 .,:;!?'\"()\-\r\n\t]+")


def join_halves(text: str) -> str:
    """Return ``text`` with surrogate pairs as characters; lone ones stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def read_text_file(path: Path, most_bytes: int = MOST_BYTES, advice: str = "split it into several files") -> str:
    """Return the text of a file, with line breaks as new lines, perhaps empty; ValueError names the file."""
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read ({error.strerror}): choose another file") from error
    if len(data) > most_bytes:
        raise ValueError(f"{path.name} is larger than {most_bytes / 1e6:g} MB: {advice}")
    return "\n".join(decode(data, path.name).replace("\r\n", "\n").split("\r"))


def decode(data: bytes, name: str) -> str:
    """Decode the bytes of the file ``name``; raise ValueError if they are not text."""
    # By the byte order mark; that of UTF-32 begins like that of UTF-16.
    encoding = "utf-32" if data.startswith(UTF_32) else "utf-16" if data.startswith(UTF_16) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not text in UTF-8 or UTF-16: save it as UTF-8") from error
    if encoding == "utf-16" and _is_misread(data, text):
        raise ValueError(f"{name} begins as UTF-16 and goes on as something else: save it as UTF-8")
    if "\0" in text:
        raise ValueError(f"{name} is not a text file: save it as plain text, in UTF-8")
    return text


def _is_misread(data: bytes, text: str) -> bool:
    """Return whether a file with UTF-16's mark is otherwise ASCII, with or without the other byte order."""
    # Two ASCII letters decode to one Chinese character, mostly a rare one: text within GB 2312 is real Chinese.
    behind = data[2:]
    other = "utf-16-be" if data.startswith(codecs.BOM_UTF16_LE) else "utf-16-le"
    swapped = behind.decode(other, "replace").encode("utf-8")
    common = text.encode("gb2312", "ignore").decode("gb2312") == text
    return bool(PLAIN.fullmatch(swapped) or (PLAIN.fullmatch(behind) and not common))
