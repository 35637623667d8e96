"""Prices: currencies that the library does not know, ranges, and prices before a noun ("a twenty dollar bill")."""

import re

from ..lists import alternatives_of, pairs, table
from .rules import Rule, alternatives, rule

AMOUNT = r"\d+(?:,\d{3})*(?:\.\d+)?"
MILLIONS = table("money.millions")
SUFFIX = alternatives(MILLIONS)
MONEY_RANGE = re.compile(
    r"(?<![A-Za-z])([$\u00a3\u20ac])(\d+(?:[.,]\d+)*)-(\d+(?:[.,]\d+)*)"
    r"(?=(?:k|K|m|M|mn|bn|B|tn)\b|(?![\w/-]|[.,]\d))"
)
SCALE_WORD = re.compile(r" (?:thousand|million|billion|trillion)\b")
# between $5 and $10 million
BETWEEN = re.compile(
    r"\b([Bb]etween|[Ff]rom) ([$\u00a3\u20ac])(\d{1,3}(?:\.\d)?) (and|to) "
    r"(?=\2\d{1,3}(?:\.\d)? (?:million|billion|trillion)\b)"
)
SUFFIX_RANGE = re.compile(rf"(?<![A-Za-z])([$\u00a3\u20ac])({AMOUNT}) ?({SUFFIX})-\1?({AMOUNT}) ?({SUFFIX})(?![\w'])")
MONEY = re.compile(r"([$\u00a3\u20ac]\d[\d,.]*) ?(k|K|m|M|mn|bn|B|tn|mln|bln|trn)(?![\w'])")
# Dollars of a country, and signs that the library leaves.
DOLLARS = {country: (f"{name} dollar", f"{name} dollars") for country, name in table("money.dollars").items()}
PRICE = rf"(?P<amount>{AMOUNT})(?: ?(?P<suffix>{SUFFIX})\b| (?P<word>thousand|million|billion|trillion|lakh|crore)\b)?"
SIGNS = pairs("money.signs")
CODES = pairs("money.codes")
CURRENCIES = DOLLARS | SIGNS | CODES
CENTS = re.compile(r"(?<![\w.,$])(\d+(?:\.\d+)?) ?\u00a2")
# A price before a noun that it describes: a $20 bill, a sub-$100 phone; "a $5 at" and the like have no noun.
NAMES = {"$": ("dollar", "cent"), "\u00a3": ("pound", "pence"), "\u20ac": ("euro", "cent")}
NO_NOUN = alternatives_of("money.no_noun")
NOUN = rf"(?= (?!(?i:{NO_NOUN})\b)[A-Za-z])"
DETERMINED = r"(?i:an?|the|another|this|that|his|her|my|your|their|its|our|one|new) |(?i:sub|non|under|over|multi|pre)-"
ADJECTIVE = re.compile(
    rf"\b({DETERMINED})([$\u00a3\u20ac])(\d+(?:,\d{{3}})*(?:\.\d(?!\d))?)(?:\.(\d\d))?"
    rf"(?:[ -]?({SUFFIX})\b|[ -](thousand|million|billion|trillion))?(?:{NOUN}|-(?:dollar[ -])?(?=[a-z]))"
)
# With a hyphen after it a price is an adjective anywhere: a hard $3-a-day job, two $5-million houses.
JOINED_PRICE = re.compile(
    rf"([$\u00a3\u20ac])(\d+(?:,\d{{3}})*(?:\.\d(?!\d))?)(?:\.(\d\d))?(?:[ -]?({SUFFIX})\b|"
    r"[ -](thousand|million|billion|trillion)\b)?(?:-(?:dollar[ -])?(?=(?!thousand|[mbtr]+illion)[a-z])|"
    r"(?<=-[mbtr]illion)(?= [a-z]))"
)
PERIODS = table("money.periods")
BILLIONS = re.compile(r"(?<![\w.,$\u00a3\u20ac/-])(\d+(?:[.,]\d+)*) ?(bn|mn|tn|bln|mln|trn)\b")
# Letters that are also meters: only before what is counted in millions.
COUNTED = alternatives_of("money.counted")
COUNTED_MILLIONS = re.compile(
    r"(?<![\w.,$\u00a3\u20ac/-])(\d+(?:\.\d+)?) ?m (?=(?:(?:more|new|other|young|poor|of its|of the|[A-Z][a-z]+) )?"
    rf"(?:{COUNTED})\b)"
)
COUNTED_BEHIND = re.compile(r"\+? (?!this\b|was\b|has\b)(?:[a-z]{3,}s|people)\b")


def _scaled(amount: str, suffix: str | None, word: str | None) -> str:
    scale = word or (MILLIONS[suffix] if suffix else "")
    return f"{amount} {scale}" if scale else amount


