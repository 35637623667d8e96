"""Cut lists of figures into their items, which are read by themselves as they are read in the list."""

from __future__ import annotations

import re

WORD = re.compile(r"\S+")
NUMBER = r"\d+(?:\.\d+)?"
MONEY = r"[$\u00a3\u20ac](?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
MARKED = rf"\d{{1,2}}/\d{{1,2}}/\d{{4}}|\d{{1,2}}:\d\d|{MONEY}|{NUMBER}%"
ITEM = re.compile(rf"(?:{MARKED})[,;]?|{NUMBER}[,;]", re.ASCII)
# The first items are not cut apart: what is before a list may belong to the first one, as in "May 5, 2020, 2021".
FIRST_ITEMS = 2
FIRST_AMOUNTS = 1
SIGNS = ("$", "\u00a3", "\u20ac")


def cut_lists(text: str) -> list[str]:
    """Return a text in parts, without the space between them: cut before each item of a list but the first ones.

    An item is a date, a time, an amount, a percentage, or a number with a comma or a semicolon.
    """
    cuts, items = [0], 0
    for word in WORD.finditer(text):
        is_item = ITEM.fullmatch(word[0]) is not None
        if is_item and items >= (FIRST_AMOUNTS if word[0].startswith(SIGNS) else FIRST_ITEMS):
            cuts.append(word.start())
        items = items + 1 if is_item else 0
    return [text[start:end].rstrip() for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]
