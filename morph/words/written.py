"""The words of a text as its writer sees them, each with its place in the text.

A word is what stands between spaces, with its punctuation. In Chinese and Japanese each character is one, with small
kana and long vowels after it. Dashes that join words and three dots end words too. Punctuation that stands alone
belongs to the word before it, an opening bracket or quotation mark to the word after it. With readings, the displayed
word keeps its place: "Nguyen", read as "win", has the time of "win".
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import NamedTuple

from ..text.pauses import PAUSE
from ..text.pronunciation import Reading, read_text
from .match import owners

CHARACTER = (
    "\u2e80-\u2fdf\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fd-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
# Small kana, the marks of voiced ones, and long vowels: half a syllable
SMALL = "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮー\u3099\u309a゛゜\uff67-\uff70\uff9e\uff9f"
MARKS = "、。〃〈〉《》「」『』【】〔〕〖〗・！（），．：；？［］｛｝｡｢｣､“”"
BREAK = r"[\u2014\u2026]|-{2}"
PART = re.compile(
    rf"[{CHARACTER}][{SMALL}]*|[{MARKS}]|(?:\u2014|\u2026|-{{2,}})+|(?:(?!{BREAK})[^\s{CHARACTER}{MARKS}])+"
)
SAID_ALONE = frozenset("&+=%@#$£€°×÷±√≤≥≈<>＆＋＝％＠＃＄￥¥")  # words if they stand alone
OPENING = frozenset("¿¡«“")


@dataclass(frozen=True)
class WrittenWord:
    """A word of a text: ``text[first:last]``, with its punctuation."""

    text: str
    first: int
    last: int


def find_words(text: str) -> list[WrittenWord]:
    """Return the words of a text in order, all of it but spaces and pauses; none without spoken signs."""
    # As long as the pauses, so that places stay what they are.
    shown = PAUSE.sub(lambda match: " " * len(match[0]), text)
    spans: list[tuple[int, int]] = []
    begin: int | None = None  # of opening marks before the next word
    for part in PART.finditer(shown):
        first = part.start() if begin is None else begin
        if is_said(part[0]):
            spans.append((first, part.end()))
            begin = None
        elif not spans or begin is not None or _opens(part[0]):
            begin = first
        else:
            spans[-1] = (spans[-1][0], part.end())
    if begin is not None and spans:  # marks that open nothing
        spans[-1] = (spans[-1][0], len(shown.rstrip()))
    return [WrittenWord(" ".join(shown[first:last].split()), first, last) for first, last in spans]


def is_said(part: str) -> bool:
    """Return whether a part of a text without spaces is spoken: it has a letter, a digit, or a sign alone."""
    return any(char.isalnum() for char in part) or not SAID_ALONE.isdisjoint(part)


def _opens(part: str) -> bool:
    return part[-1] in OPENING or unicodedata.category(part[-1]) in ("Ps", "Pi")


def said_span(word: WrittenWord, text: str) -> tuple[int, int]:
    """Return the span of a word in its text without the punctuation around it."""
    said = [index for index in range(word.first, word.last) if text[index].isalnum()]
    return (said[0], said[-1] + 1) if said else (word.first, word.last)


@dataclass(frozen=True)
class ReadWords:
    """The words of a text, as displayed and as read."""

    written: list[WrittenWord]  # with places in the text; that of a word in a mark includes the mark
    # Before figures are written out, with places in the text as read; none if ``written`` is empty.
    read: list[WrittenWord]
    owners: Sequence[int]  # each read word's written word; never go back


class _TextPart(NamedTuple):
    """A part of a text: its beginning in the text, in the displayed one and in the read one."""

    text: int
    shown: int
    read: int
    reading: Reading | None = None

    def place(self, shown: int) -> int:
        """Return the place in the text of one in the displayed text."""
        inside, one = shown - self.shown, self.reading
        if one is None or not inside:
            return self.text + inside
        if inside == len(one.shown):
            return one.last
        return self.text + inside + (one.last - one.first > len(one.shown))  # of a mark: after its <


def find_read_words(text: str, readings: Sequence[Reading]) -> ReadWords:
    """Return the words of a text, in order."""
    if not readings:
        words = find_words(text)
        return ReadWords(words, words, range(len(words)))
    parts = list(_parts(readings))
    shown = find_words(read_text(text, [Reading(one.first, one.last, "", one.shown) for one in readings]))
    if not shown:  # signs alone, which are read as words
        return ReadWords([], [], [])
    as_read = read_text(text, readings)
    read = find_words(as_read)
    begins = [one.shown for one in parts]
    written = [
        WrittenWord(
            word.text,
            parts[bisect_right(begins, word.first) - 1].place(word.first),
            parts[bisect_right(begins, word.last - 1) - 1].place(word.last),
        )
        for word in shown
    ]
    return ReadWords(written, read, _owners(parts, shown, read, as_read))


def _parts(readings: Sequence[Reading]) -> Iterator[_TextPart]:
    shown = read = begin = 0  # how much longer the texts are so far, and the end of the last reading
    for one in readings:
        yield _TextPart(begin, begin + shown, begin + read)
        yield _TextPart(one.first, one.first + shown, one.first + read, one)
        begin = one.last
        shown += len(one.shown) - (one.last - one.first)
        read += len(one.read) - (one.last - one.first)
    yield _TextPart(begin, begin + shown, begin + read)


def _owners(
    parts: Sequence[_TextPart], shown: Sequence[WrittenWord], read: Sequence[WrittenWord], as_read: str
) -> list[int]:
    begins, firsts = [one.read for one in parts], [word.first for word in shown]
    places = [said_span(word, as_read)[0] for word in read]
    own: list[int] = []
    for index, group in groupby(range(len(read)), lambda number: bisect_right(begins, places[number]) - 1):
        part = parts[index]
        if part.reading is not None:
            own += _shares(part.shown, part.reading.shown, shown, [read[number].text for number in group])
        else:
            inside = (places[number] - part.read + part.shown for number in group)
            own += [max(0, bisect_right(firsts, place) - 1) for place in inside]
    return list(accumulate(own, max))


def _shares(first: int, reads_as: str, shown: Sequence[WrittenWord], read: Sequence[str]) -> list[int]:
    """Return the owners of the words of one reading: its displayed words, or else the word before."""
    last = first + len(reads_as)
    ours = [index for index, word in enumerate(shown) if word.first < last and word.last > first]
    if len(ours) < 2:
        before = bisect_right([word.first for word in shown], first) - 1
        return [ours[0] if ours else max(0, before)] * len(read)
    if len(ours) == len(read):
        return ours
    return [ours[max(0, share)] for share in owners([shown[index].text for index in ours], read)]
