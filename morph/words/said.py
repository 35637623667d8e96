"""The tokens of each word of a text, for the word guard."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .written import CHARACTER

SAID = re.compile(r"[^\W_](?:\S*[^\W_])?")  # a word between spaces, without the punctuation around it
UNSPACED = re.compile(f"[{CHARACTER}]")


def said_tokens(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the first token of each word and the one after its last, from the characters of each token."""
    # A text with Chinese or Japanese characters has none, as it has no spaces between words.
    if UNSPACED.search(text):
        return []
    heard = [index for index, (begin, end) in enumerate(spans) if text[begin:end].strip()]
    words, after = [], 0  # the first token that is not before the word
    for match in SAID.finditer(text):
        while after < len(heard) and spans[heard[after]][1] <= match.start():
            after += 1
        last = after
        while last < len(heard) and spans[heard[last]][0] < match.end():
            last += 1
        if last > after:
            words.append((heard[after], heard[last - 1] + 1))
    return words
