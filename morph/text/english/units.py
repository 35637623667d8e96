"""Normalize units that the library misses or spells, feet and inches, and units as adjectives."""

import re

from ..lists import alternatives_of, pairs, table
from .money import NO_NOUN
from .numerals import is_initial
from .rules import Rule, alternatives, rule, text_before

# Singular and plural. Others (percent, degrees, square meters) are the library's.
UNITS = pairs("units.units")
# Units that people write with these of the prefixes; "-" is none.
PREFIXES = table("units.prefixes")
METRIC = table("units.metric")
# Rates: 60 mph, 30 fps.
RATES = table("units.rates")
EACH = table("units.each")
UNITS |= {
    prefix.strip("-") + unit: (PREFIXES[prefix] + name, PREFIXES[prefix] + name + "s" * (name[-1] != "z"))
    for unit, (prefixes, name) in ((unit, said.split(" ", 1)) for unit, said in METRIC.items())
    for prefix in prefixes
} | {
    written: (f"{one} per {other}", f"{one}s per {other}")
    for written, (one, other) in ((written, said.split("/")) for written, said in RATES.items())
}
# Letters that also have other meanings directly after a number (the s of "1990s", 5h) need a space, or a decimal.
SPACED = ("s", "h", "t", "V", "W", "L")
# Words themselves: they are units only with a dot before small letters, or after feet.
WORDS = ("in", "mi", "mo", "c", "A")
PLAIN = alternatives(set(UNITS) - set(WORDS))
UNIT = re.compile(
    rf"(?<=\d)(?:(?: |-(?!m/)|(?!(?:{'|'.join(SPACED)})\b))({PLAIN})(?:/(?P<each>{alternatives(EACH)}))?(?![\w'/])|"
    rf"[ -]({'|'.join(WORDS)})(?=\.(?:[ ]?[a-z,;:)]|\s*\Z))|"
    r"[ -](A)(?= (?:fuse|breaker|circuit|plug|outlet|charger)s?\b))"
    r"(?:\.(?=[ ]?[a-z,;:)\d]|-|\s*\Z))?"
)
# 12V, 2L
JOINED_UNIT = re.compile(r"(?<![A-Za-z\d.])(\d+\.\d+|\d{2,4})(?=[VW](?![\w'/-]))|(?<![\w.])(\d)(?=L(?![\w'/-]))")
FEET_INCHES = re.compile(
    r"(?<![\w.,])(\d{1,2}) ?(?:ft|feet|foot)\.?,? (\d{1,2}(?:\.\d)?) ?(?:in|inch|inches)\b(?:\.(?= ?[a-z,;]))?"
)
# A quotation mark that opens or closes; years such as '90s open nothing.
QUOTE = re.compile(r"(?P<opens>(?<!\w)'(?!\d\ds\b)(?=\w))|(?<=[\w.,!?])'(?!\w)")
LONGEST_QUOTE = 80  # characters that are searched for its beginning
# A quotation that ends in a figure: a figure alone, or one behind which nothing else ends it ("A 27" screen.").
OPENS = r"(?<![\w.,!?%'\")\]])\"(?=[^\s\"])"
QUOTED = re.compile(rf"({OPENS}(?:[\d.,:]+(?=\")|[^\"]*(?=\"[^\"]*(?:\Z|{OPENS}))))(?<=\d)\"")
CLOSING = "\u201d"  # the library reads " after a figure as inches
DETERMINER = r"\b(?i:an?|the|this|that|his|her|my|your|their|our|one|another) (?:[\d.]+ by )?"
NUMBER_BEFORE = re.compile(rf"({DETERMINER})?(?<![\w.,/])([\d.,]+(?:/\d+)?) ?\Z")
LONGEST_NUMBER = 24
# Nouns that a length or a weight nearly always describes: the 100 m dash, a cheap 9 mm pistol.
DESCRIBED = re.compile(rf" (?:{alternatives_of('units.described')})\b")
NOUN = re.compile(rf" (?!(?:{NO_NOUN})\b)[a-z]")


