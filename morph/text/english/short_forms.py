"""Abbreviations with dots and slashes: titles, streets, references, units of recipes, days and months."""

import re

from ..lists import table
from .rules import Rule, alternatives, like, rule, text_before

MONTHS = tuple(
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)
SHORT_MONTHS = {month[:3]: month for month in MONTHS} | {"Sept": "September"}
SHORT_DAYS = table("short_forms.short_days")
CALENDAR = SHORT_DAYS | SHORT_MONTHS
A_MONTH = alternatives(set(SHORT_MONTHS) - {"May"})
A_DAY = alternatives(SHORT_DAYS)
# May-June, Monday-Friday
FULL_SPAN = re.compile(
    rf"\b({'|'.join(MONTHS)}|[MTWFS][a-z]{{2,5}}day)-(?=(?:{'|'.join(MONTHS)}|[MTWFS][a-z]{{2,5}}day)\b)"
)
SHORT_DAY = re.compile(
    rf"\b(?:({A_DAY})(?:\.(?=,? [A-Za-z\d])|(?=,? (?:\d|(?:{alternatives(MONTHS)}|{alternatives(SHORT_MONTHS)})\b)))|"
    r"(Mon|Tues?|Wed|Thur?s?|Fri)\.(?=\s*\Z|[,;:)])|"
    r"(?<=Sat\. and )(Sun)\b\.?)"
)
BEFORE_NUMBERS = table("short_forms.before_numbers")
# Abbreviations that are no words and need no dot.
PLAIN_BEFORE_NUMBERS = "nos|pp|paras?|sect|qty|vols?|figs?|eqs?|ext|apt|rm|hwy|rte|approx|bldg|ste|ver"
TITLES = table("short_forms.titles")
# British ones have no dot: Mr Lee.
TITLE = re.compile(rf"\b(?:({alternatives(TITLES)})\. |(Mr|Mrs|Ms|Dr|Prof|Mt|Sgt|Capt|St) )(?=[A-Z])")
STREETS = table("short_forms.streets")
# Behind a name: Main St., 5th Ave, 12 Oak Tree Rd. Apt. 4; St. Paul and Dr. Lee have another word in front, or none.
BEHIND_STREET = r"(?= ?(?:[a-z\d,;:)\"']|[NSEW]\b|(?:Apt|Suite|Ste|Unit|and|near)\b|\Z))"
ADDRESS = re.compile(rf"\b(\d+[A-Z]? (?:[A-Z][a-z]+ |\d+(?:st|nd|rd|th) ){{1,3}})({alternatives(STREETS)})\b\.?")
DIRECTIONS = table("short_forms.directions")
DIRECTION = re.compile(
    rf"\b({'|'.join(DIRECTIONS)})\b\.? (?=(?:[A-Z][a-z]+ |\d+(?:st|nd|rd|th) ){{1,3}}"
    rf"(?:{alternatives({*STREETS, *STREETS.values()})})\b)"
)
NO_STREETS = "The|An?|My|Our|His|Her|Your|Their|This|That|Dear|Ask|See|Call|And|But"
STREET_NAME = re.compile(rf"(?:\b(?!(?:{NO_STREETS})\b)[A-Z][a-z']+|\d(?:st|nd|rd|th)) \Z")
LONGEST_NAME = 24
ANYWHERE = table("short_forms.anywhere")
INSIDE = table("short_forms.inside")
WHOLE = ANYWHERE | INSIDE
SLASHES = {"w/o": "without", "w/": "with", "c/o": "care of", "b/c": "because", "n/a": "not applicable"}


def _whole(match: re.Match[str]) -> str:
    return like(match[1], WHOLE[match[1].lower()])


def _street(match: re.Match[str]) -> str:
    named = STREET_NAME.search(text_before(match, LONGEST_NAME))
    return STREETS[match[1]] if named else match[0]


def _calendar(match: re.Match[str]) -> str:
    return CALENDAR[match[match.lastindex or 1]]


def _slash(match: re.Match[str]) -> str:
    space = "" if match[1] or match.string[match.end()] == " " else " "
    return like(match[0], SLASHES[match[0].lower()]) + space


def _before_number(match: re.Match[str]) -> str:
    """Return "number" for No.; a unit after a number stays: "5 min. 30 sec."."""
    word = match[1].lower()
    if word in ("min", "sec") and text_before(match, 2).strip().isdecimal():
        return match[0]
    return like(match[1], BEFORE_NUMBERS[word]) + " "


RULES: tuple[Rule, ...] = (
    (FULL_SPAN, r"\1 to "),
    # Jan-Mar
    rule(rf"\b({A_MONTH})\.?-({A_MONTH}|May)\b\.?(?!-)", lambda match: f"{CALENDAR[match[1]]} to {CALENDAR[match[2]]}"),
    # Mon-Fri
    rule(rf"\b({A_DAY})\.?-({A_DAY})\b\.?(?!-)", lambda match: f"{CALENDAR[match[1]]} to {CALENDAR[match[2]]}"),
    (SHORT_DAY, _calendar),  # Mon., at 9; Fri, Jan 5
    # Jan. 5th; 5 Jan 2024
    rule(rf"\b({A_MONTH})(?:\.|(?= \d)|(?<=\d [A-Z][a-z]{{2}})(?=[., ]|\Z))(?![\w.])", _calendar),
    (DIRECTION, lambda match: DIRECTIONS[match[1]] + " "),  # 350 W 42nd St.
    (ADDRESS, lambda match: match[1] + STREETS[match[2]]),  # 12 Main St.
    # on Main St. and 5th Ave
    rule(rf"(?<=[a-z] )({alternatives(STREETS)})\b(?:\.{BEHIND_STREET}|(?=[.,;]| [a-z\d]|\Z))", _street),
    (TITLE, lambda match: TITLES[match[1] or match[2]] + " "),  # Prof. Lee, St. Paul
    # b. 1950
    rule(r"(?<![\w.])([bd])\. ?(?=(?:1\d|20)\d\d\b)", lambda match: "born " if match[1] == "b" else "died "),
    # No. 5, Eq. 5
    rule(rf"(?<![\w.-])(?i:({alternatives(BEFORE_NUMBERS)}))\. ?(?=[\d#~]|-\d|[A-Z]\d|[IVXL]{{2,}}\b)", _before_number),
    rule(rf"(?<![\w.-])(?i:({PLAIN_BEFORE_NUMBERS})) (?=\d)", _before_number),  # Fig 3
    # e.g. this, Smith Inc. and others
    rule(rf"(?<![\w.])(?i:({alternatives(ANYWHERE)}))(?!\w)", _whole),
    rule(rf"(?<![\w.])(?<!\d )(?i:({alternatives(INSIDE)}))(?= [a-z\d])", _whole),  # esp. here
    rule(r"\b([Nn])o\. (?=of\b)", r"\1umber "),
    rule(r"(?<![\w/.:])(?i:(w/o|c/o|b/c|n/a)\b|(w/)(?=[ \w]))(?!/)", _slash),  # w/ milk, w/o sugar
)
