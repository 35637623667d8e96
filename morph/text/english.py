"""English as people read it aloud: rules for what the normalizer's library leaves out or reads differently.

``before`` runs before the library (telephone numbers, 24/7, feet and inches, Roman numerals, units), ``after`` runs
after it (capitals, month names, remaining digits). Every rule is a small substitution that takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .split import OPENERS

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    *(
        "eleventh",
        "twelfth",
        "thirteenth",
        "fourteenth",
        "fifteenth",
        "sixteenth",
        "seventeenth",
        "eighteenth",
    ),
)
ENDINGS = {1: "st", 2: "nd", 3: "rd"}
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october"),
    *("november", "december"),
)
MONTH_OF_DAY = re.compile(rf"\b({'|'.join(MONTHS)})(?= \w+(?:th|st|nd|rd)\b)")
SHORT_MONTH = re.compile(r"\b(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)\.? (?=\d)")
SHORT_DAYS = {"Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday"} | {
    "Thurs": "Thursday",
    "Fri": "Friday",
    "Sat": "Saturday",
    "Sun": "Sunday",
}
SHORT_DAY = re.compile(rf"\b({'|'.join(SHORT_DAYS)})\.(?=,? [A-Za-z\d])")
NOTE_MARKS = re.compile(r"(?<=[.,;:!?\"])(?:\[\d{1,3}\])+")  # Wikipedia's, behind a sentence or a clause
SHORT_WORDS_BEFORE_NUMBERS = {"no": "number", "p": "page", "pp": "pages", "ch": "chapter"}
BEFORE_NUMBER = re.compile(rf"\b(?i:({'|'.join(SHORT_WORDS_BEFORE_NUMBERS)}))\. (?=\d)")
# Seven digits alone are a number of a telephone only with a hyphen, and if their exchange is one: 200 or above.
PHONE = re.compile(
    r"(?<![\w.,$\u00a3\u20ac-])(?:(?:\+?\d{1,3}[ -])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-.]|(?:\+\d{1,3}[ -])?[2-9]\d{2}-)"
    r"\d{4}(?!\.?[\w-])"
)
FEET = re.compile(r"(?<!['\"])\b(\d{1,2})'(?: ?(\d{1,2})(\"|''|(?=\s|[.,]|$)))?(?![\w'])")
# A quotation mark that opens or closes; years such as '90s open nothing.
QUOTE = re.compile(r"(?P<opens>(?<!\w)'(?!\d\ds\b)(?=\w))|(?<=[\w.,!?])'(?!\w)")
LONGEST_QUOTE = 80  # characters, as far as its beginning is looked for
ABOUT = re.compile(r"(?<![\w~\u2248])[~\u2248] ?(?=[$\u00a3\u20ac]?\d)")
# A quotation that ends in a figure: a figure alone, or one behind which nothing else ends it ("A 27" screen.").
OPENS = r"(?<![\w.,!?%'\")\]])\"(?=[^\s\"])"
QUOTED = re.compile(rf"({OPENS}(?:[\d.,:]+(?=\")|[^\"]*(?=\"[^\"]*(?:\Z|{OPENS}))))(?<=\d)\"")
CLOSING = "\u201d"  # the library reads " behind a figure as inches
MINUS = re.compile(r"(?<![\w$\u00a3\u20ac)-])-(?=[$\u00a3\u20ac]\d)")
INCH_FRACTION = re.compile(r"(?<![\d/])(\d{1,2}/\d{1,2})-(?=[a-z])")  # 1/4-inch
AND = re.compile(r"\b([A-Z]+)&([A-Z]+)\b|(?<=[A-Za-z])&(?=[A-Za-z])")
DOTTED = re.compile(r"\b(?![AP]\.M\.)(?:[A-Z]\.){2,}(?P<stop>$)?")  # U.S., not the time of a day
# 1.000,50, and €10.000: a continental number has a comma behind the thousands, or is a price of whole thousands.
CONTINENTAL = re.compile(
    r"(?<![\w.,])(?:(?<=\u20ac)\d{1,3}(?:\.\d{3})*\.000|\d{1,3}(?:\.\d{3})+(?:,\d{1,2}|(?<=\.000)(?= ?\u20ac)))"
    r"(?!\w|[.,]\d)"
)
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
ALWAYS_OPEN = re.compile(r"\b24/7\b")
NINE_ELEVEN = re.compile(r"(?<![\w./])9/11(?![\w/]| of\b)")
SHARES = re.compile(r"(?<![\w./$\u00a3\u20ac])(\d\d)/(\d\d)(?![\w/]|\.\d)")  # 50/50
SCORE = re.compile(r"(?i)\b(won|lost|score was|score is|beat \w+|drew) (\d{1,3})[-\u2013](\d{1,3})\b")
# What the library leaves out or spells: singular and plural.
UNITS = {
    "m": ("meter", "meters"),
    "mm": ("millimeter", "millimeters"),
    "m/s": ("meter per second", "meters per second"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "s": ("second", "seconds"),
    "ms": ("millisecond", "milliseconds"),
    "min": ("minute", "minutes"),
    "h": ("hour", "hours"),
    "g": ("gram", "grams"),
    "l": ("liter", "liters"),
    "V": ("volt", "volts"),
    "W": ("watt", "watts"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "kHz": ("kilohertz", "kilohertz"),
    "KB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
}
# Letters that also have other meanings directly behind a number (the s of "1990s", 5h) need a space.
SPACED = ("s", "h", "min", "V", "W")
UNIT = re.compile(
    rf"(?<=\d)(?: ?(?!(?:{'|'.join(SPACED)})\b)| )({'|'.join(sorted(UNITS, key=len, reverse=True))})(?![\w'/])"
)
NAME_BEHIND = re.compile(r"\. ([A-Z]\w*)")
MONEY_RANGE = re.compile(
    r"(?<![A-Za-z])([$\u00a3\u20ac])(\d+(?:[.,]\d+)*)-(\d+(?:[.,]\d+)*)"
    r"(?=(?:k|K|m|M|mn|bn|B|tn)\b|(?![\w/-]|[.,]\d))"
)
MONEY = re.compile(r"([$\u00a3\u20ac]\d[\d,.]*) ?(k|K|m|M|mn|bn|B|tn)(?![\w'])")
MILLIONS = {
    "m": "million",
    "M": "million",
    "mn": "million",
    "bn": "billion",
    "B": "billion",
    "tn": "trillion",
}
ROMAN = re.compile(r"\b(?=[IVXL]{1,8}\b)(?:XL|L?X{0,3})(?:IX|IV|V?I{0,3})\b")
NUMBERED = re.compile(
    r"(?:(?<![\w'])([A-Za-z]{1,8}) )?\b((?i:chapter|part|act|volume|book|section|scene|phase|world war|type|appendix)) "
    r"([IVX]{1,5})\b"
)
DETERMINERS = frozenset(
    """
    a an the this that these those my your his her its our their each every any some no what which whose one only first
    second next last best whole
    """.split()  # noqa: SIM905 - as a list it would take thirty lines
)
RULERS = (
    "Alexander|Catherine|Charles|Edward|Elizabeth|Frederick|George|Henry|Ivan|James|John Paul|Louis|Margaret|Napoleon|"
    "Nicholas|Peter|Philip|Richard|William|Pope [A-Z][a-z]+"
)
RULER = re.compile(rf"\b((?:(?:King|Queen|Emperor|Tsar) )?(?:{RULERS})) ([IVX]{{1,5}})\b")
TITLE = re.compile(r"King|Queen|Emperor|Tsar|Pope")
SUPER_BOWL = re.compile(r"(?<=\bSuper Bowl )[IVXL]{1,8}\b")
# No word and no initial, as IV (a drip), VI (an editor) and XX may be.
SURE_NUMERAL = re.compile(r"(?<=[A-Za-z] )(?:II|IX|(?!XXX)[IVX]{3,6})\b")
# An I before anything else is the speaker.
BEHIND_NUMERAL = re.compile(r"'s\b|\s*(?:[.,;:!?)\]\"]|$)|\s+(?:of\b|(?:and|or|to) [A-Z])")
# Letters by name: every voice tried says "bee bee see" correctly, hardly any says "B B C" correctly (demo voice).
LETTER_NAMES = """
ay bee see dee ee eff gee aitch eye jay kay ell em en oh pee cue ar ess tee you vee double-you ex why zee
"""
LETTERS = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", LETTER_NAMES.split(), strict=True))
WORD = re.compile(r"[A-Za-z]+")
CAPITALS = re.compile(r"\b([A-Z]+)((?:['\u2019][A-Z]+)+)\b|\b[A-Z]{2,}\b")
VOWELS = frozenset("AEIOUY")
LONGEST_SPELLED = 3
# Words of two and three letters that are in capitals for stress ("I do NOT agree"), not spelled out.
SHORT_WORDS = frozenset(
    """
    ad add age ago air all and any are art as ask at ate bad bag be bed big bit box boy bus but buy by can car cat cry
    cup cut day did die do dog dry due eat egg end eye far few fit fix fly for fun get go god got had has hat he her
    hey hi him his hit hot how ice if in is it its job joy key kid law lay led leg let lie lot low mad man map may me
    men met mom mr mrs my nah new no nor not now odd of off oh old on one or our out own pay pen per put ran red rid
    run sad sat saw say sea see set she shy sit six sky so son stop sun ten the tie to too top try two up us use van
    war was way we wet who why win won wow yes yet you
    """.split()  # noqa: SIM905 - as a list it would take two hundred lines
)


def before(sentence: str) -> str:
    """Write out what the library would read wrongly."""
    for rule, said in RULES:
        sentence = rule.sub(said, sentence)
    return sentence


def after(sentence: str) -> str:
    """Write out remaining capitals and digits, and capitalize months."""
    sentence = lower_capitals(sentence.replace(CLOSING, '"'))
    sentence = re.sub(r"\d", lambda match: f" {DIGITS[int(match[0])]} ", sentence)
    sentence = MONTH_OF_DAY.sub(lambda match: match[0].title(), sentence)
    sentence = " ".join(sentence.split())
    return sentence[:1].upper() + sentence[1:]


def lower_capitals(sentence: str) -> str:
    """Write words in capitals as they are spoken: ``STOP`` "stop", ``NASA`` "Nasa", ``BBC`` "bee bee see".

    If most words of a sentence are in capitals, short ones are read as words too, not letter by letter.
    """
    words = [word for word in WORD.findall(sentence) if len(word) > 1]
    shouted = sum(word.isupper() for word in words)
    loud = (
        len(words) > 1 and shouted > 1 and 2 * shouted > len(words) and any(len(word) > 4 for word in words)
    )
    return CAPITALS.sub(lambda match: _say_capitals(match[1] or match[0], loud, match[2] or ""), sentence)


def _say_capitals(word: str, loud: bool, ending: str = "") -> str:
    """Return a word in capitals as it is spoken; ``ending``: what is behind it with an apostrophe ('S, 'LL)."""
    if ending and ending[1:] != "S":  # a short form: DON'T, I'LL
        return ("I" if word == "I" else word.lower()) + ending.lower()
    if word.lower() in SHORT_WORDS:
        return word.lower() + ending.lower()
    voiced = sum(letter in VOWELS for letter in word)
    if voiced and (loud or len(word) > LONGEST_SPELLED):
        return (word.lower() if loud else word.capitalize()) + ending.lower()
    return (spell(word) if len(word) > 1 else word) + ending.lower()


def spell(word: str) -> str:
    """Return capitals letter by letter, by their names."""
    return " ".join(LETTERS[letter] for letter in word)


def _spell_digits(number: str) -> str:
    """Return a telephone number digit by digit, with a pause between its groups."""
    groups = re.findall(r"\d+", number)
    return ", ".join(" ".join(DIGITS[int(digit)] for digit in group) for group in groups)


def _month(start: str) -> str:
    return next(month for month in MONTHS if month.startswith(start[:3].lower())).capitalize()


def _before_number(word: str) -> str:
    said = SHORT_WORDS_BEFORE_NUMBERS[word.lower()]
    return f"{said.capitalize() if word[0].isupper() else said} "


def _feet(match: re.Match[str]) -> str:
    quoted = not match[3] and _is_quoted(match.string[max(0, match.start() - LONGEST_QUOTE) : match.start()])
    if quoted:
        return match[0]
    feet = f"{match[1]} {'foot' if match[2] else 'feet'}"
    return f"{feet} {match[2]}" if match[2] else feet


def _is_quoted(before: str) -> bool:
    """Return whether a single quotation mark before a place is still open there."""
    marks = list(QUOTE.finditer(before))
    return bool(marks) and marks[-1]["opens"] is not None


def _compound(match: re.Match[str]) -> str:
    """Return names with "&": Q&A "Q and A", AT&T "ay tee and tee", salt&pepper "salt and pepper"."""
    if match[1] is None:
        return " and "
    short = min(len(match[1]), len(match[2])) == 1 and max(len(match[1]), len(match[2])) <= LONGEST_SPELLED
    if not short or len(match[0]) == len("Q&A"):
        return f"{match[1]} and {match[2]}"
    return f"{spell(match[1])} and {spell(match[2])}"


def _long_number(match: re.Match[str]) -> str:
    """Return a number of five or more digits with commas, so that it is read as one, unless it is a name."""
    before = match.string[max(0, match.start() - LONGEST_NAME) : match.start()]
    return match[0] if IDENTIFIER.search(before) else f"{int(match[0]):,}"


def _shares(match: re.Match[str]) -> str:
    """Return two parts of a hundred as two numbers: 60/40 is no fraction."""
    return f"{match[1]} {match[2]}" if int(match[1]) + int(match[2]) == 100 else match[0]


def _version(match: re.Match[str]) -> str:
    """Return a version's number; a date (17.4.2024) is left to the library."""
    is_date = len(match[3]) == 4 and int(match[1][:3]) <= 31 and int(match[2][:3]) <= 12
    return match[0] if is_date else " point ".join(match.groups())


