"""Lone surrogates: half of an emoji, as a cut string has it. No tokenizer and no file can take one."""

from __future__ import annotations

SHOWN_BEFORE = 20  # characters that an error quotes


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can represent the text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_encodable(text: str, name: str) -> str:
    """Return ``text`` if UTF-8 can represent it; raise ValueError, saying where half a character is, if not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        start = error.start
        after = f", after {text[max(0, start - SHOWN_BEFORE) : start]!r}" if start else ""
        raise ValueError(
            f"{name} contains half a character ({text[start]!a}, a broken emoji) at position {start + 1}{after}: "
            "delete it"
        ) from None
    return text


def join_halves(text: str) -> str:
    """Return ``text`` with each pair of surrogates as the character that it stands for; lone ones stay."""
    if is_encodable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
