"""Write out figures, dates, prices, abbreviations and capitals as words, for checkpoints that cannot read them.

The published checkpoints can, and their text is not changed (``TextProfile``). English goes through
kitten-text-processing (NeMo's grammars in plain Python), sentence by sentence and only if necessary, after
``signs.py`` and ``english/``. In other languages only numbers are written out.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from . import english, other_numbers
from .english.rules import LAST_STOP, keep_stop
from .listed import cut_lists, write_amount
from .signs import plain
from .split import split_sentences, split_text

log = logging.getLogger(__name__)

LANGUAGES = ("auto", "english")  # texts in other languages are not changed
LONGEST_INPUT = 160  # characters: the library's time and memory grow faster than linearly
# Sentences without any of this skip the library, which takes 3 to 10 ms per character, most in rows of figures (one
# core of an AMD EPYC beside other programs, 2026-11-26).
FIGURES = re.compile(
    r"[\d$\u00a3\u20ac%&@\u00b0+=#]|\b[A-Z][a-z]{0,3}\.|\b[a-z]\.[a-z]\.|www|\.com", re.ASCII
)
MOST_REMEMBERED = 4096  # parts of sentences: a script is written out again at every run


@dataclass(frozen=True)
class SpokenText:
    """A text as it is spoken."""

    text: str
    notes: tuple[str, ...] = ()  # for the report
    ends: bool = True  # whether a sentence ends with it; of a long one, only the last part does


def join_spoken(parts: Sequence[SpokenText]) -> SpokenText:
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return SpokenText(" ".join(part.text for part in parts if part.text), tuple(notes))


@dataclass(frozen=True)
class Normalizer:
    """Writes out the texts of one rendering."""

    language: str  # ``TextProfile.normalize``
    on_sentence: Callable[[], None] | None = None  # called before each part; may raise to cancel

    def until(self, is_stopped: Callable[[], bool]) -> Normalizer:
        """Return one that raises InterruptedError between two parts of a sentence if ``is_stopped``."""

        def go_on() -> None:
            if is_stopped():
                raise InterruptedError("the line was stopped")

        return replace(self, on_sentence=go_on)

    def is_quick(self, text: str, spoken_in: str = "auto") -> bool:
        """Return whether the library is not needed, which may take seconds for a long sentence full of figures."""
        return not self._is_english(spoken_in) or not FIGURES.search(text)

    def _is_english(self, spoken_in: str) -> bool:
        return self.language == "en" and spoken_in.strip().lower() in LANGUAGES

    def write_out(self, text: str, spoken_in: str = "auto") -> SpokenText:
        """Return a text as it should be spoken; ``spoken_in`` is the language of the line."""
        return join_spoken(list(self.parts(text, spoken_in)))

    def parts(self, text: str, spoken_in: str = "auto") -> Iterator[SpokenText]:
        """Yield the result of ``write_out`` in parts: sentences, or one call of the library each for long ones."""
        # A sentence that ended at a new line gets a stop, so that it still ends there.
        if other_numbers.is_spoken(self.language, spoken_in):
            said, missing = other_numbers.write_numbers(text, self.language)
            yield SpokenText(said, tuple(missing))
            return
        if not self._is_english(spoken_in):
            yield SpokenText(text)
            return
        clean, notes = _readable(text)
        sentences = split_sentences(clean)
        for number, one in enumerate(sentences, start=1):
            is_heard = False
            for said, ends in self._sentence(one, notes):
                is_heard = is_heard or any(char.isalnum() for char in said)
                closes = ends and is_heard and said and number < len(sentences)
                yield SpokenText(self.close(said) if closes else said, tuple(notes), ends)
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
        # The library holds the GIL: of a long sentence with figures it gets one part, or item of a list, per call.
        self._go_on()
        sentence = english.before(sentence)
        if not FIGURES.search(sentence):
            yield english.after(sentence), True
            return
        parts = split_text(sentence, LONGEST_INPUT)
        first, *others = (item for part in parts for item in cut_lists(part))
        yield english.after(self._read_out(first, notes)), not others
        for number, part in enumerate(others, start=1):
            # Behind a comma, which is left out again: it does not begin with a capital letter.
            said = english.after(f", {self._read_out(part, notes)}").removeprefix(",").lstrip()
            yield said, number == len(others)

    def _go_on(self) -> None:
        if self.on_sentence is not None:
            self.on_sentence()

    def _read_out(self, text: str, notes: list[str]) -> str:
        self._go_on()
        if (amount := write_amount(text)) is not None:
            return amount
        read_out = _library()
        if read_out is None:
            notes.append(
                "numbers were read digit by digit: kitten-text-processing is not installed "
                "(run pip install -r requirements.txt)"
            )
            return text
        try:
            said = read_out(text)
        except ValueError as error:  # also its NoPathError: it found no reading
            log.info("%r could not be written out: %s", text, error)
            notes.append(f"{text[:40]!r} could not be written out, and was spoken as it is")
            return text
        return keep_stop(text, said)


def _library() -> Callable[[str], str] | None:
    """Return the library's English normalizer, or None if it is not installed; its first call takes 0.15 s."""
    try:
        from kitten_text_processing import normalize_text
    except ImportError:
        return None
    return partial(_ask_library, normalize_text)


@lru_cache(MOST_REMEMBERED)
def _ask_library(read_out: Callable[[str], str], text: str) -> str:
    return read_out(text)


def _readable(text: str) -> tuple[str, list[str]]:
    kept = plain(text)
    foreign = sum(char.isalpha() and not _is_latin(char) for char in kept)
    notes = [f"{foreign} letters are not Latin, and this checkpoint speaks English only"] if foreign else []
    return kept, notes


def _is_latin(char: str) -> bool:
    return char.isascii() or "LATIN" in unicodedata.name(char, "")
