"""Replace signs by plain characters: quotes, dashes, fractions, powers, spaces in numbers; drop emoji.

NFKC would change the numbers of some signs: 1½ would be 11/2, and 10² 102. So these are written out first.
"""

import re
import unicodedata

READABLE = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\xab": '"', "\xbb": '"', "\u2026": "..."}
    | {"\u2014": ", ", "\u2013": "-", "\u2010": "-", "\u2212": "-", "\u2044": "/", "\u2032": "'"}
)
SOUNDED_SIGNS = "\u00b0\n\t"
FRACTION_BEHIND_NUMBER = re.compile("(?<=\\d)(?=[\xbc-\xbe\u2150-\u215e\u2189])")
SPACES_IN_NUMBERS = "\xa0\u2007\u2009\u202f"
# Three digits after each space: 10 000, but not the telephone number 555 123 4567. Decimals have a comma: 10 000,50.
SPACED_NUMBER = re.compile(
    rf"(?<![\d.,])(\d{{1,3}}(?:[{SPACES_IN_NUMBERS}]\d{{3}}){{1,5}})(?:,(\d{{1,2}})(?![,\d]))?"
    rf"(?!\d|[{SPACES_IN_NUMBERS}]\d)"
)
# Behind a number, a bracket or the name of a variable; m² is a unit, and the library's.
POWER = re.compile("(?:(?<=[\\d)])|(?<=\\b[A-Za-ln-z])|(?<=\\bmc))[\u207b\u2070\xb9\xb2\xb3\u2074-\u2079]+")
POWERS = {"2": " squared", "3": " cubed"}
# Marks of trade, which would become letters; variants and skin tones of emoji, and the frame of a keycap.
SILENT = re.compile("[\u2120\u2122\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]")


def plain(text: str) -> str:
    """Return a text with plain quotes, dashes and spaces, fractions as 1/2, powers in words, and without emoji."""
    if text.isascii() and text.isprintable():
        return text
    text = SPACED_NUMBER.sub(_spaced, text)
    text = FRACTION_BEHIND_NUMBER.sub(" ", text)
    text = POWER.sub(_power, text).replace("\u2116", "No. ")  # its composition has no dot
    text = unicodedata.normalize("NFKC", SILENT.sub("", text)).translate(READABLE)
    spaced = (" " if char.isspace() and char not in SOUNDED_SIGNS else char for char in text)
    silent = ("C", "So")  # categories
    return "".join(
        char for char in spaced if char in SOUNDED_SIGNS or not unicodedata.category(char).startswith(silent)
    )


def _spaced(match: re.Match[str]) -> str:
    thousands = ",".join(re.findall(r"\d+", match[1]))
    return f"{thousands}.{match[2]}" if match[2] else thousands


def _power(match: re.Match[str]) -> str:
    exponent = unicodedata.normalize("NFKC", match[0]).replace("\u2212", "minus ")
    said = POWERS.get(exponent, f" to the power of {exponent}")
    behind = match.string[match.end() : match.end() + 1]
    return f"{said} " if behind.isalnum() else said
