"""Normalize numbers in other languages than English with num2words, if it is installed."""

# Whole numbers and decimals, with the language's separators, and percent; dates, times and telephone numbers stay.

import re
from collections.abc import Callable

from .lists import table

LANGUAGES = table("other_numbers.languages")
PERCENT = table("other_numbers.percent")
# All of these languages have a decimal comma. Longer numbers are identifiers, and are read digit by digit.
LONGEST = 15  # digits
NUMBER = re.compile(
    r"(?<![\w.,:/])(?<!\d-)(?P<minus>[-\u2212])?(?P<whole>\d{1,3}(?:[.\u00a0\u202f' ]\d{3})+|\d+)(?:,(?P<part>\d+))?"
    r"(?P<percent>[ \u00a0\u202f]?%)?(?![\w%]|[.,:/-]\d)",
    re.ASCII,
)
MISSING = "numbers were spoken as they are: num2words is not installed (run python -m pip install num2words)"


def write_numbers(text: str, language: str) -> tuple[str, list[str]]:
    """Return a text with its numbers as words, and notes on failures; ``language`` is a key of LANGUAGES."""
    if not NUMBER.search(text):
        return text, []
    try:
        from num2words import num2words
    except ImportError:
        return text, [MISSING]
    return NUMBER.sub(lambda match: _in_words(match, language, num2words), text), []


def _in_words(match: re.Match[str], language: str, say: Callable[..., str]) -> str:
    digits, part = re.sub(r"\D", "", match["whole"]), match["part"] or ""
    if len(digits) + len(part) > LONGEST or (digits[0] == "0" and len(digits) > 1):
        return match[0]
    number = float(f"{digits}.{part}") if part else int(digits)
    words = [say(-number if match["minus"] else number, lang=language)]
    return " ".join([*words, PERCENT[language]] if match["percent"] else words)
