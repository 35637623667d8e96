"""Write out an amount of money that stands by itself, as the library does: that takes 0.1 s for each of a list."""

from __future__ import annotations

import re

from .english.words import small_number

WHOLE = r"0|[1-9]\d{0,5}|[1-9]\d{0,2},\d{3}"
AMOUNT = re.compile(rf"([$\u00a3\u20ac])({WHOLE})(?:\.(\d\d))?([,;]?)", re.ASCII)
UNITS = {
    "$": (("dollar", "dollars"), ("cent", "cents")),
    "\u00a3": (("pound", "pounds"), ("penny", "pence")),
    "\u20ac": (("euro", "euros"), ("cent", "cents")),
}


def write_amount(text: str) -> str | None:
    """Return an amount below a million in words, with the comma or semicolon after it; None for another text."""
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
