"""Read and write subtitle files (SRT, WebVTT, and ASS, which is only written), and find the times of captions.

WebVTT's ``<v NAME>`` names a cue's speaker. A cue of several speakers is split into one for each, in order; they share
its time in proportion to the lengths of their texts.

The pieces of a spoken text have exact times. Within a piece, sentences are separated at a pause near the place that
their character counts suggest; without one, both stay in one caption.
"""

import html
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

from ..names import name_key
from ..split import split_sentences

FORMATS = ("srt", "vtt", "json", "ass")  # of words with times; others have "srt" and "vtt"
UNITS = ("word", "phrase", "sentence")  # what a cue has of them
STAMP = r"-?\d{1,4}(?::\d{1,4}){1,2}[.,]\d{1,3}"
# Also with another arrow, or none; behind them are WebVTT's settings, or a place on the screen.
TIMES = rf"[ \t]*({STAMP})[^\w<\n]{{1,9}}?({STAMP})(?:[ \t]+\w+:.*)?[ \t]*$"
# The times of a cue, with the number before them; in WebVTT any line between a blank one and the times is its name.
SRT_HEAD = re.compile(rf"^(?:[ \t]*\d+[ \t]*\n\s*)?{TIMES}", re.MULTILINE)
VTT_HEAD = re.compile(rf"^(?:(?<=\n\n).+\n)?{TIMES}", re.MULTILINE)
VTT_COMMENT = re.compile(rf"(?<=\n\n)(?:NOTE(?:[ \t].*)?|STYLE[ \t]*|REGION[ \t]*)$(?:\n(?!{TIMES}).+)*", re.MULTILINE)
BLANK = re.compile(r"^[ \t]+$", re.MULTILINE)
VOICE = re.compile(r"(?:^[-\u2010-\u2014][ \t]*)?<v(?:\.[^\s<>|]*)?\s+([^<>|\s][^<>|]*)>", re.MULTILINE)
# Also a word's time, but neither <shown|read> nor "a < b".
TAG = re.compile(r"</?[A-Za-z][^<>|]*>|< ?/? ?[A-Za-z] ?>|<[\d:.]+>")
STYLE = re.compile(r"\{\\[^{}]*\}")  # of ASS, found in SRT too; other braces are words
ENTITY = re.compile(r"&#?\w{1,31};")  # only with its semicolon: R&D and "Q&not" are words
# White words, grey until they are spoken. Sizes are for a height of 1080.
ASS_HEAD = Path(__file__).with_name("head.ass").read_text(encoding="utf-8")
# In ASS, braces enclose commands and a backslash begins one: a word joiner after it makes it a character.
ASS_LETTERS = str.maketrans({"{": "(", "}": ")", "\\": "\\\u2060"})

REACH = 0.5  # how far a pause may be from the expected place, relative to the shorter sentence

Span = tuple[int, int]
TimedWord = tuple[str, float, float]
"""A word with the space before it, if there is one, and the seconds at which it starts and ends."""


@dataclass(frozen=True)
class Cue:
    """One caption."""

    start_ms: int
    end_ms: int
    text: str
    name: str = ""  # who speaks it
    number: int = 0  # its place in the file that it was read from, from 1
    words: tuple[TimedWord, ...] = ()  # of the text; WebVTT and ASS highlight them as they are spoken

    @property
    def time(self) -> str:
        return timestamp(self.start_ms)


def write_cues(cues: Sequence[Cue], format: str) -> str:
    """Return a file of cues, in the given order, as "srt", "vtt" or, if they have words, "ass".

    Line breaks inside a cue become spaces.
    """
    if format == "ass":
        return ASS_HEAD + "".join(map(_dialogue, cues))
    if format == "vtt":
        return "\n".join(["WEBVTT\n", *map(_vtt_cue, cues)])
    return "\n".join(f"{number}\n{_times(cue, ',')}\n{_srt_text(cue)}\n" for number, cue in enumerate(cues, start=1))


