"""English as people read it aloud: rules for what the normalizer's library leaves out or reads differently.

``before`` runs before the library (telephone numbers, 24/7, feet and inches, Roman numerals, units), ``after`` runs
after it (capitals, month names, remaining digits). Every rule is a small substitution that takes linear time.
"""

from __future__ import annotations

import re

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
SHORT_DAY = re.compile(rf"\b({'|'.join(SHORT_DAYS)})\.(?=,? (?:[A-Z]|\d|at\b))")
PHONE = re.compile(r"(?<![\w.,-])(?:\+?\d{1,3}[ -])?(?:\(\d{3}\) ?|\d{3}[-. ])?\d{3}[-.]\d{4}(?![\w-])")
FEET = re.compile(r"\b(\d{1,2})'(?: ?(\d{1,2})(?:\"|''|(?=\s|[.,]|$)))?(?![\w'])")
ALWAYS_OPEN = re.compile(r"\b24/7\b")
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
ROMAN = re.compile(r"\b(?=[IVX]{1,5}\b)X{0,1}(?:IX|IV|V?I{0,3})\b")
NUMBERED = re.compile(
    r"(?i)\b(chapter|part|act|volume|book|section|scene|phase|world war|type|appendix) ([IVX]{1,5})\b"
)
RULERS = "Henry|Louis|George|Edward|Elizabeth|Charles|James|William|Richard|Pope [A-Z][a-z]+"
RULER = re.compile(rf"\b({RULERS}) ([IVX]{{1,5}})\b")
# Letters by name: every voice tried says "bee bee see" correctly, hardly any says "B B C" correctly (demo voice).
LETTER_NAMES = """
ay bee see dee ee eff gee aitch eye jay kay ell em en oh pee cue ar ess tee you vee double-you ex why zee
"""
LETTERS = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", LETTER_NAMES.split(), strict=True))
WORD = re.compile(r"[A-Za-z]+")
CAPITALS = re.compile(r"\b[A-Z]{2,}\b")
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
    sentence = SHORT_MONTH.sub(lambda match: _month(match[1]) + " ", sentence)
    sentence = SHORT_DAY.sub(lambda match: SHORT_DAYS[match[1]], sentence)
    sentence = ALWAYS_OPEN.sub("twenty four seven", sentence)
    sentence = PHONE.sub(lambda match: _spell_digits(match[0]), sentence)
    sentence = FEET.sub(_feet, sentence)
    sentence = SCORE.sub(r"\1 \2 to \3", sentence)
    sentence = NUMBERED.sub(lambda match: f"{match[1]} {_roman(match[2])}", sentence)
    sentence = RULER.sub(lambda match: f"{match[1]} the {_ordinal(_roman(match[2]))}", sentence)
    return UNIT.sub(_unit, sentence)


def after(sentence: str) -> str:
    """Write out remaining capitals and digits, and capitalize months."""
    sentence = lower_capitals(sentence)
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
    return CAPITALS.sub(lambda match: _say_capitals(match[0], loud), sentence)


def _say_capitals(word: str, loud: bool) -> str:
    if word.lower() in SHORT_WORDS:
        return word.lower()
    voiced = sum(letter in VOWELS for letter in word)
    if voiced and (loud or len(word) > LONGEST_SPELLED):
        return word.lower() if loud else word.capitalize()
    return " ".join(LETTERS[letter] for letter in word)


def _spell_digits(number: str) -> str:
    """Return a telephone number digit by digit, with a pause between its groups."""
    groups = re.findall(r"\d+", number)
    return ", ".join(" ".join(DIGITS[int(digit)] for digit in group) for group in groups)


def _month(start: str) -> str:
    return next(month for month in MONTHS if month.startswith(start[:3].lower())).capitalize()


def _feet(match: re.Match[str]) -> str:
    feet = f"{match[1]} {'foot' if match[2] else 'feet'}"
    return f"{feet} {match[2]}" if match[2] else feet


def _unit(match: re.Match[str]) -> str:
    number = match.string[max(0, match.start() - 2) : match.start()]
    single = number.endswith("1") and number[0] not in "0123456789.,"
    return f" {UNITS[match[1]][0 if single or number == '1' else 1]}"


def _roman(numeral: str) -> int | str:
    """Return the value of a Roman numeral below 20; anything else is returned unchanged, in upper case."""
    numeral = numeral.upper()
    if not ROMAN.fullmatch(numeral):
        return numeral
    values = [{"I": 1, "V": 5, "X": 10}[letter] for letter in numeral]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))


def _ordinal(number: int | str) -> str:
    return ORDINALS[number - 1] if isinstance(number, int) and number <= len(ORDINALS) else str(number)
