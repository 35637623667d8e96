"""Figures that stand alone: long and continental numbers, versions, ordinals, models, formulas."""

from __future__ import annotations

import re

from .letters import spell
from .rules import Rule
from .words import DIGITS, in_pairs, small_number

# 1.000,50: a continental number has a comma or another point behind the thousands, or is a price of whole thousands.
CONTINENTAL = re.compile(
    r"(?<![\w.,])(?:(?<=\u20ac)\d{1,3}(?:\.\d{3})*\.000|"
    r"\d{1,3}(?:\.\d{3})+(?:,\d{1,2}|(?<=\.000)(?= ?(?:\u20ac|[Ee]uros?\b|EUR\b)))|"
    r"\d{1,3}\.\d{3}\.\d{3}(?:\.\d{3}\.\d{3})?)(?!\w|[.,]\d)"
)
DECIMAL_UNITS = "kg|g|mg|km|m|cm|mm|l|L|ml|%|[Ee]uros?|EUR|\u00b0C|kW|kWh|V|GB|MB|percent"
COMMA_DECIMAL = re.compile(rf"(?<![\w.,])(\d{{1,4}}),(\d{{1,2}})(?= ?(?:{DECIMAL_UNITS})(?!\w))")  # 3,5 kg
EURO_PRICE = re.compile(r"(?<![\w.,])(\d{1,4}),(\d\d) ?\u20ac(?!\w)")  # 850,00 and the euro's sign
OTHER_POINTS = str.maketrans(".,", ",.")
# The library reads five digits one by one. Round numbers, and those before a plural, count something.
LONG_NUMBER = re.compile(
    r"(?<![\w.,:#/+-])(?<!\d )[1-9]\d{4,8}(?![\w/+-]|[.,:]\d| \d)(?:(?<=00)|(?= (?:[a-z]{3,40}s|people)\b))"
)
# What names something by a number, and ZIP codes behind a state: NY 10000.
IDENTIFIER = re.compile(
    r"\b(?:[A-Z]{2,}|(?i:account|apartment|box|build|bus|call|card|code|dial|error|extension|fax|flight|highway|invoice|"
    r"item|line|model|number|order|part|password|phone|pin|port|room|route|serial|suite|tel|ticket|version|zip))"
    r"\W{1,3}(?:(?:is|was|no|number)\W{1,3})?\Z"
)
LONGEST_NAME = 40  # characters before a number, as far as such a word is looked for
VERSION = re.compile(r"(?<![\d.])(\d+)\.(\d+)\.(\d+)(?!\.?\d)")
NAMED_VERSION = re.compile(r"(?<![\w./@:])([A-Za-z]+)(\d+)\.(\d+)(?![\w/@]|\.\w)")  # Qwen3.5
ORDINAL_HYPHEN = re.compile(r"(?<=\d(?:st|nd|rd|th))-(?=[A-Za-z\s])")  # 20th-century, 18th- and
BEFORE_ORDINAL = re.compile(r"(?<=[a-z])(?<!\d[a-z]{2})-(?=\d{1,3}(?:st|nd|rd|th)\b)")  # mid-20th
HASH = re.compile(r"(?<![\w&#])(?:#|\bNo\.? ?#)(?=\d)")  # #1
DIGIT_CODE = re.compile(r"(?<![\w.,])00([1-9])\b(?![.,:]\d)")  # 007
# Flight 370, Room 101: said as years are.
NAMED_NUMBER = re.compile(
    r"\b((?:Boeing|Airbus|Porsche|[Ff]light|[Hh]ighway|Interstate|[Rr]oute|Area|Levi's|[Rr]oom|[Ss]uite) "
    r"(?:[A-Z]{1,2} ?)?)([1-9]\d\d\d?)\b(?![-.,]\d)"
)
MODEL = re.compile(r"(?<![\w.,/-])([A-Z])-?([1-9]\d\d)\b(?![-.,/:]\d)")  # A380, I-405
RESOLUTION = re.compile(r"\b(\d{3,4})([pi])\b")  # 1080p
ELEMENTS = "Al|Ag|Ar|Au|Ba|Br|Ca|Cl|Cr|Cu|Fe|He|Hg|Li|Mg|Mn|Na|Ne|Ni|Pb|Si|Sn|Ti|Zn|B|C|F|H|I|K|N|O|P|S|U"
FORMULA = re.compile(rf"\b(?=[A-Za-z]{{1,6}}\d)(?:(?:{ELEMENTS})\d{{0,2}}){{2,8}}\b(?!\.\d)")
ELEMENT = re.compile(r"([A-Z][a-z]?)(\d*)")
RETIREMENT = re.compile(r"\b(401|403|501)\(?([a-z])\)?(?:\((\d)\))?(?!\w)")  # 401(k)


def _long_number(match: re.Match[str]) -> str:
    """Return a number of five or more digits with commas, so that it is read as one, unless it is a name."""
    before = match.string[max(0, match.start() - LONGEST_NAME) : match.start()]
    return match[0] if IDENTIFIER.search(before) else f"{int(match[0]):,}"


def _continental(match: re.Match[str]) -> str:
    return match[0].removesuffix(",00").translate(OTHER_POINTS)


def _version(match: re.Match[str]) -> str:
    """Return a version's number; a date (17.4.2024) is left to the library."""
    is_date = len(match[3]) == 4 and int(match[1][:3]) <= 31 and int(match[2][:3]) <= 12
    return match[0] if is_date else " point ".join(match.groups())


def _resolution(match: re.Match[str]) -> str:
    return f"{in_pairs(match[1])} {spell(match[2].upper())}"


def _formula(match: re.Match[str]) -> str:
    """Return a formula letter by letter: H2SO4 "aitch two ess oh four"."""
    said = []
    for symbol, count in ELEMENT.findall(match[0]):
        said += [spell(symbol.upper())] + ([small_number(int(count))] if count else [])
    return " ".join(said)


def _retirement(match: re.Match[str]) -> str:
    return " ".join(
        [in_pairs(match[1]), spell(match[2].upper()), *([DIGITS[int(match[3])]] if match[3] else [])]
    )


RULES: tuple[Rule, ...] = (
    (HASH, "number "),
    (RETIREMENT, _retirement),
    (DIGIT_CODE, lambda match: f"double oh {DIGITS[int(match[1])]}"),
    (RESOLUTION, _resolution),
    (FORMULA, _formula),
    (CONTINENTAL, _continental),
    (EURO_PRICE, lambda match: f"\u20ac{match[1]}" + (f".{match[2]}" if int(match[2]) else "")),
    (COMMA_DECIMAL, r"\1.\2"),
    (VERSION, _version),
    (NAMED_VERSION, r"\1 \2 point \3"),
    (BEFORE_ORDINAL, " "),
    (ORDINAL_HYPHEN, " "),
    (NAMED_NUMBER, lambda match: match[1] + in_pairs(match[2])),
    (MODEL, lambda match: f"{match[1]} {in_pairs(match[2])}"),
)
LONG_NUMBERS: tuple[Rule, ...] = ((LONG_NUMBER, _long_number),)