def _is_quoted(before: str) -> bool:
    marks = list(QUOTE.finditer(before))
    return bool(marks) and marks[-1]["opens"] is not None


def _last_inches(match: re.Match[str]) -> str:
    return match[0] if OPENED.search(text_before(match, LONGEST_QUOTE)) else " inches"


def _feet(match: re.Match[str]) -> str:
    if not match[3] and _is_quoted(text_before(match, LONGEST_QUOTE)):
        return match[0]
    feet = f"{match[1]} {'foot' if match[2] else 'feet'}"
    return f"{feet} {match[2]}" if match[2] else feet


def _feet_inches(match: re.Match[str]) -> str:
    feet, inches = (UNITS[unit][0 if match[n] == "1" else 1] for n, unit in ((1, "ft"), (2, "in")))
    return f"{match[1]} {feet} {match[2]} {inches}"


def _unit(match: re.Match[str]) -> str:
    unit = match[1] or match[3] or match[4]
    if len(unit) == 1 and unit.isupper() and is_initial(match):
        return match[0]  # "In 1990 W. Smith"
    joined = match[0].startswith("-") or match.string[match.end() : match.end() + 1] == "-"
    single = joined or _is_single(match)
    return f" {UNITS[unit][0 if single else 1]}" + (f" per {EACH[match['each']]}" if match["each"] else "")


def _is_single(match: re.Match[str]) -> bool:
    """Return whether a unit is singular: 1 m, 1/2 m, and before the noun it describes, a 5 m rope."""
    if DESCRIBED.match(match.string, match.end()):
        return True
    number = NUMBER_BEFORE.search(text_before(match, LONGEST_NUMBER))
    if number is None:
        return False
    fraction = "/" in number[2] and not match.string[: match.start() - len(number[2])].rstrip()[-1:].isdecimal()
    describes = number[1] is not None and NOUN.match(match.string, match.end()) is not None
    return number[2] == "1" or fraction or describes


# A 3/4" pipe, a 27" screen; 55" at the end, if no quotation is open
INCH_MARK = re.compile(
    rf"((?<![\d/])\d{{1,2}}/\d{{1,2}}|{DETERMINER}\d{{1,3}}(?:\.\d+)?)\"(?= (?!(?:{NO_NOUN})\b)[a-z])"
)
OPENED = re.compile(OPENS)
FEET_RULES: tuple[Rule, ...] = (
    (INCH_MARK, r"\1 inch"),
    rule(r"(?<=\d)\"(?=[.,;!?]|\Z)", _last_inches),
    rule(r"(?<!['\"])\b(\d{1,2})'(?: ?(\d{1,2})(\"|''|(?=\s|[.,]|$)))?(?![\w'])", _feet),  # 6'2"
    (FEET_INCHES, _feet_inches),  # 5 ft 4 in
)
SCALE_OF_DEGREES = re.compile(r"\bdegrees ([FC])\b(?! ?(?:major|minor|sharp|flat))")
RULES: tuple[Rule, ...] = (
    rule(r"(?<=\d)-pt\b\.?", " point"),  # a 3-pt. lead
    rule(r"(?<=\d)[ -]?(?:y/o|yo|y\.o\.)(?!\w)", " year old"),
    rule(r"(?<=\d) ?([mk])\.p\.h\b\.?", r" \1ph"),  # 60 m.p.h.
    (SCALE_OF_DEGREES, lambda match: "degrees Fahrenheit" if match[1] == "F" else "degrees Celsius"),
    rule(r"(?<=\d) in(?= (?:long|wide|tall|high|deep|thick|across|diameter|x)\b)", " inches"),
    (JOINED_UNIT, lambda match: f"{match[0]} "),
    rule(r"(?<=\d\.\d)(\d?)s\b", r"\1 seconds"),  # 9.58s
    (UNIT, _unit),
)
QUOTES: tuple[Rule, ...] = ((QUOTED, rf"\1{CLOSING}"),)