def _money_range(match: re.Match[str]) -> str:
    """Return "5 to $10" for $5-10: five to ten dollars; prices with cents are read one by one."""
    sign, low, high = match.groups()
    return f"{sign if '.' in low + high else ''}{low} to {sign}{high}"


def _money(match: re.Match[str]) -> str:
    if match[2] in MILLIONS:
        return f"{match[1]} {MILLIONS[match[2]]}"
    return f"{match[1]},000" if match[1][1:].isdecimal() and len(match[1]) <= 4 else match[0]


def _numbered(match: re.Match[str]) -> str:
    """Return "Part IV" with a figure; a single I only where it is no pronoun: "the part I love" has one."""
    before, word, numeral = match.groups()
    named = word[0].isupper() and (before or "").lower() not in DETERMINERS
    sure = word.lower() == "world war" or (named and _ends_phrase(match))
    if numeral == "I" and not sure:
        return match[0]
    return f"{before + ' ' if before else ''}{word} {_roman(numeral)}"


def _ruler(match: re.Match[str]) -> str:
    """Return a ruler's number as an ordinal; a single I only behind a title, or at the end of a phrase."""
    titled = TITLE.match(match[1])
    if match[2] == "I" and not titled and not _ends_phrase(match):
        return match[0]
    if len(match[2]) == 1 and not titled and _is_initial(match):
        return match[0]
    return f"{match[1]} the {_ordinal(_roman(match[2]))}"


