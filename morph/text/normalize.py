"""Normalize text: numbers, dates, prices, abbreviations and capitals as words.

The published checkpoints read them as they are: their text is not changed (``TextProfile``). English goes through
kitten-text-processing (NeMo's grammars in plain Python), sentence by sentence and only if necessary, after ``plain``
and ``english/``. In other languages only numbers are normalized.
"""

import logging
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from . import english, other_numbers
from .english.numerals import in_words, power
from .english.rules import LAST_STOP, keep_stop
from .pieces import split_text
from .split import split_sentences

log = logging.getLogger(__name__)

WORD = re.compile(r"\S+")
NUMBER = r"\d+(?:\.\d+)?"
MONEY = r"[$£€](?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
MARKED = rf"\d{{1,2}}/\d{{1,2}}/\d{{4}}|\d{{1,2}}:\d\d|{MONEY}|{NUMBER}%"
ITEM = re.compile(rf"(?:{MARKED})[,;]?|{NUMBER}[,;]", re.ASCII)
# The first items stay together: text before a list may belong to the first one, as in "May 5, 2020, 2021".
FIRST_ITEMS = 2
FIRST_AMOUNTS = 1
WHOLE = r"0|[1-9]\d{0,8}|[1-9]\d{0,2}(?:,\d{3}){1,3}"
AMOUNT = re.compile(rf"([$£€])({WHOLE})(?:\.(\d\d))?([,;]?)", re.ASCII)
UNITS = {
    "$": (("dollar", "dollars"), ("cent", "cents")),
    "£": (("pound", "pounds"), ("penny", "pence")),
    "€": (("euro", "euros"), ("cent", "cents")),
}
LONGEST_INPUT = 160  # characters: the library's time and memory grow faster than linearly
# Sentences without any of this skip the library, which takes 3 to 10 ms per character, most in rows of figures (one
# core of an AMD EPYC beside other programs, 2026-11-26).
FIGURES = re.compile(r"[\d$£€%&@°+=#]|\b[A-Z][a-z]{0,3}\.|\b[a-z]\.[a-z]\.|www|\.com", re.ASCII)
MOST_REMEMBERED = 4096  # parts of sentences: a script is normalized again at every run
# Signs that become plain characters. NFKC would change the numbers of some, and is applied after them: 1½ would be
# 11/2, and 10² 102.
READABLE = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\xab": '"', "\xbb": '"', "\u2026": "..."}
    | {"\u2014": ", ", "\u2013": "-", "\u2010": "-", "\u2212": "-", "\u2044": "/", "\u2032": "'"}
)
SOUNDED_SIGNS = "\u00b0\n\t"
FRACTION_BEHIND_NUMBER = re.compile("(?<=\\d)(?=[\xbc-\xbe\u2150-\u215e\u2189])")
SPACES_IN_NUMBERS = "\xa0\u2007\u2009\u202f"
# Three digits after each space: 10 000, but not the telephone number 555 123 4567. Decimals have a comma: 10 000,50.
SPACED_NUMBER = re.compile(
    rf"(?<![\d.,])(\d{{1,3}}(?:[{SPACES_IN_NUMBERS}]\d{{3}}){{1,5}})(?:,(\d{{1,2}})(?![,\d]))?"
    rf"(?!\d|[{SPACES_IN_NUMBERS}]\d)"
)
# Behind a number, a bracket or the name of a variable; m² is a unit, and the library's.
POWER = re.compile("(?:(?<=[\\d)])|(?<=\\b[A-Za-ln-z])|(?<=\\bmc))[\u207b\u2070\xb9\xb2\xb3\u2074-\u2079]+")
# Marks of trade, which would become letters; variants and skin tones of emoji, and the frame of a keycap.
SILENT = re.compile("[\u2120\u2122\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]")


