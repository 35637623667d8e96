"""Words with times as captions: SRT, WebVTT whose words light up, JSON, and ASS karaoke."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from ..text.scripts.subtitles import Caption, escape, timestamp, to_srt
from ..text.split import Span, pack, parts_between, sentence_ends, split_span
from .timing import WordTime, shift_words

FORMATS = ("srt", "vtt", "json", "ass")
UNITS = ("word", "phrase", "sentence")
MOST_CHARS = 500
PAUSE_S = 1.0  # no caption stays over a silence of this length
# ASS: white words on a film, grey until they are said. Sizes are for a height of 1080.
WIDTH, HEIGHT, FONT_SIZE, MARGIN, GREY = 1920, 1080, 64, 60, 150
# Braces hold commands in ASS, and so does what is after a backslash: a word joiner makes it a letter.
ASS_LETTERS = str.maketrans({"{": "(", "}": ")", "\\": "\\\u2060"})


@dataclass(frozen=True)
class CaptionOptions:
    """How words become captions.

    Args:
        format: one of FORMATS.
        unit: one of UNITS: what a caption has. In WebVTT and ASS the words of a longer one light up as they are heard.
        most_chars: the longest phrase, 1 to 500 characters; phrases end at punctuation where they can.

    Raises:
        ValueError: naming the field.
    """

    format: str = "srt"
    unit: str = "phrase"
    most_chars: int = 42

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"format is {self.format!r}: choose {', '.join(FORMATS)}")
        if self.unit not in UNITS:
            raise ValueError(f"unit is {self.unit!r}: choose {', '.join(UNITS)}")
        if type(self.most_chars) is not int or not 1 <= self.most_chars <= MOST_CHARS:
            raise ValueError(f"most_chars is {self.most_chars!r}: choose 1 to {MOST_CHARS}")


@dataclass(frozen=True)
class LineWords:
    """The words of one line, at their times in the whole sound, and who speaks it."""

    words: tuple[WordTime, ...]
    name: str = ""

    def at(self, start_s: float) -> LineWords:
        """Return the line as it is heard where its sound begins ``start_s`` seconds later."""
        return LineWords(shift_words(self.words, start_s), self.name)


@dataclass(frozen=True)
class Cue:
    """A caption of words of one line, at least one."""

    words: tuple[WordTime, ...]
    name: str = ""

    @property
    def start_ms(self) -> int:
        """When its first word starts, in whole milliseconds."""
        return _to_ms(self.words[0].start_s)

    @property
    def end_ms(self) -> int:
        """When its last word ends."""
        return _to_ms(self.words[-1].end_s)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Its words, each but the first with the space before it, if there is one."""
        spaces = (
            "",
            *(" " if other.first_char > one.last_char else "" for one, other in pairwise(self.words)),
        )
        return tuple(space + word.text for space, word in zip(spaces, self.words, strict=True))

    @property
    def text(self) -> str:
        """Its words as they are shown."""
        return "".join(self.parts)


def write_captions(lines: Sequence[LineWords], options: CaptionOptions) -> str:
    """Return the text of a file of captions, in the order of their starts; without words, one without captions.

    Args:
        lines: of the sound; words of no two lines are in one caption.
        options: what is written.

    Raises:
        ValueError: for ASS where pysubs2 is not installed.
    """
    cues = sorted(cut_cues(lines, options), key=lambda cue: cue.start_ms)
    if options.format == "srt":
        return _srt(cues, options.unit != "word")
    if options.format == "vtt":
        return "\n".join(["WEBVTT\n", *map(_vtt_cue, cues)])
    return _json(lines, cues) if options.format == "json" else _ass(cues)


def cut_cues(lines: Sequence[LineWords], options: CaptionOptions) -> list[Cue]:
    """Return the words of lines in captions: of one word each, or of phrases or sentences."""
    return [Cue(words, line.name) for line in lines for words in _cut(line.words, options)]


def _cut(words: tuple[WordTime, ...], options: CaptionOptions) -> Iterator[tuple[WordTime, ...]]:
    if options.unit == "word":
        yield from ((word,) for word in words)
        return
    for heard in _between_pauses(words):
        text, places = _placed(heard)
        whole = (0, len(text))
        if options.unit == "sentence":
            spans = list(parts_between(text, whole, sentence_ends(text, whole)))
        else:
            spans = pack(split_span(text, whole, options.most_chars), options.most_chars)
        yield from _in_spans(heard, places, spans)