def _in_currency(match: re.Match[str]) -> str:
    scaled = _scaled(match["amount"], match["suffix"], match["word"])
    return f"{scaled} {CURRENCIES[match['name']][scaled != '1']}"


def _adjective(match: re.Match[str]) -> str:
    before, sign, amount, cents, suffix, word = match.groups() if match.re is ADJECTIVE else ("", *match.groups())
    main, small = NAMES[sign]
    said = f"{before}{_scaled(amount, suffix, word)} {main}".replace("-", " ")
    said += f" {cents} {small}" if cents and int(cents) else ""
    return said + (" " if match[0].endswith(("-", " ")) else "")


def _money_range(match: re.Match[str]) -> str:
    """Return "5 to $10" for $5-10: five to ten dollars; prices with cents are read one by one."""
    sign, low, high = match.groups()
    scaled = SCALE_WORD.match(match.string, match.end()) is not None
    return f"{sign if not scaled and '.' in low + high else ''}{low} to {sign}{high}"


def _and_more(match: re.Match[str]) -> str:
    sign, amount, scale = match.groups()
    return f"{amount} plus {scale + ' ' if scale else ''}{NAMES[sign][0]}s"


def _suffix_range(match: re.Match[str]) -> str:
    sign, low, low_suffix, high, high_suffix = match.groups()
    first = low if MILLIONS[low_suffix] == MILLIONS[high_suffix] else _scaled(low, low_suffix, None)
    return f"{first} to {_thousands(sign, high, high_suffix)}"


def _thousands(sign: str, amount: str, suffix: str) -> str:
    if MILLIONS[suffix] != "thousand":
        return f"{sign}{amount} {MILLIONS[suffix]}"
    whole = amount.isdecimal() and len(amount) <= 3
    return f"{sign}{amount},000" if whole else f"{sign}{float(amount.replace(',', '')) * 1000:,.0f}"


def _counted(match: re.Match[str]) -> str:
    """Return "50 thousand" for 50k, and for 50K before a plural: a 5k is a run, 4K a screen."""
    if COUNTED_BEHIND.match(match.string, match.end()) or (match[2] == "k" and match[1] not in ("5", "10")):
        return f"{match[1]} {MILLIONS[match[2]]}"
    return match[0]


RULES: tuple[Rule, ...] = (
    rule(rf"\b(?P<name>{alternatives(DOLLARS)})\$ ?{PRICE}", _in_currency),  # US$100
    rule(rf"(?P<name>[{''.join(SIGNS)}]) ?{PRICE}", _in_currency),
    rule(rf"(?<![\w.,]){PRICE} ?(?P<name>{alternatives(CODES)})\b", _in_currency),  # 5 CHF
    rule(rf"(?<!\w)(?P<name>{alternatives(CODES)}) ?{PRICE}", _in_currency),  # CHF 5
    (CENTS, lambda match: f"{match[1]} {'cent' if match[1] == '1' else 'cents'}"),
    rule(r"(?<![\w.,$\u00a3])(\d\d?)p\b", r"\1 pence"),  # 75p
    rule(rf"(?<![\w.,\u20ac])({AMOUNT}) ?\u20ac(?!\w)", "\u20ac\\1"),  # 1,000 and the euro's sign
    (BETWEEN, r"\1 \3 \4 "),
    # $100+ million
    rule(rf"([$\u00a3\u20ac])({AMOUNT})\+(?: (million|billion|trillion)\b)?(?!\d)", _and_more),
    (SUFFIX_RANGE, _suffix_range),  # $5m-10m
    (MONEY_RANGE, _money_range),
    (ADJECTIVE, _adjective),
    (JOINED_PRICE, _adjective),
    rule(r"(?<=[A-Za-z])-(?=[$\u00a3\u20ac]\d)", " "),
    # $15/hour, 60 miles/hour
    rule(rf"(?<=[\ds\u20ac])/({alternatives(PERIODS)})\b", lambda match: f" per {PERIODS[match[1]]}"),
    (MONEY, lambda match: _thousands(match[1][0], match[1][1:].rstrip(".,"), match[2])),
    rule(r"(?<![\w$\u00a3\u20ac)-])-(?=[$\u00a3\u20ac]\d)", "minus "),
    (BILLIONS, lambda match: f"{match[1]} {MILLIONS[match[2]]}"),  # 7.8bn people
    (COUNTED_MILLIONS, r"\1 million "),
    rule(r"\b(9|10|14|18|22|24)[kK](?= (?:gold|white|rose|yellow|ring|necklace|chain)\b)", r"\1 karat"),
    rule(r"(?<![\w.,$\u00a3\u20ac/-])(\d+(?:\.\d+)?)([kKMB])(?![\w'/-])", _counted),
)