def cut_lists(text: str) -> list[str]:
    """Return a text in parts, without the space between them: cut before each item of a list but the first ones."""
    # The library takes 0.1 s per item: a date, a time, an amount, a percentage, or a number with a comma.
    cuts, items = [0], 0
    for word in WORD.finditer(text):
        is_item = ITEM.fullmatch(word[0]) is not None
        if is_item and items >= (FIRST_AMOUNTS if word[0].startswith(tuple(UNITS)) else FIRST_ITEMS):
            cuts.append(word.start())
        items = items + 1 if is_item else 0
    return [text[start:end].rstrip() for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def write_amount(text: str) -> str | None:
    """Return an amount below a trillion in words, with its comma or semicolon; None for another text."""
    found = AMOUNT.fullmatch(text)
    if found is None:
        return None
    sign, whole, part, stop = found.groups()
    main, small = UNITS[sign]
    counts = ((int(whole.replace(",", "")), main), (int(part or 0), small))
    said = [f"{in_words(number)} {names[number != 1]}" for number, names in counts if number]
    return " ".join(said or ["zero", main[1]]) + stop


@dataclass(frozen=True)
class NormalizedText:
    """A normalized text."""

    text: str
    notes: tuple[str, ...] = ()  # for the report
    ends: bool = True  # whether a sentence ends with it


def join_normalized(parts: Sequence[NormalizedText]) -> NormalizedText:
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return NormalizedText(" ".join(part.text for part in parts if part.text), tuple(notes))


@dataclass(frozen=True)
class Normalizer:
    """The normalizer of one rendering's texts."""

    language: str  # ``TextProfile.normalize``
    on_sentence: Callable[[], object] = lambda: None  # called before each part, may raise to cancel

    def is_quick(self, text: str, spoken_in: str = "auto") -> bool:
        """Return whether the library is not needed: it may take seconds for a long sentence full of figures."""
        return self._written_in(spoken_in) != "en" or not FIGURES.search(text)

    def _written_in(self, spoken_in: str) -> str:
        """Return the code of the language in which a line is written out, "" if it is spoken as it is."""
        names = {"en": "english", **other_numbers.LANGUAGES}
        return self.language if spoken_in.strip().lower() in ("auto", names.get(self.language)) else ""

    def write_out(self, text: str, spoken_in: str = "auto") -> NormalizedText:
        """Normalize a text; ``spoken_in`` is the language of the line."""
        return join_normalized(list(self.parts(text, spoken_in)))

    def parts(self, text: str, spoken_in: str = "auto") -> Iterator[NormalizedText]:
        """Yield the result of ``write_out`` in parts: sentences, or for long ones a part per call of the library."""
        # A sentence that ended at a new line gets a stop, so that it still ends there.
        language = self._written_in(spoken_in)
        if language != "en":
            said, missing = other_numbers.write_numbers(text, language) if language else (text, [])
            yield NormalizedText(said, tuple(missing))
            return
        clean = plain(text)
        notes, sentences = _notes_on(clean), split_sentences(clean)
        for number, one in enumerate(sentences, start=1):
            has_words = False
            for said, ends in self._sentence(one, notes):
                has_words = has_words or any(map(str.isalnum, said))
                closes = ends and has_words and said and number < len(sentences)
                yield NormalizedText(self.close(said) if closes else said, tuple(notes), ends)
                notes.clear()

    def close(self, piece: str) -> str:
        """End a piece of a text like a sentence, for checkpoints that were trained on complete sentences."""
        # After a comma the demo voice invents more words: 1.8 % wrong words on three paragraphs with this, 5.1 %
        # without (six renderings; ``docs/log/everyday.md``).
        if self.language != "en" or LAST_STOP.search(piece):
            return piece
        return piece.rstrip(" ,;:-") + "."

    def _sentence(self, sentence: str, notes: list[str]) -> Iterator[tuple[str, bool]]:
        """Yield a sentence as it is spoken, each part with whether it is the last one."""
        # The library holds the GIL, so a long sentence with figures is passed in parts, or items of a list.
        self.on_sentence()
        sentence = english.before(sentence)
        if not FIGURES.search(sentence):
            yield english.after(sentence), True
            return
        parts = split_text(sentence, LONGEST_INPUT)
        first, *others = (item for part in parts for item in cut_lists(part))
        yield english.after(self._read_out(first, notes)), not others
        for number, part in enumerate(others, start=1):
            # After a comma, which is removed again, it does not begin with a capital letter.
            said = english.after(f", {self._read_out(part, notes)}").removeprefix(",").lstrip()
            yield said, number == len(others)

    def _read_out(self, text: str, notes: list[str]) -> str:
        self.on_sentence()
        if (amount := write_amount(text)) is not None:
            return amount
        try:
            from kitten_text_processing import normalize_text  # its first call takes 0.15 s

            return keep_stop(text, _ask_library(normalize_text, text))
        except ImportError:
            notes.append(
                "numbers were read digit by digit: kitten-text-processing is not installed "
                "(run pip install -r requirements.txt)"
            )
        except ValueError as error:  # including its NoPathError
            log.info("%r could not be written out: %s", text, error)
            notes.append(f"{text[:40]!r} could not be written out, and was spoken as it is")
        return text


@lru_cache(MOST_REMEMBERED)
def _ask_library(read_out: Callable[[str], str], text: str) -> str:
    return read_out(text)


def _notes_on(text: str) -> list[str]:
    letters = (char for char in text if char.isalpha() and not char.isascii())
    foreign = sum("LATIN" not in unicodedata.name(char, "") for char in letters)
    return [f"{foreign} letters are not Latin, and this checkpoint speaks English only"] if foreign else []


def plain(text: str) -> str:
    """Return a text with plain quotes, dashes and spaces, fractions as 1/2, powers in words, and without emoji."""
    if text.isascii() and text.isprintable():
        return text
    text = SPACED_NUMBER.sub(_spaced, text)
    text = FRACTION_BEHIND_NUMBER.sub(" ", text)
    text = POWER.sub(_power, text).replace("\u2116", "No. ")  # its composition has no dot
    text = unicodedata.normalize("NFKC", SILENT.sub("", text)).translate(READABLE)
    spaced = (" " if char.isspace() and char not in SOUNDED_SIGNS else char for char in text)
    silent = ("C", "So")  # categories
    return "".join(
        char for char in spaced if char in SOUNDED_SIGNS or not unicodedata.category(char).startswith(silent)
    )


def _spaced(match: re.Match[str]) -> str:
    return ",".join(re.findall(r"\d+", match[1])) + (f".{match[2]}" if match[2] else "")


def _power(match: re.Match[str]) -> str:
    exponent = unicodedata.normalize("NFKC", match[0]).replace("\u2212", "minus ")
    return power(exponent) + (" " if match.string[match.end() : match.end() + 1].isalnum() else "")
