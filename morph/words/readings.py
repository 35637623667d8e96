"""Displayed and spoken words of a text with readings: "Nguyen", spoken as "win", has the time of "win"."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..text.pronunciation import Reading, read_text
from .match import owners
from .written import WrittenWord, find_words, said_span


@dataclass(frozen=True)
class ReadWords:
    """The words of a text, as displayed and as read."""

    written: list[WrittenWord]  # with places in the text; that of a word in a mark includes the mark
    read: list[WrittenWord]  # before figures are written out, with places in the text as read
    owners: list[int]  # each read word's written word; never go back


@dataclass(frozen=True)
class _TextPart:
    """A part of a text: its beginning in the text, in the displayed one and in the read one."""

    text: int
    shown: int
    read: int
    reading: Reading | None = None


def find_read_words(text: str, readings: Sequence[Reading]) -> ReadWords:
    """Return the words of a text with one or more readings, in order."""
    parts = list(_parts(readings))
    shown = find_words(read_text(text, [Reading(one.first, one.last, "", one.shown) for one in readings]))
    as_read = read_text(text, readings)
    read = find_words(as_read)
    begins = [one.shown for one in parts]
    written = [
        WrittenWord(
            word.text,
            _place(parts[bisect_right(begins, word.first) - 1], word.first),
            _place(parts[bisect_right(begins, word.last - 1) - 1], word.last),
        )
        for word in shown
    ]
    return ReadWords(written, read, _owners(parts, shown, read, as_read) if shown else [])


def _parts(readings: Sequence[Reading]) -> Iterator[_TextPart]:
    shown = read = 0  # how much longer the texts are so far
    begin = 0
    for one in readings:
        if one.first > begin or not begin:
            yield _TextPart(begin, begin + shown, begin + read)
        yield _TextPart(one.first, one.first + shown, one.first + read, one)
        begin = one.last
        shown += len(one.shown) - (one.last - one.first)
        read += len(one.read) - (one.last - one.first)
    yield _TextPart(begin, begin + shown, begin + read)


def _place(part: _TextPart, place: int) -> int:
    inside, one = place - part.shown, part.reading
    if one is None or not inside:
        return part.text + inside
    if inside == len(one.shown):
        return one.last
    return part.text + inside + (one.last - one.first > len(one.shown))  # of a mark: after its <


def _owners(
    parts: Sequence[_TextPart], shown: Sequence[WrittenWord], read: Sequence[WrittenWord], as_read: str
) -> list[int]:
    begins, firsts = [one.read for one in parts], [word.first for word in shown]
    own: list[int] = []
    index = 0
    while index < len(read):
        place = said_span(read[index], as_read)[0]
        part = parts[bisect_right(begins, place) - 1]
        if part.reading is None:
            own.append(max(0, bisect_right(firsts, place - part.read + part.shown) - 1))
            index += 1
            continue
        end = part.read + len(part.reading.read)
        after = next((n for n in range(index, len(read)) if said_span(read[n], as_read)[0] >= end), len(read))
        own += _shares(part, shown, [word.text for word in read[index:after]])
        index = after
    return [max(own[: place + 1]) for place in range(len(own))] if own != sorted(own) else own


def _shares(part: _TextPart, shown: Sequence[WrittenWord], read: Sequence[str]) -> list[int]:
    """Return the owners of the words of one reading: its displayed words, or else the word before."""
    assert part.reading is not None
    first, last = part.shown, part.shown + len(part.reading.shown)
    ours = [index for index, word in enumerate(shown) if word.first < last and word.last > first]
    if len(ours) < 2:
        before = bisect_right([word.first for word in shown], first) - 1
        return [ours[0] if ours else max(0, before)] * len(read)
    if len(ours) == len(read):
        return ours
    return [ours[max(0, share)] for share in owners([shown[index].text for index in ours], read)]
