"""Cut lists of figures into items, and write out amounts of money: the library takes 0.1 s for each."""

from __future__ import annotations

import re

from .english.words import small_number

WORD = re.compile(r"\S+")
NUMBER = r"\d+(?:\.\d+)?"
MONEY = r"[$\u00a3\u20ac](?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
MARKED = rf"\d{{1,2}}/\d{{1,2}}/\d{{4}}|\d{{1,2}}:\d\d|{MONEY}|{NUMBER}%"
ITEM = re.compile(rf"(?:{MARKED})[,;]?|{NUMBER}[,;]", re.ASCII)
# The first items are not cut apart: what is before a list may belong to the first one, as in "May 5, 2020, 2021".
FIRST_ITEMS = 2
FIRST_AMOUNTS = 1
WHOLE = r"0|[1-9]\d{0,5}|[1-9]\d{0,2},\d{3}"
AMOUNT = re.compile(rf"([$\u00a3\u20ac])({WHOLE})(?:\.(\d\d))?([,;]?)", re.ASCII)
UNITS = {
    "$": (("dollar", "dollars"), ("cent", "cents")),
    "\u00a3": (("pound", "pounds"), ("penny", "pence")),
    "\u20ac": (("euro", "euros"), ("cent", "cents")),
}


def cut_lists(text: str) -> list[str]:
    """Return a text in parts, without the space between them: cut before each item of a list but the first ones."""
    # An item is a date, a time, an amount, a percentage, or a number with a comma or a semicolon.
    cuts, items = [0], 0
    for word in WORD.finditer(text):
        is_item = ITEM.fullmatch(word[0]) is not None
        if is_item and items >= (FIRST_AMOUNTS if word[0].startswith(tuple(UNITS)) else FIRST_ITEMS):
            cuts.append(word.start())
        items = items + 1 if is_item else 0
    return [text[start:end].rstrip() for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def write_amount(text: str) -> str | None:
    """Return an amount below a million in words, with its comma or semicolon; None for another text."""
    found = AMOUNT.fullmatch(text)
    if found is None:
        return None
    sign, whole, part, stop = found.groups()
    counts = (int(whole.replace(",", "")), int(part or 0))
    said = [_counted(*one) for one in zip(counts, UNITS[sign], strict=True) if one[0]]
    return " ".join(said or [_counted(0, UNITS[sign][0])]) + stop


def _counted(number: int, names: tuple[str, str]) -> str:
    return f"{in_words(number)} {names[number != 1]}"


def in_words(number: int) -> str:
    """Return a number below a million in words: 1,204 "one thousand two hundred and four"."""
    thousands, rest = divmod(number, 1000)
    hundreds, last = divmod(rest, 100)
    words = [f"{in_words(thousands).replace(' and ', ' ')} thousand"] if thousands else []
    words += [f"{small_number(hundreds)} hundred"] if hundreds else []
    if words and last:
        words.append("and")
    return " ".join([*words, small_number(last)] if last or not words else words)
