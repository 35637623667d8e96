"""Captions to dub: SRT or WebVTT in, lines of a script with their times out.

A caption is one line of a script (see ``script.py``): ``NAME: text`` with a name of the cast, or text of the character
NARRATOR. WebVTT's mark ``<v NAME>`` chooses the voice, if the cast has that name, and is never spoken. Tags such as
``[speed 1.1]`` may stand before its text. Sounds (see ``sounds.py``) are not spoken unless the caller wants it. Dashes
at the beginning of a caption's lines are left out. A caption of several speakers, by such marks or by names at the
beginning of its lines, becomes one for each, in turn: they share its time by the lengths of their texts.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from ..encoding import check_encodable
from ..names import name_key
from ..pronunciation import MARK
from .script import NARRATOR, RESERVED, ScriptError, ScriptLine, parse_script, report_faults
from .sounds import BRACKETS, with_sounds, without_sounds

MOST_CAPTIONS = 20_000
LAST_S = 12 * 3600.0  # no caption ends later: the track is held in memory
VTT_VOICE = re.compile(r"(?:^[-\u2010-\u2014][ \t]*)?<v(?:\.[^\s<>]*)?\s+([^<>\s][^<>]*)>", re.MULTILINE)
VTT_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<[\d:.]+>")  # a mark, or the time of a word
# The first line of one that is no caption
VTT_BLOCK = re.compile(r"(?:NOTE(?:[ \t].*)?|STYLE[ \t]*|REGION[ \t]*)")
ARROW = "-->"
STAMP = r"\d{1,4}(?::\d{1,4}){1,2}[.,]\d{1,3}"
# Stand for what pysubs2 must not see in words. Unicode says that they are no characters, so no text has them.
COLON, END, LESS = "\ufdd0", "\ufdd1", "\ufdd2"
# Also with another arrow, or none
TIMES = re.compile(rf"\s*-?{STAMP}[^\w<{LESS}]{{1,9}}{STAMP}(?:\s+X1:.*)?\s*")
ODD_STAMP = re.compile(rf"(?:^|{ARROW})\s*(-{STAMP}|\d{{3,}}(?::\d+){{2}}[.,]\d+)")
ASS = re.compile(r"^(?:\[(?:Script Info|V4\+? Styles|Events)\]|Dialogue:)", re.MULTILINE | re.IGNORECASE)
# pysubs2 takes the square of a text's length for blank lines, and for each < that begins no tag.
BLANK = re.compile(r"\n{3,}")
NO_TAG = re.compile(r"<(?! ?/? ?[A-Za-z][^<>]{0,200}>)")
# A style of ASS is found in SRT too, and is how pysubs2 returns <i>; other braces are words.
ASS_STYLE = re.compile(r"\{\\[^{}]*\}")
UNNAMED = str.maketrans(dict.fromkeys(RESERVED, " "))
REMARK = re.compile(r"[(\uff08][^()\uff08\uff09]*[)\uff09]")
REMARKS = re.compile(rf"((?:{REMARK.pattern}\s*)+)(.*)", re.DOTALL)  # before a text
DASH = re.compile(r"^[-\u2010-\u2014]\s*", re.MULTILINE)
SURE_DASH = re.compile(r"^[-\u2010-\u2014](?!\d)\s*", re.MULTILINE)  # no minus
SUNG = re.compile(r"#+(?![#\d])")
CLOSING_HASH = re.compile(r" #+\Z")  # after what is sung
ENTITY = re.compile(r"&#?\w{1,31};")  # only with its semicolon: R&D and "Q&not" are words
HEAD = re.compile("([^:\uff1a]*)[:\uff1a](.*)", re.DOTALL)


@dataclass(frozen=True)
class TimedText:
    """One caption of a file: its number there from 1, its times in whole milliseconds, and its text.

    ``speaker``: who speaks it by WebVTT's mark ``<v NAME>``, "" without one.
    """

    number: int
    start_ms: int
    end_ms: int
    text: str
    speaker: str = ""

    @property
    def time(self) -> str:
        """When it starts, as SRT writes it."""
        seconds, ms = divmod(self.start_ms, 1000)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02},{ms:03}"


@dataclass(frozen=True)
class DubLine:
    """A caption, what is spoken for it, and whether sounds of it are left out."""

    caption: TimedText
    line: ScriptLine
    left_out: bool = False


def read_captions(text: str) -> list[TimedText]:
    """Read SRT or WebVTT, without formatting; captions are in the order of their starts.

    Raises:
        ValueError: there is no caption, the times of one are wrong, or pysubs2 is not installed.
    """
    if not text.strip():
        raise ValueError("captions is empty: paste the text of an SRT file, or connect Script From File")
    check_encodable(text, "captions")
    plain = "\n".join(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\r"))
    kind = "vtt" if plain.lstrip().startswith("WEBVTT") else "srt"
    hidden = _words_hidden(_cues_only(plain), False) if kind == "vtt" else _words_hidden(_tags_only(plain))
    events = _parse(hidden, kind)
    captions = [one for number, event in enumerate(events, start=1) for one in _captions(number, event, kind)]
    _check(captions, is_ass=kind == "srt" and ASS.search(plain) is not None)
    return sorted(captions, key=lambda one: one.start_ms)


def _tags_only(text: str) -> str:
    """Return the text of an SRT file in which every ``<`` begins a tag, without rows of blank lines."""
    return NO_TAG.sub(LESS, BLANK.sub("\n\n", text))


def _words_hidden(text: str, numbered: bool = True) -> str:
    """Return the text of a file whose words pysubs2 takes for nothing else.

    It takes every line with two times for those of a caption, and a number at the end of a text for the next caption's.

    Args:
        text: of the file.
        numbered: whether a number before a caption's times is the caption's, not a word.

    Raises:
        ValueError: a time is before 0, or has 100 hours or more: pysubs2 would read another.
    """
    lines: list[str] = []
    times_follow = False
    for line in reversed(text.split("\n")):
        if ARROW in line or TIMES.fullmatch(line):
            if odd := ODD_STAMP.search(line):
                raise ValueError(f"captions has the time {odd[1]}: give times from 00:00:00,000 to 12 hours")
            times_follow = True
        elif line.strip():
            is_number = numbered and times_follow and line.strip().isdecimal()
            line = line if is_number else _marks_hidden(line).replace(":", COLON) + END
            times_follow = False
        lines.append(line)
    return "\n".join(reversed(lines))


def _marks_hidden(line: str) -> str:
    """Return a row of words in which no ``<shown|read>`` looks like a tag."""
    return MARK.sub(lambda match: LESS + match[0][1:], line) if "|" in line else line


def _cues_only(text: str) -> str:
    """Return the text of a WebVTT file without comments, styles, regions and the identifiers of captions.

    pysubs2 takes all of them for words of the caption before.
    """
    return "\n\n".join(_cue(block.split("\n")) for block in re.split(r"\n(?:[ \t]*\n)+", text)) + "\n"


def _cue(lines: list[str]) -> str:
    times = next((number for number, line in enumerate(lines) if ARROW in line), None)
    if VTT_BLOCK.fullmatch(lines[0]):
        return "" if times is None else "\n".join(lines[times:])
    return "\n".join(lines[1:] if times == 1 else lines)


def _captions(number: int, event: Any, kind: str) -> list[TimedText]:
    """Return a caption as pysubs2 read it, one for each of its speakers; WebVTT's tags are still in its text."""
    text = event.text.replace(COLON, ":").replace(END, "")
    for sign, meaning in (("\\N", "\n"), ("\\n", "\n"), ("\\h", " ")):
        text = text.replace(sign, meaning)
    text = ASS_STYLE.sub("", text)
    marked = _by_mark(text) if kind == "vtt" else [("", text)]
    plain = [
        (speaker, ENTITY.sub(lambda match: html.unescape(match[0]), said.replace(LESS, "<")))
        for speaker, said in marked
    ]
    return _shares(TimedText(number, event.start, event.end, ""), plain)


