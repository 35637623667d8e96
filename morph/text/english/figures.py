"""Figures: long numbers, versions, ordinals, fractions that are none, ranges, ratios, scores, formulas, telephones."""

from __future__ import annotations

import re

from .letters import spell
from .rules import Rule
from .words import DIGITS, in_pairs, small_number, spell_digits

# Seven digits alone are a number of a telephone only with a hyphen, and if their exchange is one: 200 or above.
PHONE = re.compile(
    r"(?<![\w.,$\u00a3\u20ac-])(?:(?:\+?\d{1,3}[ -])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-.]|(?:\+\d{1,3}[ -])?[2-9]\d{2}-)"
    r"\d{4}(?!\.?[\w-])"
)
WORLD_PHONE = re.compile(r"(?<![\w+])\+\d{1,3}(?:[ -.]\(?\d{1,5}\)?){2,6}(?!\.?\w|-)")  # +1 800 555 0123
TOLL_FREE = re.compile(
    r"(?<![\w.,$\u00a3\u20ac-])(?:1[ -])?8(?:00|88|77|66|55|44|33) \d{3} \d{4}(?!\.?[\w-])"
)
# Three digits that are dialed one by one.
CALLED = re.compile(
    r"\b((?i:call|calls|called|calling|dial|dials|dialed|dialled|dialing|text|phone)) (\d{3})\b(?![-.]?\w| [a-z]+s\b)"
)
EMERGENCY = re.compile(
    r"(?<![\w.,/$\u00a3\u20ac-])(?<!Porsche )911\b(?![-.:/]\w| (?:people|[a-z]+s\b(?<!calls)(?<!operators)))"
)
EXTENSION = re.compile(r"\b((?i:extension)) (\d{2,5})\b")
# Four digits and more behind these are said one by one, unless they are years: the code is 4471.
SECRET = re.compile(
    r"\b((?i:code|pin|passcode|password|combination)\b(?:[^.,;!?\d\n]{0,30}\b(?:is|was|number|to))?:? ?(?:no\. |#)?)(\d{4,8})\b(?![.,/-]\d)"
)
SECURITY_NUMBER = re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])")
# 1.000,50, and €10.000: a continental number has a comma behind the thousands, or is a price of whole thousands.
CONTINENTAL = re.compile(
    r"(?<![\w.,])(?:(?<=\u20ac)\d{1,3}(?:\.\d{3})*\.000|\d{1,3}(?:\.\d{3})+(?:,\d{1,2}|(?<=\.000)(?= ?(?:\u20ac|[Ee]uros?\b|EUR\b)))|"
    r"\d{1,3}\.\d{3}\.\d{3}(?:\.\d{3}\.\d{3})?)(?!\w|[.,]\d)"
)
COMMA_DECIMAL = re.compile(
    r"(?<![\w.,])(\d{1,4}),(\d{1,2})(?= ?(?:kg|g|mg|km|m|cm|mm|l|L|ml|%|[Ee]uros?|EUR|\u00b0C|kW|kWh|V|GB|MB|percent)(?!\w))"
)
EURO_PRICE = re.compile(r"(?<![\w.,])(\d{1,4}),(\d\d) ?\u20ac(?!\w)")  # 850,00 \u20ac
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
BEFORE_ORDINAL = re.compile(r"(?<=[a-z])-(?=\d{1,3}(?:st|nd|rd|th)\b)")  # mid-20th
PRESSURE = re.compile(r"(?<![\w./$\u00a3\u20ac])([89]\d|1\d\d|2[0-4]\d)/([4-9]\d|1[0-3]\d)(?![\w/]|\.\d)")  # 120/80
SHARES = re.compile(r"(?<![\w./$\u00a3\u20ac])(\d\d)/(\d\d)(?![\w/]|\.\d)")  # 50/50, 20/20
OUT_OF = re.compile(
    r"(?<![\w./$\u00a3\u20ac])(?<!\d )(\d{1,3}(?:\.\d)?)/(10|100)(?![\w/-]|\.\d| (?:of (?:an?|the)|inch|mile|cup|second)\b)|"
    r"(?<![\w./$\u00a3\u20ac])(?<!\d )(\d(?:\.\d)?)/(5)(?= (?:stars?|rating)\b)"
)
INCH_FRACTION = re.compile(r"(?<![\d/])(\d{1,2}/\d{1,2})-(?=[a-z])")  # 1/4-inch
WORDS_OF_SCORES = r"won|lost|score was|score is|score of|beat \w+|beats \w+|defeated \w+|drew|tied|led|leads|leading|trailed"
SCORE = re.compile(rf"(?i)\b({WORDS_OF_SCORES}) (\d{{1,3}})[-\u2013:](\d{{1,3}})\b")
COUNT = r"\d{1,4}(?:,\d{3})*(?:\.\d+)?"
RANGE = re.compile(rf"(?<![\w.,:/+\u00b0-])({COUNT}) ?- ?({COUNT})(?![\w-]*-\d|/\d|:\d|[.,]\d|\d)(?! ?=)")
NUMBER_ROW = re.compile(r"(?<![\w.,:/+-])\d{1,2}(?:-\d{1,2}){2,4}(?![\w/-]|[.,]\d)")  # 4-4-2
ASPECTS = frozenset(("16:9", "4:3", "21:9", "16:10", "32:9", "3:2", "5:4"))
RATIO = re.compile(r"(?<![\w:.,/])(\d{1,4}):(\d{1,4})(?![\w:/]|[.,-]\d)")
RATIO_WORDS = re.compile(r"(?i)\b(?:ratios?|scale|odds|mix|mixed|diluted|proportions?|outnumbered)\b")
TIME_WORDS = re.compile(r"(?i) ?(?:[ap]\.?m\b|o'clock)")
BOOKS = (
    "Genesis|Exodus|Leviticus|Numbers|Deuteronomy|Joshua|Judges|Ruth|Samuel|Kings|Chronicles|Ezra|Nehemiah|Esther|Job|"
    "Psalms?|Proverbs|Ecclesiastes|Isaiah|Jeremiah|Lamentations|Ezekiel|Daniel|Hosea|Joel|Amos|Obadiah|Jonah|Micah|Nahum|"
    "Habakkuk|Zephaniah|Haggai|Zechariah|Malachi|Matthew|Mark|Luke|John|Acts|Romans|Corinthians|Galatians|Ephesians|"
    "Philippians|Colossians|Thessalonians|Timothy|Titus|Philemon|Hebrews|James|Peter|Jude|Revelation|Surah|Quran"
)
VERSE = re.compile(rf"\b((?:[123] )?(?:{BOOKS})) (\d{{1,3}}):(\d{{1,3}})(?:-(\d{{1,3}}))?(?![\d:])")
HASH = re.compile(r"(?<![\w&#])(?:#|\bNo\.? ?#)(?=\d)")  # #1
DIGIT_CODE = re.compile(r"(?<![\w.,])00([1-9])\b(?![.,:]\d)")  # 007
PLANE = re.compile(
    r"\b((?:Boeing|Airbus|Porsche|[Ff]light|[Hh]ighway|Interstate|[Rr]oute|Area|Levi's|[Rr]oom|[Ss]uite) (?:[A-Z]{1,2} ?)?)([1-9]\d\d\d?)\b(?![-.,]\d)"
)
RESOLUTION = re.compile(r"\b(\d{3,4})([pi])\b")  # 1080p
ELEMENTS = "Al|Ag|Ar|Au|Ba|Br|Ca|Cl|Cr|Cu|Fe|He|Hg|Li|Mg|Mn|Na|Ne|Ni|Pb|Si|Sn|Ti|Zn|B|C|F|H|I|K|N|O|P|S|U"
FORMULA = re.compile(rf"\b(?=[A-Za-z]{{1,6}}\d)(?:(?:{ELEMENTS})\d{{0,2}}){{2,8}}\b")
ELEMENT = re.compile(r"([A-Z][a-z]?)(\d*)")
RETIREMENT = re.compile(r"\b(401|403|501)\(?([a-z])\)?(?:\((\d)\))?(?!\w)")  # 401(k)