def _between_pauses(words: tuple[WordTime, ...]) -> Iterator[tuple[WordTime, ...]]:
    begin = 0
    for index, (before, behind) in enumerate(pairwise(words), start=1):
        if behind.start_s - before.end_s >= PAUSE_S:
            yield words[begin:index]
            begin = index
    if words:
        yield words[begin:]


def _placed(words: tuple[WordTime, ...]) -> tuple[str, list[int]]:
    parts = Cue(words).parts
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    places = [end - len(word.text) for end, word in zip(ends[1:], words, strict=True)]
    return "".join(parts), places


def _in_spans(
    words: tuple[WordTime, ...], places: Sequence[int], spans: Sequence[Span]
) -> Iterator[tuple[WordTime, ...]]:
    """Yield the words that begin in each span: a word that is longer than a caption is in one all the same."""
    begin = 0
    for _, end in spans:
        stop = next((index for index in range(begin, len(words)) if places[index] >= end), len(words))
        if stop > begin:
            yield words[begin:stop]
        begin = stop


def _to_ms(seconds: float) -> int:
    return int(seconds * 1000 + 0.5)


def _srt(cues: Sequence[Cue], with_names: bool) -> str:
    names = [cue.name if with_names else "" for cue in cues]
    captions = [
        Caption(cue.start_ms, cue.end_ms, cue.text, name) for cue, name in zip(cues, names, strict=True)
    ]
    return to_srt(captions)


def _vtt_cue(cue: Cue) -> str:
    """Return a cue of WebVTT. The time of a word is between those before and after it, as the standard wants it."""
    shown, last = "", cue.start_ms
    for part, word in zip(cue.parts, cue.words, strict=True):
        start = _to_ms(word.start_s)
        space, said = (" ", part[1:]) if part.startswith(" ") else ("", part)
        if last < start < cue.end_ms:
            space, last = f"{space}<{timestamp(start, '.')}>", start
        shown += space + escape(said)
    voice = f"<v {escape(' '.join(cue.name.split()))}>" if cue.name.strip() else ""
    return f"{timestamp(cue.start_ms, '.')} --> {timestamp(cue.end_ms, '.')}\n{voice}{shown}\n"


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
        {"start": cue.start_ms / 1000, "end": cue.end_ms / 1000, "text": cue.text, "speaker": cue.name}
        for cue in cues
    ]
    return json.dumps({"words": words, "segments": segments}, ensure_ascii=False, indent=1) + "\n"


def _ass(cues: Sequence[Cue]) -> str:
    pysubs2 = _pysubs2()
    file = pysubs2.SSAFile()
    file.info |= {"PlayResX": str(WIDTH), "PlayResY": str(HEIGHT)}
    style = pysubs2.SSAStyle(fontsize=FONT_SIZE, marginv=MARGIN)
    style.secondarycolor = pysubs2.Color(GREY, GREY, GREY)
    file.styles = {"Default": style}
    for cue in cues:
        start, end = _to_cs(cue.words[0].start_s), _to_cs(cue.words[-1].end_s)
        name = " ".join(cue.name.replace(",", " ").split())  # a comma ends the field
        file.append(pysubs2.SSAEvent(start=10 * start, end=10 * end, text=_karaoke(cue), name=name))
    text: str = file.to_string("ass", header_notice="")
    return text


def _karaoke(cue: Cue) -> str:
    r"""Return the words of a caption, each preceded by its length in hundredths of a second, ``{\k25}``."""
    shown, at = "", _to_cs(cue.words[0].start_s)
    for part, word in zip(cue.parts, cue.words, strict=True):
        start, end = _to_cs(word.start_s), _to_cs(word.end_s)
        said = part.removeprefix(" ")
        if start > at or said != part:
            shown += f"{{\\k{start - at}}}" + (" " if said != part else "")
        shown += f"{{\\k{end - start}}}{said.translate(ASS_LETTERS)}"
        at = end
    return shown


def _to_cs(seconds: float) -> int:
    return int(seconds * 100 + 0.5)


def _pysubs2() -> Any:
    """Return the library's module; ValueError if it is not installed."""
    try:
        import pysubs2
    except ImportError as error:
        raise ValueError(
            f"captions as ASS need the package pysubs2 ({error}): run python -m pip install pysubs2 with ComfyUI's "
            "Python and restart, or choose srt, vtt or json"
        ) from error
    return pysubs2
