"""Figures that stand alone: numbers, versions, models, formulas; telephones and codes, digit by digit."""

import re

from ..lists import alternatives_of, table, word_set
from .amounts import CODES
from .letters import spell
from .numerals import DIGITS, in_pairs, plural, small_number, spell_digits
from .rules import Rule, rule, text_before

# 1.000,50: continental numbers have a comma or a second point after the thousands, or are prices in whole thousands.
CONTINENTAL = re.compile(
    r"(?<![\w.,])(?:(?<=€)\d{1,3}(?:\.\d{3})*\.000|"
    r"\d{1,3}(?:\.\d{3})+(?:,\d{1,2}|(?<=\.000)(?= ?(?:€|[Ee]uros?\b|EUR\b)))|"
    r"[1-9]\d{0,2}\.(?:000(?= (?:people|men|women|children|(?!inches|seconds|degrees|points|percent|grams|volts|amps|"
    r"kilograms|watts|ohms|gallons|ounces|is|was|has|as|does)[a-z]{3,40}s)\b)|\d[05]0(?= [Ee]uros\b))|"
    r"\d{1,3}\.\d{3}\.\d{3}(?:\.\d{3}\.\d{3})?)(?!\w|[.,]\d)"
)
DECIMAL_UNITS = "kg|g|mg|km|m|cm|mm|l|L|ml|%|[Ee]uros?|EUR|°C|kW|kWh|V|GB|MB|percent"
EURO_PRICE = re.compile(r"(?<![\w.,])(\d{1,4}),(\d\d) ?€(?!\w)")  # 850,00 and the euro's sign
OTHER_POINTS = str.maketrans(".,", ",.")
# The library reads five digits one by one. Round numbers, and those before a plural, count something.
LONG_NUMBER = re.compile(
    r"(?<![\w.,:#/+-])(?<!\d )[1-9]\d{4,8}(?![\w/+-]|[.,:]\d| \d)(?:(?<=00)|(?= (?:[a-z]{3,40}s|people)\b))"
)
# Words before a number that is a name, and states before a ZIP code: NY 10000.
NUMBERED = alternatives_of("figures.numbered")
IDENTIFIER = re.compile(rf"\b(?:[A-Z]{{2,}}|(?i:{NUMBERED}))\W{{1,3}}(?:(?:is|was|no|number)\W{{1,3}})?\Z")
# Counts of four digits: she left him 1999 books, 1250 feet, but in 1999 books were cheap.
COUNTED = re.compile(
    r"(?<![\w.,:#/+$-])([A-Za-z]+) ([1-9]\d{3})(?= (?:(?:new|more|other|confirmed|additional|different|young|square|"
    r"cubic|nautical|British|American) )?((?!(?:is|was|has|does|goes|as|this|its|his|us|sees|yes)\b)"
    r"[a-z]{2,30}s|people|feet|men|women|children)\b)"
)
BEFORE_YEARS = word_set("figures.before_years")
OPENING_COUNTS = frozenset(("about", "over", "nearly", "almost", "some", "exactly", "only", "roughly", "all"))
GIVEN = re.compile(r"\b(?:left|gave|gives|give|sent|sold|lent|showed|bought|brought|paid|owes?|owed|cost) \Z")
MEASURES = word_set("figures.measures")
LONGEST_NAME = 40  # characters before a number that are searched for such a word
# a 1,500-meter race, a 100-year-old tree
THOUSANDS_HYPHEN = re.compile(
    r"(?<=\d,\d{3})-(?=[a-z])|(?:(?<=[ \"'(]\d{3})|(?<=[ \"'(]\d{4})|(?<=^\d{3})|(?<=^\d{4}))-(?=[a-z]{3,20}-)"
)
# Flights and models by letters: BA117, KC-135, MH370; planes with two numbers: 737-800, A350-1000.
CODE = re.compile(r"(?<![\w.,/-])([A-Z]{2,3})-?([1-9]\d{2,3})(?![\w-]|[.,/:]\d)")
NO_CODES = frozenset(("ISO", "SHA", "AES", "AD", "BC", "CE", "AM", "PM", "RFC", "IEC", "DIN", "NO", "RS", *CODES))
JUMBO = re.compile(
    r"\b((?:[Aa]|[Tt]he|[Aa]nother|[a-z]+'s|[Tt]wo|[Tt]hree|[Ff]our|[Ff]ive|new|old) )(7[0-8]7)(s?)"
    r"(?![-.,/]\d|-[a-z]| (?!(?:is|was|has)\b)(?:[a-z]+s|people)\b)(?!\w)"
)
MODELS = re.compile(r"(?<![\w.,/-])([A-Z]{1,3})-?([1-9]\d{0,2})s\b(?!-)")  # B-52s, A4s, mp3s
# 100s of people, two 5s, 2x4s
PLURALS = re.compile(
    r"(?<![\w.,:$£€/-])(1(?:0{2,3}|0,000|00,000))s(?= of\b)|"
    r"(?:(?<=\dx)|(?<=\d by )|(?<=\b[Tt]wo )|(?<=\b[Tt]hree )|(?<=\b[Ff]our )|(?<=\ball ))([1-9])s\b"
)
HUNDREDS = table("figures.hundreds")
# 35 000 feet
SPACED_THOUSANDS = re.compile(r"(?<![\w.,$/+-])(?<!\d )([1-9]\d{0,2}(?: 000){1,3})(?! ?\d|[.,]\d|\w)")
NOT_FOUND = re.compile(r"\b((?i:error|code|code is|an?|the|http) )?404\b(?(1)(?!-|[.,]\d| [a-z]+s\b)|(?= errors?\b))")
# Flight 370, Room 101: said as years are.
NAMED = alternatives_of("figures.named")
NAMED_NUMBER = re.compile(rf"\b((?:{NAMED}) (?:[A-Z](?= ?\d)|[A-Z]{{2}}\b)?) ?(?<=[A-Z ])([1-9]\d\d\d?)\b(?![-.,]\d)")
ELEMENTS = "Al|Ag|Ar|Au|Ba|Br|Ca|Cl|Cr|Cu|Fe|He|Hg|Li|Mg|Mn|Na|Ne|Ni|Pb|Si|Sn|Ti|Zn|B|C|F|H|I|K|N|O|P|S|U"
FORMULA = re.compile(
    rf"\b(?!NaN\b)(?=[A-Za-z]{{1,6}}\d|[A-Z][a-z]?[A-Z][a-z]?[A-Z]?\b(?<![A-Z]{{2}})|[A-Z][a-z][A-Z]{{1,2}}\b)(?:(?:{ELEMENTS})\d{{0,2}}){{2,8}}\b(?!\.\d)"
)
ELEMENT = re.compile(r"([A-Z][a-z]?)(\d*)")