def _long_number(match: re.Match[str]) -> str:
    """Return a number of five or more digits with commas, so that it is read as one, unless it is a name."""
    before = match.string[max(0, match.start() - LONGEST_NAME) : match.start()]
    return match[0] if IDENTIFIER.search(before) else f"{int(match[0]):,}"


def _continental(match: re.Match[str]) -> str:
    return match[0].translate(OTHER_POINTS)


def _version(match: re.Match[str]) -> str:
    """Return a version's number; a date (17.4.2024) is left to the library."""
    is_date = len(match[3]) == 4 and int(match[1][:3]) <= 31 and int(match[2][:3]) <= 12
    return match[0] if is_date else " point ".join(match.groups())


def _shares(match: re.Match[str]) -> str:
    """Return two parts of a hundred, or two equal numbers, as two numbers: 60/40 and 20/20 are no fractions."""
    high, low = int(match[1]), int(match[2])
    return f"{match[1]} {match[2]}" if high + low == 100 or high == low else match[0]


def _pressure(match: re.Match[str]) -> str:
    high, low = match.groups()
    return f"{in_pairs(high)} over {in_pairs(low)}" if int(high) > int(low) else match[0]


def _out_of(match: re.Match[str]) -> str:
    """Return points of a scale: 7/10 "7 out of 10"; 1/10 and more than there are stay fractions."""
    count, whole = (match[1], match[2]) if match[1] else (match[3], match[4])
    return f"{count} out of {whole}" if 1 < float(count) <= int(whole) else match[0]


