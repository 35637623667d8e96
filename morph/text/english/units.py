"""Units that the library misses or spells, their dots, feet and inches, and units as adjectives."""

import re

from .money import NO_NOUN
from .numerals import is_initial
from .rules import Rule, alternatives, pairs, rule, table

# Singular and plural. Others (percent, degrees, square meters) are the library's.
UNITS = pairs("""
    ft: foot/feet, in: inch/inches, yd: yard/yards, yds: yard/yards, mi: mile/miles, lb: pound/pounds
    lbs: pound/pounds, sq ft: square foot/square feet, sq. ft: square foot/square feet, sq mi: square mile/square miles
    sq. mi: square mile/square miles, cu ft: cubic foot/cubic feet, cu. ft: cubic foot/cubic feet, oz: ounce/ounces
    gal: gallon/gallons, qt: quart/quarts, qts: quart/quarts, pt: pint/pints, c: cup/cups, doz: dozen
    fl oz: fluid ounce/fluid ounces, fl. oz: fluid ounce/fluid ounces, tbsp: tablespoon/tablespoons
    Tbsp: tablespoon/tablespoons, tbsps: tablespoon/tablespoons, tsp: teaspoon/teaspoons, tsps: teaspoon/teaspoons
    mcg: microgram/micrograms, t: tonne/tonnes, kgs: kilogram/kilograms, kms: kilometer/kilometers
    ha: hectare/hectares, pkg: package/packages, pcs: piece/pieces, vol: volume/volumes, vols: volume/volumes
    pts: point/points, bp: basis point/basis points, bps: basis point/basis points, pct: percent
    MP: megapixel/megapixels, sec: second/seconds, secs: second/seconds, min: minute/minutes, mins: minute/minutes
    h: hour/hours, hr: hour/hours, hrs: hour/hours, wk: week/weeks, wks: week/weeks, mo: month/months
    mos: month/months, yr: year/years, yrs: year/years, hp: horsepower, bhp: brake horsepower, kn: knot/knots
    kt: knot/knots, kts: knot/knots, k\u03a9: kilohm/kilohms, M\u03a9: megohm/megohms, dB: decibel/decibels
    atm: atmosphere/atmospheres, mbar: millibar/millibars, mmHg: millimeter of mercury/millimeters of mercury
    cc: see see, psi: pee ess eye, px: pixel/pixels, lm: lumen/lumens, deg: degree/degrees, \u00b0: degree/degrees
""")
# Units that people write with these of the prefixes; "-" is none.
PREFIXES = table("""
    -: , k: kilo, K: kilo, M: mega, G: giga, T: tera, h: hecto, d: deci, c: centi, m: milli, \u03bc: micro, n: nano
    p: pico
""")
METRIC = table("""
    m: -kcm\u03bcn meter, g: -km\u03bc gram, l: -dcm liter, L: -dm liter, s: -m\u03bcn second, W: -kMGm watt
    V: -km volt, Wh: -kMGT watt hour, A: -m amp, Ah: -m amp hour, Hz: -kMG hertz, N: kM newton, Nm: - newton meter
    Pa: khMG pascal, J: kM joule, F: \u03bcnp farad, \u03a9: - ohm, B: kKMGT byte, b: kMG bit, bit: kMG bit
    cal: -k calorie
""")
# What there is of something for each of something else.
RATES = table("""
    kph: kilometer/hour, mph: mile/hour, MPH: mile/hour, kbps: kilobit/second, Mbps: megabit/second
    Gbps: gigabit/second, fps: frame/second, rpm: revolution/minute, RPM: revolution/minute, bpm: beat/minute
    BPM: beat/minute, mpg: mile/gallon, MPG: mile/gallon, gpm: gallon/minute, ppm: part/million, dpi: dot/inch
""")
EACH = table("""
    s: second, sec: second, min: minute, h: hour, hr: hour, day: day, L: liter, l: liter, dL: deciliter, mL: milliliter
    ml: milliliter, kg: kilogram, km: kilometer, 100 km: hundred kilometers, m: meter, cm3: cubic centimeter
    m3: cubic meter, m2: square meter
""")
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
JOINED_UNIT = re.compile(
    r"(?<![A-Za-z\d.])(\d+\.\d+|\d{2,4})(?=[VW](?![\w'/-]))|(?<![\w.])(\d)(?=L(?![\w'/-]))"
)
FEET_INCHES = re.compile(
    r"(?<![\w.,])(\d{1,2}) ?(?:ft|feet|foot)\.?,? (\d{1,2}(?:\.\d)?) ?(?:in|inch|inches)\b(?:\.(?= ?[a-z,;]))?"
)
# A quotation mark that opens or closes; years such as '90s open nothing.
QUOTE = re.compile(r"(?P<opens>(?<!\w)'(?!\d\ds\b)(?=\w))|(?<=[\w.,!?])'(?!\w)")
LONGEST_QUOTE = 80  # characters, as far as its beginning is looked for
# A quotation that ends in a figure: a figure alone, or one behind which nothing else ends it ("A 27" screen.").
OPENS = r"(?<![\w.,!?%'\")\]])\"(?=[^\s\"])"
QUOTED = re.compile(rf"({OPENS}(?:[\d.,:]+(?=\")|[^\"]*(?=\"[^\"]*(?:\Z|{OPENS}))))(?<=\d)\"")
CLOSING = "\u201d"  # the library reads " after a figure as inches
DETERMINER = r"\b(?i:an?|the|this|that|his|her|my|your|their|our|one|another) (?:[\d.]+ by )?"
NUMBER_BEFORE = re.compile(rf"({DETERMINER})?(?<![\w.,/])([\d.,]+(?:/\d+)?) ?\Z")
LONGEST_NUMBER = 24
# What is nearly always described by a length or a weight: the 100 m dash, a cheap 9 mm pistol.
DESCRIBED = re.compile(
    r" (?:dash|sprint|hurdles|race|relay|freestyle|butterfly|backstroke|breaststroke|pistols?|guns?|handguns?|rifles?|"
    r"lens|film|bullets?|cannons?|wrench|cans?|bottles?|bags?|steaks?|outlets?|cameras?|bulbs?|batter(?:y|ies)|radius|rounds?|shells?)\b"
)
NOUN = re.compile(rf" (?!(?:{NO_NOUN})\b)[a-z]")


def _is_quoted(before: str) -> bool:
    marks = list(QUOTE.finditer(before))
    return bool(marks) and marks[-1]["opens"] is not None


def _last_inches(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - LONGEST_QUOTE) : match.start()]
    return match[0] if OPENED.search(before) else " inches"


def _feet(match: re.Match[str]) -> str:
    quoted = not match[3] and _is_quoted(match.string[max(0, match.start() - LONGEST_QUOTE) : match.start()])
    if quoted:
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
    number = NUMBER_BEFORE.search(match.string[max(0, match.start() - LONGEST_NUMBER) : match.start()])
    if number is None:
        return False
    fraction = (
        "/" in number[2] and not match.string[: match.start() - len(number[2])].rstrip()[-1:].isdecimal()
    )
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
