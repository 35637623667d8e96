"""Prices, and units that the library misses or spells.

Currencies, ranges, and prices before a noun ("a twenty dollar bill"); feet and inches, and units as adjectives.
"""

import re

from ..lists import alternatives_of, pairs, table
from .numerals import is_initial
from .rules import Rule, alternatives, rule, text_before

AMOUNT = r"\d+(?:,\d{3})*(?:\.\d+)?"
MILLIONS = table("amounts.millions")
SUFFIX = alternatives(MILLIONS)
SCALE = "thousand|million|billion|trillion"
SCALE_BEHIND = re.compile(rf" (?:{SCALE})\b")
SIGN = r"[$£€]"
# Dollars of a country, and signs that the library leaves.
DOLLARS = {country: (f"{name} dollar", f"{name} dollars") for country, name in table("amounts.dollars").items()}
PRICE = rf"(?P<amount>{AMOUNT})(?: ?(?P<suffix>{SUFFIX})\b| (?P<word>{SCALE}|lakh|crore)\b)?"
SIGNS = pairs("amounts.signs")
CODES = pairs("amounts.codes")
CURRENCIES = DOLLARS | SIGNS | CODES
NAMES = {"$": ("dollar", "cent"), "£": ("pound", "pence"), "€": ("euro", "cent")}
NO_NOUN = alternatives_of("amounts.no_noun")
PRICED_NOUN = rf"(?= (?!(?i:{NO_NOUN})\b)[A-Za-z])"
DETERMINED = r"(?i:an?|the|another|this|that|his|her|my|your|their|its|our|one|new) |(?i:sub|non|under|over|multi|pre)-"
DESCRIBING = rf"({SIGN})(\d+(?:,\d{{3}})*(?:\.\d(?!\d))?)(?:\.(\d\d))?(?:[ -]?({SUFFIX})\b|[ -]({SCALE})\b)?"
PERIODS = table("amounts.periods")
NO_MONEY = r"(?<![\w.,$£€/-])"
# Nouns that are counted in millions; before others, the m of 5 m is meters.
COUNTED = rf"(?:(?:more|new|other|young|poor|of its|of the|[A-Z][a-z]+) )?(?:{alternatives_of('amounts.counted')})\b"
COUNTED_BEHIND = re.compile(r"\+? (?!this\b|was\b|has\b)(?:[a-z]{3,}s|people)\b")


def _scaled(amount: str, suffix: str | None, word: str | None) -> str:
    scale = word or (MILLIONS[suffix] if suffix else "")
    return f"{amount} {scale}" if scale else amount


def _in_currency(match: re.Match[str]) -> str:
    scaled = _scaled(match["amount"], match["suffix"], match["word"])
    return f"{scaled} {CURRENCIES[match['name']][scaled != '1']}"


def _adjective(match: re.Match[str]) -> str:
    before, sign, amount, cents, suffix, word = match.groups()
    main, small = NAMES[sign]
    said = f"{before}{_scaled(amount, suffix, word)} {main}".replace("-", " ")
    said += f" {cents} {small}" if cents and int(cents) else ""
    return said + (" " if match[0].endswith(("-", " ")) else "")


def _money_range(match: re.Match[str]) -> str:
    """Return "5 to $10" for $5-10: five to ten dollars; prices with cents are read one by one."""
    sign, low, high = match.groups()
    scaled = SCALE_BEHIND.match(match.string, match.end())
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