def _by_mark(text: str) -> list[tuple[str, str]]:
    """Return who speaks what of a caption by WebVTT's marks, without tags; what is before the first mark is the same
    speaker's.
    """
    marks = list(VTT_VOICE.finditer(text))
    starts = [0, *(mark.start() for mark in marks[1:]), len(text)]
    said: list[tuple[str, str]] = []
    for number, (start, end) in enumerate(pairwise(starts)):
        name = marks[number][1] if marks else ""
        speaker = " ".join(html.unescape(name).translate(UNNAMED).split())
        words = VTT_TAG.sub("", text[start:end])
        if said and name_key(said[-1][0]) == name_key(speaker):
            said[-1] = said[-1][0], said[-1][1] + words
        else:
            said.append((speaker, words))
    return [one for one in said if one[1].strip()] or said[:1]


def _shares(caption: TimedText, said: Sequence[tuple[str, str]]) -> list[TimedText]:
    """Return a caption for each of its speakers and their texts; their time is shared by the lengths of the texts."""
    ends = [0, *accumulate(max(1, len(text.strip())) for _, text in said)]
    times = [caption.start_ms + (caption.end_ms - caption.start_ms) * end // ends[-1] for end in ends]
    return [
        TimedText(caption.number, start, end, text.strip(), speaker)
        for (speaker, text), (start, end) in zip(said, pairwise(times), strict=True)
    ]


def _parse(text: str, kind: str) -> Any:
    try:
        import pysubs2
    except ImportError as error:
        raise ValueError(
            f"reading captions needs the package pysubs2 ({error}): run python -m pip install pysubs2 with ComfyUI's "
            "Python and restart"
        ) from error
    try:
        return pysubs2.SSAFile.from_string(text, format_=kind, keep_html_tags=kind == "vtt")
    except (pysubs2.Pysubs2Error, ValueError) as error:
        raise ValueError(f"captions cannot be read ({error}): save the file as SRT") from error


def _check(captions: Sequence[TimedText], is_ass: bool) -> None:
    """Raise ValueError for no captions, or faulty ones; the first ten are named."""
    if not captions and is_ass:
        raise ValueError("captions is ASS or SSA, not SRT or WebVTT: save it as SRT in a subtitle editor")
    if not captions:
        raise ValueError(
            "captions has no caption: write a number, '00:00:01,000 --> 00:00:02,500' and a text, then a blank line"
        )
    if len(captions) > MOST_CAPTIONS:
        raise ValueError(f"captions has {len(captions)}, more than {MOST_CAPTIONS}: split the file")
    errors = dict.fromkeys(f"caption {one.number}: {fault}" for one in captions for fault in _faults(one))
    if errors:
        raise ValueError(report_faults(list(errors), "captions"))


def _faults(caption: TimedText) -> Iterable[str]:
    if caption.end_ms <= caption.start_ms:
        yield f"it ends at its start ({caption.time}) or before: correct its times"
    if caption.end_ms > LAST_S * 1000:
        yield f"it ends after {LAST_S / 3600:g} hours: correct its times, or split the file"
    if "-->" in caption.text:
        yield "its text has -->: leave a blank line between captions, and write times as 00:00:01,000"


def read_dub(
    captions: Sequence[TimedText],
    cast: Collection[str],
    languages: Collection[str] | None = None,
    read_sounds: bool = False,
) -> tuple[list[DubLine], list[TimedText]]:
    """Return the lines to speak, and the captions that have nothing to speak, in the order of their starts.

    Args:
        captions: of ``read_captions``.
        cast: the names of the characters; NARRATOR speaks captions without one of these names.
        languages: as for ``parse_script``.
        read_sounds: whether descriptions of sounds are read aloud.

    Raises:
        ScriptError: naming the faulty captions.
    """
    known = {name_key(name): name for name in cast}
    parts = [part for one in captions for part in _by_name(one, known)]
    captions = sorted(parts, key=lambda one: one.start_ms)
    texts = [_as_line(one, known, read_sounds) for one in captions]
    numbered = dict(enumerate(captions, start=1))
    silent = [caption for caption, text in zip(captions, texts, strict=True) if not text]
    try:
        if len(silent) == len(captions):
            raise ScriptError("captions have nothing to speak: write words into them, or have sounds read")
        script = parse_script("\n".join(texts), cast, languages)
    except ScriptError as error:
        raise ScriptError(name_captions(str(error), numbered)) from None
    if any(script.pauses):
        raise ScriptError("a [pause] is before or after a caption's text: change the caption's time instead")
    own = ((numbered[line.number], line) for line in script.lines)
    dubbed = [
        DubLine(one, line, not read_sounds and without_sounds(one.text) != one.text) for one, line in own
    ]
    return dubbed, silent


def name_captions(message: str, numbered: dict[int, TimedText]) -> str:
    """Return an error of ``parse_script`` in which lines are captions, by their numbers in the file."""
    named = re.sub(
        r"^line (\d+)", lambda match: f"caption {numbered[int(match[1])].number}", message, flags=re.M
    )
    return named.replace("script cannot be read:", "captions cannot be read:", 1)


def _lines(text: str) -> list[str]:
    """Return the lines of a caption without the dashes of speakers.

    A dash before a figure is a minus, unless another line begins with a dash too.
    """
    dash = DASH if len(DASH.findall(text)) > 1 else SURE_DASH
    return dash.sub("", text).split("\n")


def _by_name(caption: TimedText, cast: dict[str, str]) -> list[TimedText]:
    parts: list[list[str]] = [[]]
    is_spoken = False
    for line in _lines(caption.text):
        said = without_sounds(line).strip()
        name = _head(said)
        if is_spoken and name is not None and _in_cast(name, cast):
            parts.append([])
        parts[-1].append(line)
        is_spoken = is_spoken or _has_words(said)
    if len(parts) == 1:
        return [caption]
    return _shares(caption, [(caption.speaker, "\n".join(lines)) for lines in parts])


def _as_line(caption: TimedText, cast: dict[str, str], read_sounds: bool) -> str:
    text = with_sounds(caption.text) if read_sounds else without_sounds(caption.text)
    said = " ".join(" ".join(_lines(text)).split())
    # A line of a script that begins with # is a comment; here it is sung. C# is a word, #1 a number.
    said = said.strip("# ") if SUNG.match(said) else CLOSING_HASH.sub("", said)
    said = _name_first(said, cast)
    if not _has_words(said) or (text != caption.text and _is_only_name(said, cast)):
        return ""
    if _is_named(said, cast):
        return said
    # Without a narrator, an unknown speaker is named, so that the error says who is missing.
    speaker = cast.get(name_key(caption.speaker)) or cast.get(NARRATOR) or caption.speaker
    return f"{speaker}: {said}" if speaker else said.lstrip("#")


def _name_first(said: str, cast: dict[str, str]) -> str:
    """Return a text with its name before the sounds that it begins with: a script's line begins with the name."""
    found = REMARKS.fullmatch(said)
    if not found or not _is_named(found[2], cast):
        return said
    name, words = re.split("[:\uff1a]", found[2], maxsplit=1)
    return f"{name}: {found[1]}{words.lstrip()}"


def _is_only_name(said: str, cast: dict[str, str]) -> bool:
    head = _head(said)
    return head is not None and said.endswith((":", "\uff1a")) and (_in_cast(head, cast) or head.isupper())


def _has_words(said: str) -> bool:
    return any(char.isalnum() for char in BRACKETS.sub("", said))


def _is_named(said: str, cast: dict[str, str]) -> bool:
    """Return whether the words before a colon are a name: one of the cast, or in capitals, which a typo may be."""
    name = _head(said)
    if name is None:
        return False
    bare = REMARK.sub("", name).strip()
    capitals = bare.isupper() and len(bare.split()) <= 3 and len(cast) > 1
    return _in_cast(name, cast) or capitals


def _head(said: str) -> str | None:
    """Return what is before the first colon, without brackets; None without a colon."""
    head = HEAD.fullmatch(BRACKETS.sub("", said))
    return head[1].strip() if head else None


def _in_cast(name: str, cast: dict[str, str]) -> bool:
    return name_key(name) in cast or name_key(REMARK.sub("", name).strip()) in cast