def _long_number(match: re.Match[str]) -> str:
    return match[0] if IDENTIFIER.search(text_before(match, LONGEST_NAME)) else f"{int(match[0]):,}"


def _plane(match: re.Match[str]) -> str:
    kind = f"A {in_pairs(match[2])}" if match[1] else in_pairs(match[3])
    return f"{kind} {in_pairs(match[4])}"


def _jumbo(match: re.Match[str]) -> str:
    name = in_pairs(match[2])
    return match[1] + (plural(name) if match[3] else name)


def _counted(match: re.Match[str]) -> str:
    """Return a number of four digits before a plural with a comma, unless it may be a year: by 1999 books fell."""
    word, number, noun = match[1], match[2], match[3]
    if number.endswith("00") or (noun not in MEASURES and _dates(word, match)):
        return match[0]
    return f"{word} {int(number):,}"


def _dates(word: str, match: re.Match[str]) -> bool:
    """Return whether a number after a word, such as "in", may be a year; "gave her 1999 books" has none."""
    if word == "her":
        return GIVEN.search(text_before(match, LONGEST_NAME)) is None
    return word.lower() in BEFORE_YEARS or (word[0].isupper() and word.lower() not in OPENING_COUNTS)


def _version(match: re.Match[str]) -> str:
    """Return a version's number; a date (17.4.2024) is left to the library."""
    is_date = len(match[3]) == 4 and int(match[1][:3]) <= 31 and int(match[2][:3]) <= 12
    return match[0] if is_date else " point ".join(match.groups())


def _formula(match: re.Match[str]) -> str:
    said = []
    for symbol, count in ELEMENT.findall(match[0]):
        said += [spell(symbol.upper())] + ([small_number(int(count))] if count else [])
    return " ".join(said)


def _retirement(match: re.Match[str]) -> str:
    return " ".join([in_pairs(match[1]), spell(match[2].upper()), *([DIGITS[int(match[3])]] if match[3] else [])])


