"""Which tokens of a text each of its words is."""

from __future__ import annotations

import re
from typing import Any

SAID = re.compile(r"[^\W_](?:\S*[^\W_])?")  # a word between spaces, without the punctuation around it


def said_tokens(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """Return the tokens of each word of a text: the first, and the one after its last.

    ``tokenizer``: of the ``tokenizers`` library, the checkpoint's.
    """
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    words = []
    for match in SAID.finditer(text):
        own = [
            index
            for index, (begin, end) in enumerate(offsets)
            if begin < match.end() and end > match.start() and text[begin:end].strip()
        ]
        words.append((own[0], own[-1] + 1))
    return words