MONEY_RULES: tuple[Rule, ...] = (
    rule(rf"\b(?P<name>{alternatives(DOLLARS)})\$ ?{PRICE}", _in_currency),  # US$100
    rule(rf"(?P<name>[{''.join(SIGNS)}]) ?{PRICE}", _in_currency),
    rule(rf"(?<![\w.,]){PRICE} ?(?P<name>{alternatives(CODES)})\b", _in_currency),  # 5 CHF
    rule(rf"(?<!\w)(?P<name>{alternatives(CODES)}) ?{PRICE}", _in_currency),  # CHF 5
    rule(r"(?<![\w.,$])(\d+(?:\.\d+)?) ?¢", lambda match: f"{match[1]} {'cent' if match[1] == '1' else 'cents'}"),
    rule(r"(?<![\w.,$£])(\d\d?)p\b", r"\1 pence"),  # 75p
    rule(rf"(?<![\w.,€])({AMOUNT}) ?€(?!\w)", "€\\1"),  # 1,000 and the euro's sign
    # between $5 and $10 million
    rule(
        rf"\b([Bb]etween|[Ff]rom) ({SIGN})(\d{{1,3}}(?:\.\d)?) (and|to) (?=\2\d{{1,3}}(?:\.\d)? [mbtr]+illion\b)",
        r"\1 \3 \4 ",
    ),
    rule(rf"({SIGN})({AMOUNT})\+(?: ([mbtr]+illion)\b)?(?!\d)", _and_more),  # $100+ million
    # $5m-10m
    rule(rf"(?<![A-Za-z])({SIGN})({AMOUNT}) ?({SUFFIX})-\1?({AMOUNT}) ?({SUFFIX})(?![\w'])", _suffix_range),
    rule(
        rf"(?<![A-Za-z])({SIGN})(\d+(?:[.,]\d+)*)-(\d+(?:[.,]\d+)*)(?=(?:k|K|m|M|mn|bn|B|tn)\b|(?![\w/-]|[.,]\d))",
        _money_range,
    ),
    # A price before a noun that it describes: a $20 bill, a sub-$100 phone; "a $5 at" and the like have no noun.
    rule(rf"\b({DETERMINED}){DESCRIBING}(?:{PRICED_NOUN}|-(?:dollar[ -])?(?=[a-z]))", _adjective),
    # With a hyphen after it a price is an adjective anywhere: a hard $3-a-day job, two $5-million houses.
    rule(
        rf"(){DESCRIBING}(?:-(?:dollar[ -])?(?=(?!thousand|[mbtr]+illion)[a-z])|(?<=-[mbtr]illion)(?= [a-z]))",
        _adjective,
    ),
    rule(rf"(?<=[A-Za-z])-(?={SIGN}\d)", " "),
    # $15/hour, 60 miles/hour
    rule(rf"(?<=[\ds€])/({alternatives(PERIODS)})\b", lambda match: f" per {PERIODS[match[1]]}"),
    rule(
        rf"({SIGN})(\d[\d,.]*) ?(k|K|m|M|mn|bn|B|tn|mln|bln|trn)(?![\w'])",
        lambda match: _thousands(match[1], match[2].rstrip(".,"), match[3]),
    ),
    rule(r"(?<![\w$£€)-])-(?=[$£€]\d)", "minus "),
    # 7.8bn people
    rule(rf"{NO_MONEY}(\d+(?:[.,]\d+)*) ?(bn|mn|tn|bln|mln|trn)\b", lambda match: f"{match[1]} {MILLIONS[match[2]]}"),
    rule(rf"{NO_MONEY}(\d+(?:\.\d+)?) ?m (?={COUNTED})", r"\1 million "),
    rule(r"\b(9|10|14|18|22|24)[kK](?= (?:gold|white|rose|yellow|ring|necklace|chain)\b)", r"\1 karat"),
    rule(rf"{NO_MONEY}(\d+(?:\.\d+)?)([kKMB])(?![\w'/-])", _counted),
)

# Singular and plural. Others (percent, degrees, square meters) are the library's.
UNITS = pairs("amounts.units")
# Units that people write with these of the prefixes; "-" is none.
PREFIXES = table("amounts.prefixes")
METRIC = table("amounts.metric")
EACH = table("amounts.each")
UNITS |= {
    prefix.strip("-") + unit: (PREFIXES[prefix] + name, PREFIXES[prefix] + name + "s" * (name[-1] != "z"))
    for unit, (prefixes, name) in ((unit, said.split(" ", 1)) for unit, said in METRIC.items())
    for prefix in prefixes
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
CLOSING = "\u201d"  # the library reads " after a figure as inches
DETERMINER = r"\b(?i:an?|the|this|that|his|her|my|your|their|our|one|another) (?:[\d.]+ by )?"
NUMBER_BEFORE = re.compile(rf"({DETERMINER})?(?<![\w.,/])([\d.,]+(?:/\d+)?) ?\Z")
LONGEST_NUMBER = 24
# Nouns that a length or a weight nearly always describes: the 100 m dash, a cheap 9 mm pistol.
DESCRIBED = re.compile(rf" (?:{alternatives_of('amounts.described')})\b")
NOUN = re.compile(rf" (?!(?:{NO_NOUN})\b)[a-z]")


def _last_inches(match: re.Match[str]) -> str:
    return match[0] if re.search(OPENS, text_before(match, LONGEST_QUOTE)) else " inches"


def _feet(match: re.Match[str]) -> str:
    marks = list(QUOTE.finditer(text_before(match, LONGEST_QUOTE)))
    if not match[3] and marks and marks[-1]["opens"] is not None:
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
FEET: tuple[Rule, ...] = (
    (INCH_MARK, r"\1 inch"),
    rule(r"(?<=\d)\"(?=[.,;!?]|\Z)", _last_inches),
    rule(r"(?<!['\"])\b(\d{1,2})'(?: ?(\d{1,2})(\"|''|(?=\s|[.,]|$)))?(?![\w'])", _feet),  # 6'2"
    (FEET_INCHES, _feet_inches),  # 5 ft 4 in
)
SCALES = {"F": "Fahrenheit", "C": "Celsius"}
UNIT_RULES: tuple[Rule, ...] = (
    rule(r"(?<=\d)-pt\b\.?", " point"),  # a 3-pt. lead
    rule(r"(?<=\d)[ -]?(?:y/o|yo|y\.o\.)(?!\w)", " year old"),
    rule(r"(?<=\d) ?([mk])\.p\.h\b\.?", r" \1ph"),  # 60 m.p.h.
    rule(r"(?<=\bdegrees )([FC])\b(?! ?(?:major|minor|sharp|flat))", lambda match: SCALES[match[1]]),
    rule(r"(?<=\d) in(?= (?:long|wide|tall|high|deep|thick|across|diameter|x)\b)", " inches"),
    (JOINED_UNIT, lambda match: f"{match[0]} "),
    rule(r"(?<=\d\.\d)(\d?)s\b", r"\1 seconds"),  # 9.58s
    (UNIT, _unit),
)
CLOSING_QUOTE = rule(rf"({OPENS}(?:[\d.,:]+(?=\")|[^\"]*(?=\"[^\"]*(?:\Z|{OPENS}))))(?<=\d)\"", rf"\1{CLOSING}")
