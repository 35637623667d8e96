"""Check texts, and find the ends of sentences, and pauses: ``[pause 0.4]`` is 0.4 seconds of silence."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from .lists import word_set

# French puts a space before », German ends with «; Wikipedia puts the numbers of its notes after a sentence.
CLOSERS = r"""(?:[ \u00a0\u202f]?»|\[\d{1,3}\]|["'”’“‘›«‹)\]}」』）】》〉])*"""
CHINESE = "[\u3040-\u30ff\u3400-\u9fff]"  # or Japanese
# Latin marks end a sentence only before white space (not in "3.14"); Chinese and Japanese marks always do, and so do a
# Latin ! and ? between their characters.
SENTENCE_END = re.compile(
    # Of several marks, a match can only start at the first one: otherwise a long run takes quadratic time.
    rf"(?P<latin>(?<![.!?…])[.!?…]+(?P<closers>{CLOSERS})(?=\s|$))"
    rf"|(?:[。！？｡]|…{{2}})[。！？｡….!?]*{CLOSERS}"
    rf"|(?<={CHINESE})[!?]+{CLOSERS}(?={CHINESE})"
    r"|\n"
)

WORD_BEFORE = re.compile(r"[^\W_]+(?:\.[^\W_]+)*\Z")  # not $, which a new line may follow
LONGEST_WORD = 24
LONGEST_SPACE = 8  # characters between a sentence and the word after it that are searched
# J  U.S  e.g  z.B  т.д, a letter of "d. h." or "т. е.", and the day in "am 3. Mai". Korean and Chinese one-syllable
# words are not initials, nor is the Russian word for I.
INITIALS = re.compile(r"[A-ZÀ-Þa-zА-Яа-ю]|[A-Za-zА-я](?:\.[A-Za-zА-я])+|\d{1,2}")
# a letter after one of these is the end of a word: can't, Allons-y
JOINED = ("'", "’", "-", "\u2010", "\u2011")
# Characters before the last figures of a number, which is then no ordinal: $25, 10:30, 6/7.
IN_NUMBERS = ("$", "£", "€", ":", "/", ",", "#")
# Abbreviations whose dot does not end a sentence, in the ten languages that the model speaks.
ABBREVIATIONS = word_set("split.abbreviations")
# Titles, which are other words in small letters.
TITLES = word_set("split.titles")
# Abbreviations before a number ("Mar. 5", "No. 5"); otherwise these are words, and their dot ends a sentence.
BEFORE_NUMBERS = word_set("split.before_numbers")
# Only in small letters: Max is a name
SMALL_BEFORE_NUMBERS = frozenset(("max", "min", "est", "c", "op", "Op", "Est", "par"))
# English words with which sentences begin: "It needs 12 V. It is warm."
OPENERS = word_set("split.openers")
# After one of these words a number of one or two digits, or a letter, ends a sentence whatever follows: "He is 25.
# Mary". Elsewhere it may be an ordinal or an initial: "am 3. Mai", "J. K. Rowling".
ENGLISH_BEFORE_NUMBERS = word_set("split.english_before_numbers")
BEFORE_LETTERS = word_set("split.before_letters")
AUXILIARIES = word_set("split.auxiliaries")
# The word after a dot, once it is complete: texts arrive in parts (see ``pieces.py``).
NEXT_WORD = re.compile(r"\s+[\"'“‘(]?([A-Z][a-z]*)(?=[\s,'’])")
NEVER_LAST = word_set("split.never_last")
FACTORIAL_BEHIND = tuple("=+*/×÷<>")
LAST_WORD = re.compile(r"([A-Za-z]+) \Z")
BEGIN = re.compile(r"""[\s"'“‘„«»(\[]*""")  # what may be before a sentence's first letter

HALF = re.compile("[\ud800-\udfff]")  # UTF-8 cannot represent it
SHOWN_BEFORE = 20  # characters that an error quotes

MAX_PAUSE_S = 60.0
MAX_PAUSES_S = 3600.0  # all of one text together
# Runs in linear time on any text: no two of its parts can match the same characters.
PAUSE = re.compile(r"\[\s*pause\b([^\[\]]*)\]", re.IGNORECASE)
DECIMAL = re.compile(r"\d+(?:\.\d*)?|\.\d+")
FOLLOWS_CLOSELY = tuple(".,;:!?…。，、；：！？")  # no space before these when a pause before them is left out


class Mark(NamedTuple):
    """A mark with its closing quotes, and whether it ends a sentence."""

    start: int
    end: int
    is_end: bool


def check_text(text: str, name: str = "text") -> str:
    """Return ``text`` if it has a letter or a digit of any script, and no lone surrogate; else raise ValueError."""
    if not text.strip():
        raise ValueError(f"{name} is empty: type what is to be spoken")
    check_encodable(text, name)
    if not any(map(str.isalnum, text)):
        raise ValueError(f"{name} {shorten(text.strip())!r} has no letter and no digit to speak: type words")
    return text


def is_encodable(text: str) -> bool:
    return HALF.search(text) is None


def check_encodable(text: str, name: str) -> str:
    """Return ``text`` if UTF-8 can represent it; raise ValueError with the position of a lone surrogate if not."""
    if half := HALF.search(text):
        start = half.start()
        after = f", after {text[max(0, start - SHOWN_BEFORE) : start]!r}" if start else ""
        raise ValueError(
            f"{name} contains half a character ({half[0]!a}, a broken emoji) at position {start + 1}{after}: delete it"
        )
    return text


def shorten(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def split_sentences(text: str) -> list[str]:
    """Return the stripped sentences of ``text``, with the boundaries of ``split_text``."""
    return list(filter(None, map(str.strip, cut_sentences(text))))


def cut_sentences(text: str) -> list[str]:
    """Return the sentences of a text with the white space around them: joined, they are the text."""
    return cut_at(text, [mark.end for mark in sentence_marks(text) if mark.is_end])


def cut_at(text: str, ends: Iterable[int]) -> list[str]:
    return [text[begin:end] for begin, end in pairwise([0, *ends, len(text)])]


def sentence_marks(text: str, first: int = 0) -> list[Mark]:
    """Return the marks from ``first`` on that may end a sentence; the first one's sentence begins with the text."""
    marks, begin = [], 0
    for match in SENTENCE_END.finditer(text, first):
        is_end = True
        if match["latin"] is not None:
            before = BEGIN.match(text, begin)
            begin = before.end() if before else begin
            is_end = _ends_sentence(text, match, begin)
        marks.append(Mark(match.start(), match.end(), is_end))
        if is_end:
            begin = match.end()
    return marks


def _ends_sentence(text: str, match: re.Match[str], begin: int) -> bool:
    """Return whether a Latin mark ends a sentence whose first letter is at ``begin``."""
    behind = text[match.end() : match.end() + LONGEST_SPACE].lstrip()[:1]
    if match["closers"] and behind.islower():
        return False  # "Stop!" he said.
    if match["latin"] == "!" and behind in FACTORIAL_BEHIND and text[begin : match.start()][-1:].isdecimal():
        return False  # 5! = 120
    if match["latin"] != "." + match["closers"]:
        return True
    if behind.islower() and not text[begin].islower():
        return False  # an abbreviation, unless the writer uses no capitals
    first = max(begin, match.start() - LONGEST_WORD)
    word = WORD_BEFORE.search(text[first : match.start()])
    if word is None or not _is_short_form(word, behind):
        return True
    if first + word.start() == begin and INITIALS.fullmatch(word[0]) and "." not in word[0]:
        return False  # "1. Eggs", "A. Milne"
    return _opens_behind(text, match.end(), word[0]) or _is_last(word)


def _is_short_form(word: re.Match[str], behind: str) -> bool:
    if word[0].casefold() in ABBREVIATIONS or word[0] in TITLES:
        return True
    if behind.isdecimal() and (word[0].casefold() in BEFORE_NUMBERS or word[0] in SMALL_BEFORE_NUMBERS):
        return True
    joined = word.string[: word.start()].endswith((*JOINED, *IN_NUMBERS) if word[0].isdecimal() else JOINED)
    return INITIALS.fullmatch(word[0]) is not None and not joined


def _opens_behind(text: str, end: int, word: str) -> bool:
    """Return whether a sentence begins after a short form: "at 5 p.m. She stayed", but not "the U.S. Army"."""
    if word.casefold() in NEVER_LAST or word in TITLES:
        return False
    following = NEXT_WORD.match(text, end)
    return following is not None and following[1].lower() in OPENERS


def _is_last(word: re.Match[str]) -> bool:
    """Return whether a number or a letter is a sentence's last word by the word before: "He is 25", "Plan B"."""
    before = LAST_WORD.search(word.string[: word.start()])
    if before is None:
        return False
    if word[0].isdecimal():
        return before[1].lower() in ENGLISH_BEFORE_NUMBERS
    return before[1].lower() in (AUXILIARIES if word[0] == "I" else BEFORE_LETTERS)


@dataclass(frozen=True)
class PausedText:
    """The parts of a text that have a letter or a digit, between its pauses."""

    parts: tuple[str, ...]
    pauses_s: tuple[float, ...]  # seconds before each part and after the last


def read_pauses(text: str) -> PausedText:
    """Cut a text at its pauses; parts without letters and digits are dropped, and the pauses around them added."""
    first, *rest = PAUSE.split(text)
    if not rest:
        return PausedText((text,), (0.0, 0.0))
    parts, pauses = [], [0.0]
    for pause, part in zip([0.0, *map(read_seconds, rest[::2])], [first, *rest[1::2]], strict=True):
        pauses[-1] += pause
        if any(map(str.isalnum, part)):
            parts.append(part)
            pauses.append(0.0)
    if sum(pauses) > MAX_PAUSES_S:
        raise ValueError(
            f"the pauses of one text add up to {sum(pauses):g} s: give at most {MAX_PAUSES_S:g} seconds in all"
        )
    return PausedText(tuple(parts), tuple(pauses))


def read_seconds(value: str) -> float:
    """Read the value of a pause tag; raise ValueError if it is not a number from 0 to MAX_PAUSE_S."""
    value = value.strip()
    if not DECIMAL.fullmatch(value) or float(value) > MAX_PAUSE_S:
        raise ValueError(
            f"[pause {shorten(value)}] is not a pause: give 0 to {MAX_PAUSE_S:g} seconds, e.g. [pause 0.5]"
        )
    return float(value)


def without_pauses(text: str) -> str:
    """Return a text without its pauses, for display. A text that has none is returned unchanged."""
    first, *rest = PAUSE.split(text)
    if not rest:
        return text
    shown = first.strip()
    for part in rest[1::2]:
        words = part.strip()
        space = "" if not shown or not words or words.startswith(FOLLOWS_CLOSELY) else " "
        shown += space + words
    return shown


def check_spoken(text: str, name: str = "text") -> str:
    """Return a text that may have pauses; raise the errors of ``check_text`` and ``read_pauses``."""
    read_pauses(text)
    check_text(without_pauses(text), name)
    return text
