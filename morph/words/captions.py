"""Words with times as captions: SRT, WebVTT whose words light up, JSON, and ASS karaoke."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

from ..setting import Checked, setting
from ..text.pieces import cut_text
from ..text.scripts.cues import FORMATS, UNITS, Cue, TimedWord, to_ms, write_cues
from ..text.split import cut_sentences
from .timing import WordTime

MOST_CHARS = 500
PAUSE_S = 1.0  # no caption stays over a silence of this length


@dataclass(frozen=True)
class CaptionOptions(Checked):
    """How words become captions.

    ``unit`` is what a caption contains. In WebVTT and ASS, words of longer captions are highlighted as they are spoken.
    ``most_chars`` is the longest phrase: phrases end at punctuation where they can.
    """

    format: str = setting("srt", choices=FORMATS)
    unit: str = setting("phrase", choices=UNITS)
    most_chars: int = setting(42, low=1, high=MOST_CHARS)


@dataclass(frozen=True)
class LineWords:
    """The words of one line, at their times in the whole sound, and who speaks it."""

    words: tuple[WordTime, ...]
    name: str = ""

    def at(self, start_s: float) -> LineWords:
        """Return the line with its sound beginning ``start_s`` seconds later."""
        moved = (replace(one, start_s=one.start_s + start_s, end_s=one.end_s + start_s) for one in self.words)
        return LineWords(tuple(moved), self.name)


def timed_words(words: Sequence[WordTime]) -> tuple[TimedWord, ...]:
    """Return words as they are shown one behind the other, with their times."""
    spaces = ["", *(" " * (other.first_char > one.last_char) for one, other in pairwise(words))]
    return tuple((space + word.text, word.start_s, word.end_s) for space, word in zip(spaces, words, strict=False))


def write_captions(lines: Sequence[LineWords], options: CaptionOptions) -> str:
    """Return the text of a file of captions, in the order of their starts; without words, one without captions.

    ``lines``: of the sound; words of no two are in one caption.
    """
    cues = sorted(cut_cues(lines, options), key=lambda cue: cue.start_ms)
    if options.format == "json":
        return _json(lines, cues)
    if options.format == "srt" and options.unit == "word":
        cues = [replace(cue, name="") for cue in cues]
    return write_cues(cues, options.format)


def cut_cues(lines: Sequence[LineWords], options: CaptionOptions) -> list[Cue]:
    """Return the words of lines in captions: of one word each, or of phrases or sentences."""
    cues = []
    for line in lines:
        for words in _cut(line.words, options):
            timed = timed_words(words)
            text = "".join(word for word, _, _ in timed)
            times = to_ms(words[0].start_s), to_ms(words[-1].end_s)
            cues.append(Cue(*times, text, line.name, words=timed))
    return cues


def _cut(words: tuple[WordTime, ...], options: CaptionOptions) -> Iterator[tuple[WordTime, ...]]:
    if options.unit == "word":
        yield from ((word,) for word in words)
        return
    is_late = (behind.start_s - before.end_s >= PAUSE_S for before, behind in pairwise(words))
    for phrase in _grouped(words, accumulate(is_late, initial=0)):
        shown = [word for word, _, _ in timed_words(phrase)]
        text = "".join(shown)
        parts = cut_sentences(text) if options.unit == "sentence" else cut_text(text, options.most_chars)
        ends = list(accumulate(map(len, parts)))
        begins = (end - len(word.text) for end, word in zip(accumulate(map(len, shown)), phrase, strict=True))
        # A word that is longer than a caption is in one all the same.
        yield from _grouped(phrase, (bisect_right(ends, begin) for begin in begins))


def _grouped(words: Sequence[WordTime], keys: Iterable[int]) -> Iterator[tuple[WordTime, ...]]:
    """Yield the words that have the same key and follow each other."""
    for _, group in groupby(zip(keys, words, strict=False), key=lambda one: one[0]):
        yield tuple(word for _, word in group)


def _json(lines: Sequence[LineWords], cues: Sequence[Cue]) -> str:
    """Return words and captions, named as in OpenAI's transcriptions; times in seconds."""
    words = [
        {
            "word": word.text,
            "start": round(word.start_s, 3),
            "end": round(word.end_s, 3),
            "line": number,
            "first_char": word.first_char,
            "last_char": word.last_char,
        }
        for number, line in enumerate(lines)
        for word in line.words
    ]
    segments = [
        {"start": cue.start_ms / 1000, "end": cue.end_ms / 1000, "text": cue.text, "speaker": cue.name} for cue in cues
    ]
    return json.dumps({"words": words, "segments": segments}, ensure_ascii=False, indent=1) + "\n"
