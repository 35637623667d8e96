"""Check text for characters, such as lone surrogates, that no name or file can have."""

import re

# C0 and C1 controls, line separators, directions of writing, and halves of characters, which no file can take.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
HALF = re.compile("[\ud800-\udfff]")  # UTF-8 cannot represent it
SHOWN_BEFORE = 20  # characters that an error quotes


def is_encodable(text: str) -> bool:
    return HALF.search(text) is None


def check_encodable(text: str, name: str) -> str:
    """Return ``text`` if UTF-8 can represent it; raise ValueError with the position of a lone surrogate if not."""
    if half := HALF.search(text):
        start = half.start()
        after = f", after {text[max(0, start - SHOWN_BEFORE) : start]!r}" if start else ""
        raise ValueError(
            f"{name} contains half a character ({half[0]!a}, a broken emoji) at position {start + 1}{after}: delete it"
        )
    return text


def join_halves(text: str) -> str:
    """Return ``text`` with surrogate pairs as characters; lone ones stay."""
    if is_encodable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