def _ends_phrase(match: re.Match[str]) -> bool:
    return BEHIND_NUMERAL.match(match.string, match.end()) is not None


def _is_initial(match: re.Match[str]) -> bool:
    """Return whether a name is behind the dot of a letter: William V. Roth, but not "It was George V. He"."""
    name = NAME_BEHIND.match(match.string, match.end())
    return name is not None and name[1].lower() not in OPENERS


def _unit(match: re.Match[str]) -> str:
    if match[1].isupper() and _is_initial(match):
        return match[0]  # "In 1990 W. Smith"
    number = match.string[max(0, match.start() - 2) : match.start()]
    single = number.endswith("1") and number[0] not in "0123456789.,"
    return f" {UNITS[match[1]][0 if single or number == '1' else 1]}"


def _roman(numeral: str) -> int | str:
    """Return the value of a Roman numeral below 90; anything else is returned unchanged."""
    if not ROMAN.fullmatch(numeral):
        return numeral
    values = [{"I": 1, "V": 5, "X": 10, "L": 50}[letter] for letter in numeral]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))


def _ordinal(number: int | str) -> str:
    if isinstance(number, str):
        return number
    return ORDINALS[number - 1] if number <= len(ORDINALS) else f"{number}{ENDINGS.get(number % 10, 'th')}"