def timestamp(ms: int, point: str = ",") -> str:
    """Return a time of SRT; of WebVTT with ``point`` "."."""
    seconds, ms = divmod(ms, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{ms:03}"


def to_ms(seconds: float) -> int:
    return int(seconds * 1000 + 0.5)


def _times(cue: Cue, point: str) -> str:
    return f"{timestamp(cue.start_ms, point)} --> {timestamp(cue.end_ms, point)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _srt_text(cue: Cue) -> str:
    name, text = _one_line(cue.name), _one_line(cue.text)
    return f"{name}: {text}" if name else text


def _vtt_cue(cue: Cue) -> str:
    """Return a cue with its marks. The standard wants a word's time between those around it."""
    shown, last = "", cue.start_ms
    for word, start_s, _ in cue.words or ((_one_line(cue.text), 0.0, 0.0),):
        said, start = word.lstrip(), to_ms(start_s)
        shown += word[: len(word) - len(said)]
        if last < start < cue.end_ms:
            shown, last = f"{shown}<{timestamp(start, '.')}>", start
        shown += html.escape(said, quote=False)
    name = html.escape(_one_line(cue.name), quote=False)
    number, voice = f"{cue.number}\n" if cue.number else "", f"<v {name}>" if name else ""
    return f"{number}{_times(cue, '.')}\n{voice}{shown}\n"


def _dialogue(cue: Cue) -> str:
    r"""Return a row of ASS; before each word is its duration in hundredths of a second, ``{\k25}``."""
    begin, shown = _to_cs(cue.words[0][1]), ""
    at = begin
    for word, start_s, end_s in cue.words:
        start, end, said = _to_cs(start_s), _to_cs(end_s), word.lstrip()
        if start > at or said != word:
            shown += f"{{\\k{start - at}}}{word[: len(word) - len(said)]}"
        shown += f"{{\\k{end - start}}}{said.translate(ASS_LETTERS)}"
        at = end
    first, last = (timestamp(10 * cs, ".").removeprefix("0")[:-1] for cs in (begin, at))
    name = _one_line(cue.name.replace(",", " "))  # a comma ends the field
    return f"Dialogue: 0,{first},{last},Default,{name},0,0,0,,{shown}\n"


def _to_cs(seconds: float) -> int:
    return int(seconds * 100 + 0.5)


def read_cues(text: str) -> list[Cue]:
    """Read SRT or WebVTT, without formatting; [] for another text, ValueError for a time before 0."""
    text = re.sub("\r\n?", "\n", text.removeprefix("\ufeff"))
    head = SRT_HEAD
    if text.lstrip().startswith("WEBVTT"):
        text, head = VTT_COMMENT.sub("", BLANK.sub("", text)), VTT_HEAD
    _, *parts = head.split(text)
    numbered = enumerate(zip(*(parts[place::3] for place in range(3)), strict=True), start=1)
    return [
        one
        for number, (start, end, said) in numbered
        for one in _by_voice(Cue(_read_ms(start), _read_ms(end), said.strip(), number=number))
    ]


def _read_ms(stamp: str) -> int:
    if stamp.startswith("-"):
        raise ValueError(f"captions has the time {stamp}: give times from 00:00:00,000 to 12 hours")
    *hours, minutes, seconds, fraction = re.split("[:.,]", stamp)
    whole = 3600 * sum(map(int, hours)) + 60 * int(minutes) + int(seconds)
    return 1000 * whole + int(fraction.ljust(3, "0"))


def _by_voice(cue: Cue) -> list[Cue]:
    """Return a cue without marks for each of its speakers; text before the first mark is the same speaker's."""
    text = cue.text.replace("\\N", "\n").replace("\\h", " ")
    marks = list(VOICE.finditer(text))
    starts = [0, *(mark.start() for mark in marks[1:]), len(text)]
    said: list[tuple[str, str]] = []
    for number, (start, end) in enumerate(pairwise(starts)):
        name = _one_line(html.unescape(marks[number][1])) if marks else ""
        words = TAG.sub("", STYLE.sub("", text[start:end]))
        words = ENTITY.sub(lambda match: html.unescape(match[0]), words)
        if said and name_key(said[-1][0]) == name_key(name):
            said[-1] = said[-1][0], said[-1][1] + words
        else:
            said.append((name, words))
    return share_time(cue, [one for one in said if one[1].strip()] or said[:1])


def share_time(cue: Cue, said: Sequence[tuple[str, str]]) -> list[Cue]:
    """Return a cue for each name and text of a cue; their time is shared by the lengths of the texts."""
    ends = [0, *accumulate(max(1, len(text.strip())) for _, text in said)]
    times = [cue.start_ms + (cue.end_ms - cue.start_ms) * end // ends[-1] for end in ends]
    return [
        replace(cue, start_ms=start, end_ms=end, text=text.strip(), name=name)
        for (name, text), (start, end) in zip(said, pairwise(times), strict=True)
    ]


def find_rooms(cues: Sequence[Cue], sample_rate: int, overrun_s: float) -> list[Span]:
    """Return the samples in which the speech of each cue may be.

    It may end ``overrun_s`` after its cue, but not after the start of the next cue that starts when this one
    has ended. One that starts before that overlaps this one, and they are played together.
    """
    starts = [one.start_ms for one in cues]  # ascending
    rooms = []
    for one in cues:
        later = bisect_left(starts, one.end_ms)
        end = min([one.end_ms + 1000 * overrun_s, *starts[later : later + 1]])
        rooms.append((round(one.start_ms * sample_rate / 1000), round(end * sample_rate / 1000)))
    return rooms


@dataclass(frozen=True)
class Segment:
    """A part of a line that ends at a piece's end or a pause between sentences."""

    letters: int
    start: int
    end: int


def count_letters(text: str) -> int:
    # Pieces may have other punctuation and spaces than the text.
    return sum(char.isalnum() for char in text)


def join_sentences(parts: Sequence[Segment], said: Sequence[str], shown: Sequence[str]) -> Iterator[tuple[str, Span]]:
    """Yield texts of whole sentences with their samples: parts are joined until one ends with a sentence."""
    ends = {letters: count for count, letters in enumerate(accumulate(map(count_letters, said)), start=1)}
    done, begin = 0, parts[0].start
    totals = list(accumulate(part.letters for part in parts))
    for number, (part, total) in enumerate(zip(parts, totals, strict=True), start=1):
        count = len(said) if number == len(parts) else ends.get(total, done)
        if count > done:
            yield " ".join(shown[done:count]), (begin, part.end)
            done, begin = count, parts[min(number, len(parts) - 1)].start


def split_at_pauses(text: str, begin: int, end: int, quiet: Sequence[Span]) -> list[Segment]:
    """Return the parts of a piece, whose samples are ``begin`` to ``end``, by its ``quiet`` spans within them."""
    sentences = split_sentences(text)
    pauses = [(start, stop) for start, stop in quiet if start > 0 and stop < end - begin]
    lengths = [len(sentence) for sentence in sentences]
    expected = [total / sum(lengths) * (end - begin) for total in accumulate(lengths)][:-1]
    parts: list[Segment] = []
    waiting, last = [sentences[0]], 0
    for sentence, place, (before, after) in zip(sentences[1:], expected, pairwise(lengths), strict=True):
        reach = REACH * min(before, after) / sum(lengths) * (end - begin)
        near = [(stop - start, start + stop) for start, stop in pauses if abs((start + stop) / 2 - place) <= reach]
        if near and max(near)[1] // 2 > last:
            parts.append(Segment(count_letters("".join(waiting)), begin + last, begin + max(near)[1] // 2))
            waiting, last = [], max(near)[1] // 2
        waiting.append(sentence)
    return [*parts, Segment(count_letters("".join(waiting)), begin + last, end)]
