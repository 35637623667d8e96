"""Write numbers as words where the library would group them differently: years, decades, codes, Roman numerals.

Roman numerals are figures, ordinals ("Henry the eighth") or letters: a drip is an IV.
"""

import re

from ..lists import alternatives_of, table, word_set
from ..split import OPENERS
from .rules import Rule, rule

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEENS = tuple("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split())  # noqa: SIM905
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ORDINALS = table("numerals.ordinals")
LARGE = {10**9: "billion", 10**6: "million"}
POWERS = {"2": " squared", "3": " cubed"}

VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
ROMAN = re.compile(r"(?=[IVXLCDM])M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
NUMBERED = re.compile(
    rf"(?:(?<![\w'])([A-Za-z]{{1,8}}) )?\b((?i:{alternatives_of('numerals.numbered')})) ([IVX]{{1,5}})\b"
)
PARTS = frozenset(("part", "chapter", "act", "volume", "book", "scene", "appendix", "phase", "stage", "type"))
# Small letters: no single i, which may be the speaker in small letters.
SMALL_NUMBERED = re.compile(
    r"\b((?i:chapter|part|act|volume|book|section|scene|page|pages|appendix|figure|table)) (v|x|(?!i\b)[ivxl]{2,7})\b"
)
LISTED_ONE = re.compile(r"[IVX]+")
DETERMINERS = word_set("numerals.determiners")
RULERS = alternatives_of("numerals.rulers")
FIRST_NAMES = alternatives_of("numerals.first_names")
# Thurston Howell III
NAMESAKE = re.compile(rf"\b((?:{FIRST_NAMES}) (?:[A-Z]\. )?[A-Z][a-z]{{2,15}}),? (II|III|IV)\b")
RULED = re.compile(rf" (?:{alternatives_of('numerals.ruled')})\b")
TITLE = re.compile(r"King|Queen|Emperor|Tsar|Pope")
# IV and VI after a name, and before a word that continues the sentence: Rocky IV is a film.
BEHIND_NAME = re.compile(
    r"(?<![\w'])([A-Z][a-z]{2,15}) (IV|VI|XI|XX|XV|XL)\b(?=(?:'s)?(?:[.,;:!?)\"]|$| (?:is|was|has|had|came|and|of|in|"
    r"on|at|for|with|by|the|will|won|premiered|starts|opens)\b))"
)
# An I before anything else is the speaker.
BEHIND_NUMERAL = re.compile(
    r"'s\b|\s*(?:[.,;:!?)\]\"]|$)|\s+(?:of\b|(?:and|or|to) [A-Z]|"
    r"(?:errors?|diabetes|trials?|clinical|athletes?|schools?|colleges?|cancer|disease|hearings?)\b)"
)
NAME_BEHIND = re.compile(r"\. ([A-Z]\w*)")


def small_number(number: int) -> str:
    """Return a number below 100 in words: 42 "forty two"."""
    if number < 20:
        return (DIGITS + TEENS)[number]
    tens = TENS[number // 10 - 2]
    return f"{tens} {DIGITS[number % 10]}" if number % 10 else tens


def in_words(number: int) -> str:
    """Return a number below a trillion in words: 1,204 "one thousand two hundred and four"."""
    for size, name in LARGE.items():
        if number >= size:
            high, rest = divmod(number, size)
            said = f"{in_words(high).replace(' and ', ' ')} {name}"
            return f"{said} {in_words(rest)}" if rest else said
    thousands, rest = divmod(number, 1000)
    hundreds, last = divmod(rest, 100)
    words = [f"{in_words(thousands).replace(' and ', ' ')} thousand"] if thousands else []
    words += [f"{small_number(hundreds)} hundred"] if hundreds else []
    if words and last:
        words.append("and")
    return " ".join([*words, small_number(last)] if last or not words else words)


def in_pairs(digits: str) -> str:
    """Return up to four digits as years and codes are read: 747 "seven forty seven", 1905 "nineteen oh five"."""
    if len(digits) < 3:
        return small_number(int(digits))
    high, low = int(digits[:-2]), int(digits[-2:])
    if high == 20 and low < 10:
        return "two thousand" + (f" {DIGITS[low]}" if low else "")
    if low == 0 and high % 10 == 0:
        return f"{small_number(high // 10)} thousand"
    if low == 0:
        return f"{small_number(high)} hundred"
    return f"{small_number(high)} {'oh ' if low < 10 else ''}{small_number(low)}"


def spell_digits(number: str) -> str:
    """Return digits with pauses between groups: 555-1234 "five five five, one two three four"."""
    groups: list[list[str]] = [[]]
    for char in number:
        if char.isdecimal():
            groups[-1].append(DIGITS[int(char)])
        elif groups[-1]:
            groups.append([])
    return ", ".join(" ".join(group) for group in groups if group)


def ordinal(number: int) -> str:
    """Return a number below 100 as an ordinal: 8 "eighth", 21 "twenty first"."""
    *tens, last = small_number(number).split()
    said = ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return " ".join([*tens, said])


def plural(word: str) -> str:
    """Return the plural of a number, a letter's name or a unit: sixties, esses, inches, ohs."""
    if word.endswith("ty"):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch")) else "s")


def power(exponent: str) -> str:
    return POWERS.get(exponent, f" to the power of {exponent}")


def is_initial(match: re.Match[str]) -> bool:
    """Return whether a name follows the dot of a letter: William V. Roth, but not "It was George V. He"."""
    name = NAME_BEHIND.match(match.string, match.end())
    return name is not None and name[1].lower() not in OPENERS


def value_of(numeral: str) -> int:
    """Return the value of a Roman numeral below 4000; 0 for other letters."""
    if not ROMAN.fullmatch(numeral):
        return 0
    values = [VALUES[letter] for letter in numeral]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))


def _figure(numeral: str) -> str:
    value = value_of(numeral.upper())
    return small_number(value) if 0 < value < 100 else numeral


def _ends_phrase(match: re.Match[str]) -> bool:
    return BEHIND_NUMERAL.match(match.string, match.end()) is not None


def _numbered(match: re.Match[str]) -> str:
    """Return "Part four" for Part IV; a single I only if it is no pronoun, as in "the part I love"."""
    before, word, numeral = match.groups()
    named = word[0].isupper() and (before or "").lower() not in DETERMINERS
    parts = before is not None and word.lower() in PARTS
    sure = word.lower() == "world war" or (named and (parts or _ends_phrase(match)))
    if numeral == "I" and not sure:
        return match[0]
    return f"{before + ' ' if before else ''}{word} {_figure(numeral)}"


def _ruler(match: re.Match[str]) -> str:
    """Return a ruler's number as an ordinal; a single I only after a title, or at the end of a phrase."""
    titled, value = TITLE.match(match[1]), value_of(match[2])
    sure = titled or _ends_phrase(match) or RULED.match(match.string, match.end())
    is_letter = len(match[2]) == 1 and not titled and is_initial(match)
    if not value or is_letter or (match[2] == "I" and not sure):
        return match[0]
    return f"{match[1]} the {ordinal(value)}"


def _listed(match: re.Match[str]) -> str:
    """Return numerals in a row in words, if they rise: "I, II and III", but not "I and I" or "X or V"."""
    values = [value_of(numeral) for numeral in LISTED_ONE.findall(match[0])]
    if 0 in values or values != sorted(set(values)) or values[-1] > 30:
        return match[0]
    return LISTED_ONE.sub(lambda one: _figure(one[0]), match[0].replace("-", " to "))


def _behind_name(match: re.Match[str]) -> str:
    known = match[1].lower() in OPENERS | DETERMINERS
    return match[0] if known else f"{match[1]} {_figure(match[2])}"


def _year(match: re.Match[str]) -> str:
    value = value_of(match[0])
    return in_pairs(str(value)) if 1000 < value < 2100 else match[0]


RULES: tuple[Rule, ...] = (
    # MCMXCIV
    rule(r"\b(?=[MDCLXVI]{4,15}\b)M{1,2}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\b", _year),
    rule(r"\bWW[ -]?(1|2|II?)\b", lambda match: f"World War {'two' if match[1] in ('2', 'II') else 'one'}"),
    (NAMESAKE, lambda match: f"{match[1]} the {ordinal(value_of(match[2]))}"),
    # the XIX century
    rule(
        r"\b([IVX]{1,5})(?:th)?(?= centur(?:y|ies)\b)",
        lambda match: ordinal(value) if (value := value_of(match[1])) else match[0],
    ),
    # I, II and III; Parts I-III
    rule(r"\b[IVX]{1,5}(?:(?:, (?:and |or )?| and | or | to |-|/)[IVX]{1,5})+\b", _listed),
    (NUMBERED, _numbered),
    (SMALL_NUMBERED, lambda match: f"{match[1]} {_figure(match[2])}"),  # scene ii, page xii
    rule(rf"\b((?:(?:King|Queen|Emperor|Tsar) )?(?:{RULERS})) ([IVX]{{1,5}})\b", _ruler),
    rule(r"(?<=\bSuper Bowl )[IVXL]{1,8}\b", lambda match: _figure(match[0])),
    # Rocky II. No word and no initial, as IV (a drip), VI (an editor) and XX may be.
    rule(r"(?<=[A-Za-z] )(?:II|IX|(?!XXX)[IVX]{3,6})\b", lambda match: _figure(match[0])),
    (BEHIND_NAME, _behind_name),
)
