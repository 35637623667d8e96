"""Which tokens of a text each of its words is, as the guard of words follows them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .written import CHARACTER

SAID = re.compile(r"[^\W_](?:\S*[^\W_])?")  # a word between spaces, without the punctuation around it
UNSPACED = re.compile(f"[{CHARACTER}]")


def said_tokens(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the tokens of each word of a text: the first, and the one after its last.

    None of a text with Chinese or Japanese characters, which has no spaces between its words.

    Args:
        text: as it is spoken.
        spans: the characters of each token.
    """
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
