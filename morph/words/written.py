"""The words of a text as its writer sees them, each with its place in the text.

A word is what stands between spaces, with its punctuation. In Chinese and Japanese each character is one, with small
kana and long vowels after it. Dashes that join words and three dots end words too. Punctuation that stands alone
belongs to the word before it, an opening bracket or quotation mark to the word after it. With readings, the displayed
word keeps its place: "Nguyen", read as "win", has the time of "win".
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from ..text.pronunciation import Reading, read_text, replaced
from ..text.split import PAUSE
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
        last = part[0][-1]
        first = part.start() if begin is None else begin
        if any(map(str.isalnum, part[0])) or not SAID_ALONE.isdisjoint(part[0]):
            spans.append((first, part.end()))
            begin = None
        elif not spans or begin is not None or last in OPENING or unicodedata.category(last) in ("Ps", "Pi"):
            begin = first
        else:
            spans[-1] = (spans[-1][0], part.end())
    if begin is not None and spans:  # marks that open nothing
        spans[-1] = (spans[-1][0], len(shown.rstrip()))
    return [WrittenWord(" ".join(shown[first:last].split()), first, last) for first, last in spans]


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


def find_read_words(text: str, readings: Sequence[Reading]) -> ReadWords:
    """Return the words of a text, in order."""
    if not readings:
        words = find_words(text)
        return ReadWords(words, words, range(len(words)))
    shown = find_words(replaced(text, readings, [one.shown for one in readings]))
    if not shown:  # signs alone, which are read as words
        return ReadWords([], [], [])
    as_read = read_text(text, readings)
    read, firsts = find_words(as_read), [word.first for word in shown]
    spans, sources = _characters(text, readings)
    own: list[int] = []
    for (place, reading), group in groupby(read, lambda word: sources[said_span(word, as_read)[0]]):
        if reading is None:
            own.append(max(0, bisect_right(firsts, place) - 1))
        else:
            own += _shares(place, reading.shown, shown, [word.text for word in group])
    written = [WrittenWord(word.text, spans[word.first][0], spans[word.last - 1][1]) for word in shown]
    return ReadWords(written, read, list(accumulate(own, max)))


def _characters(
    text: str, readings: Sequence[Reading]
) -> tuple[list[tuple[int, int]], list[tuple[int, Reading | None]]]:
    """Return the span in the text of each displayed character, and the source of each character that is read.

    A source is a place in the displayed text: the character's own, or the begin of a reading, and the reading.
    """
    spans: list[tuple[int, int]] = []
    sources: list[tuple[int, Reading | None]] = []
    begin = 0
    for one in [*readings, Reading(len(text), len(text), "", "")]:
        sources += [(len(spans) + index, None) for index in range(one.first - begin)]
        spans += pairwise(range(begin, one.first + 1))
        sources += [(len(spans), one)] * len(one.read)
        is_mark = one.last - one.first > len(one.shown)  # its < is before what is displayed
        spans += pairwise([one.first, *(one.first + is_mark + at for at in range(1, len(one.shown))), one.last])
        begin = one.last
    return spans, sources


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