def _score(match: re.Match[str]) -> str:
    return f"{match[1]} {match[2]} to {match[3]}"


def _range(match: re.Match[str]) -> str:
    """Return "2 to 3" for 2-3; two numbers that do not rise are a score, said side by side: 6-4."""
    low, high = (float(number.replace(",", "")) for number in match.groups())
    if match[1].startswith("0") and len(match[1]) > 1 and "." not in match[1]:
        return match[0]
    return f"{match[1]} to {match[2]}" if low < high else f"{match[1]} {match[2]}"


def _ratio(match: re.Match[str]) -> str:
    """Return "3 to 1" for 3:1, and "16 by 9" for a screen; what may be a time of the day is one, unless a word tells."""
    is_time = len(match[2]) == 2 and int(match[1]) < 25 and int(match[2]) < 60
    around = match.string[max(0, match.start() - 12) : match.end() + 16]
    if is_time and match[0] not in ASPECTS and not RATIO_WORDS.search(around):
        return match[0]
    if TIME_WORDS.match(match.string, match.end()):
        return match[0]
    return f"{match[1]} {'by' if match[0] in ASPECTS else 'to'} {match[2]}"


def _verse(match: re.Match[str]) -> str:
    """Return "Psalm 23 verse 4" for Psalm 23:4."""
    book, chapter, verse, last = match.groups()
    return f"{book} {chapter} verse {verse}" if last is None else f"{book} {chapter} verses {verse} to {last}"


def _plane(match: re.Match[str]) -> str:
    return match[1] + in_pairs(match[2])


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


TELEPHONES: tuple[Rule, ...] = (
    (WORLD_PHONE, lambda match: "plus " + spell_digits(match[0])),
    (PHONE, lambda match: spell_digits(match[0])),
    (TOLL_FREE, lambda match: spell_digits(match[0])),
    (SECURITY_NUMBER, lambda match: spell_digits(match[0])),
    (CALLED, lambda match: f"{match[1]} {spell_digits(match[2])}"),  # call 911
    (EMERGENCY, "nine one one"),
    (SECRET, lambda match: match[1] + spell_digits(match[2])),
    (EXTENSION, lambda match: f"{match[1]} {spell_digits(match[2])}"),
)
RULES: tuple[Rule, ...] = (
    (HASH, "number "),
    (RETIREMENT, _retirement),
    (DIGIT_CODE, lambda match: f"double oh {DIGITS[int(match[1])]}"),
    (RESOLUTION, _resolution),
    (FORMULA, _formula),
    (CONTINENTAL, _continental),
    (EURO_PRICE, lambda match: f"\u20ac{match[1]}" + (f".{match[2]}" if int(match[2]) else "")),
    (COMMA_DECIMAL, r"\1.\2"),  # 3,5 kg
    (VERSION, _version),
    (NAMED_VERSION, r"\1 \2 point \3"),
    (INCH_FRACTION, r"\1 "),
    (BEFORE_ORDINAL, " "),
    (ORDINAL_HYPHEN, " "),
    (SHARES, _shares),
    (PRESSURE, _pressure),
    (OUT_OF, _out_of),
    (VERSE, _verse),
    (SCORE, _score),
    (RATIO, _ratio),
    (NUMBER_ROW, lambda match: match[0].replace("-", " ")),
    (PLANE, _plane),
)
# Behind prices and dates, which may have hyphens too.
RANGES: tuple[Rule, ...] = ((RANGE, _range),)
LONG_NUMBERS: tuple[Rule, ...] = ((LONG_NUMBER, _long_number),)