RULES: tuple[Rule, ...] = (
    (THOUSANDS_HYPHEN, " "),
    rule(r"(?<![\w&#])(?:#|\bNo\.? ?#)(?=\d)", "number "),  # #1
    rule(r"\b([1-9]\d)ers\b", lambda match: small_number(int(match[1])).rstrip("e") + "ers"),  # the 49ers
    rule(r"\b(401|403|501)\(?([a-z])\)?(?:\((\d)\))?(?!\w)", _retirement),  # 401(k)
    rule(r"(?<![\w.,])00([1-9])\b(?![.,:]\d)", lambda match: f"double oh {DIGITS[int(match[1])]}"),  # 007
    rule(r"\b(\d{3,4})([pi])\b", lambda match: f"{in_pairs(match[1])} {spell(match[2].upper())}"),  # 1080p
    (FORMULA, _formula),
    (CONTINENTAL, lambda match: match[0].removesuffix(",00").translate(OTHER_POINTS)),
    (EURO_PRICE, lambda match: f"€{match[1]}" + (f".{match[2]}" if int(match[2]) else "")),
    rule(rf"(?<![\w.,])(\d{{1,4}}),(\d{{1,2}})(?= ?(?:{DECIMAL_UNITS})(?!\w))", r"\1.\2"),  # 3,5 kg
    rule(r"(?<![\d.])(\d+)\.(\d+)\.(\d+)(?!\.?\d)", _version),
    rule(r"(?<![\w./@:])([A-Za-z]+)(\d+)\.(\d+)(?![\w/@]|\.\w)", r"\1 \2 point \3"),  # Qwen3.5
    rule(r"(?<=[a-z])(?<!\d[a-z]{2})-(?=\d{1,3}(?:st|nd|rd|th)\b)", " "),  # mid-20th
    rule(r"(?<=\d(?:st|nd|rd|th))-(?=[A-Za-z\s])", " "),  # 20th-century, 18th- and
    (SPACED_THOUSANDS, lambda match: match[0].replace(" ", ",")),
    (NOT_FOUND, lambda match: (match[1] or "") + "four oh four"),
    (MODELS, lambda match: f"{spell(match[1])} {plural(in_pairs(match[2]))}"),
    (PLURALS, lambda match: HUNDREDS[match[1]] if match[1] else plural(DIGITS[int(match[2])])),
    rule(r"(?<![\w.,/-])(?:(A)(3[1-8]0)|(7[0-8]7))-(8|9|10|1?\d00|\d{3})(?:ER|LR)?(?![\w-]|[.,]\d)", _plane),
    (CODE, lambda match: match[0] if match[1] in NO_CODES else f"{spell(match[1])} {in_pairs(match[2])}"),
    (JUMBO, _jumbo),
    (NAMED_NUMBER, lambda match: f"{match[1].rstrip()} {in_pairs(match[2])}"),
    # A380, I-405
    rule(r"(?<![\w.,/-])([A-Z])-?([1-9]\d\d)\b(?![-.,/:]\d)", lambda match: f"{match[1]} {in_pairs(match[2])}"),
)
LONG_NUMBERS: tuple[Rule, ...] = ((LONG_NUMBER, _long_number), (COUNTED, _counted))


# Seven digits alone are a number of a telephone only with a hyphen, and if their exchange is one: 200 or above.
PHONE = re.compile(
    r"(?<![\w.,$£€-])(?:(?:\d{1,3}[ -])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-.]|[2-9]\d{2}-)"
    r"\d{4}(?!\.?[\w-])"
)
TOLL_FREE = re.compile(r"(?<![\w.,$£€-])(?:1[ -])?8(?:00|88|77|66|55|44|33) \d{3} \d{4}(?!\.?[\w-])")
# Three digits that are dialed one by one: call 112 or 999
OR = r"(?:(?:, (?:or |and )?| or | and |/){}(?![\w%]))*"
CALLED = re.compile(
    r"\b(?i:call|calls|called|calling|dial|dials|dialed|dialled|dialing|text|phone|ring|rang) "
    rf"\d{{3}}{OR.format('[0-9]{3}')}\b(?![-.]?\w| [a-z]+s\b)|\b(?:112|911|999)(?= or | and |/)"
    rf"{OR.replace('*', '+').format('(?:112|911|999)')}"
)
THREE = re.compile(r"\b\d{3}\b")
EMERGENCY = re.compile(r"(?<![\w.,/$£€-])(?<!Porsche )911\b(?![-.:/]\w| (?:people|[a-z]+s\b(?<!calls)(?<!operators)))")
# Four digits and more after these: the code for the gate is 4471.
SECRET = re.compile(
    r"\b((?i:code|pin|passcode|password|combination)\b(?:[^.,;!?\d\n]{0,30}\b(?:is|was|number|to))?:? ?(?:no\. |#)?)"
    r"(\d{4,8})\b(?![.,/-]\d)"
)
# 020 7946 0018
LOCAL_PHONE = re.compile(r"(?<![\w.,+/-])(?<!\d )\(?0\d{2,4}\)? \d{3,7}(?: \d{3,4})?\b(?![-.,]?\d)")
TELEPHONES: tuple[Rule, ...] = (
    # +1 800 555 0123, +44 7700 900123
    rule(r"(?<![\w+])\+(?:[ .()-]{0,2}\d){8,15}(?!\.?\w|-)", lambda match: "plus " + spell_digits(match[0])),
    (PHONE, lambda match: spell_digits(match[0])),
    (LOCAL_PHONE, lambda match: spell_digits(match[0])),
    rule(r"\b1-(8\d\d)-(?=[A-Z]{4})", lambda match: f"one {in_pairs(match[1])} "),  # 1-800-FLOWERS
    (TOLL_FREE, lambda match: spell_digits(match[0])),
    (CALLED, lambda match: THREE.sub(lambda one: spell_digits(one[0]), match[0])),
    (EMERGENCY, "nine one one"),
    (SECRET, lambda match: match[1] + spell_digits(match[2])),
    rule(r"\b((?i:extension)) (\d{2,5})\b", lambda match: f"{match[1]} {spell_digits(match[2])}"),
)