Said = str | Callable[[re.Match[str]], str]
# In this order.
RULES: tuple[tuple[re.Pattern[str], Said], ...] = (
    (NOTE_MARKS, ""),
    (SHORT_MONTH, lambda match: _month(match[1]) + " "),
    (SHORT_DAY, lambda match: SHORT_DAYS[match[1]]),
    (BEFORE_NUMBER, lambda match: _before_number(match[1])),
    (ALWAYS_OPEN, "twenty four seven"),
    (NINE_ELEVEN, "nine eleven"),
    (SHARES, _shares),
    (DOTTED, lambda match: spell(match[0].replace(".", "")) + ("" if match["stop"] is None else ".")),
    (AND, _compound),
    (ABOUT, "about "),
    (CONTINENTAL, lambda match: match[0].translate(OTHER_POINTS)),
    (PHONE, lambda match: _spell_digits(match[0])),
    (VERSION, _version),
    (NAMED_VERSION, r"\1 \2 point \3"),
    (INCH_FRACTION, r"\1 "),
    (FEET, _feet),
    (SCORE, r"\1 \2 to \3"),
    (NUMBERED, _numbered),
    (RULER, _ruler),
    (SUPER_BOWL, lambda match: str(_roman(match[0]))),
    (SURE_NUMERAL, lambda match: str(_roman(match[0]))),
    (MONEY_RANGE, _money_range),
    (MONEY, _money),
    (MINUS, "minus "),
    (UNIT, _unit),
    (LONG_NUMBER, _long_number),
    (QUOTED, rf"\1{CLOSING}"),
)
