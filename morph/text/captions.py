"""Captions to dub: SRT or WebVTT in, lines of a script with their times out.

A caption is one line of a script (see ``script.py``): ``NAME: text`` with a name of the cast, or text of the character
NARRATOR. WebVTT's mark ``<v NAME>`` chooses the voice, if the cast has that name, and is never spoken. Tags such as
``[speed 1.1]`` may stand before its text. Sounds (see ``sounds.py``) are not spoken unless the caller wants it. Dashes
at the beginning of a caption's lines are left out. A caption has one speaker: one in which another line begins with a
name is refused.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .encoding import check_encodable
from .names import name_key
from .script import NARRATOR, RESERVED, ScriptError, ScriptLine, parse_script, report_faults
from .sounds import BRACKETS, with_sounds, without_sounds

LONGEST_SHOWN = 40  # characters of a line in an error
MOST_CAPTIONS = 20_000
LAST_S = 12 * 3600.0  # no caption ends later: the track is held in memory
VTT_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s+([^<>\s][^<>]*)>")
VTT_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<[\d:.]+>")  # a mark, or the time of a word
VTT_BLOCK = re.compile(
    r"(?:NOTE(?:[ \t].*)?|STYLE[ \t]*|REGION[ \t]*)"
)  # the first line of one that is no caption
ARROW = "-->"
UNNAMED = str.maketrans(dict.fromkeys(RESERVED, " "))
REMARK = re.compile(r"[(\uff08][^()\uff08\uff09]*[)\uff09]")
REMARKS = re.compile(rf"((?:{REMARK.pattern}\s*)+)(.*)", re.DOTALL)  # before a text
DASH = re.compile(r"^[-\u2010-\u2014]\s*", re.MULTILINE)
SURE_DASH = re.compile(r"^[-\u2010-\u2014](?!\d)\s*", re.MULTILINE)  # no minus
CLOSING_HASH = re.compile(r" #+\Z")  # behind what is sung
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
    events = _parse(_cues_only(plain) if kind == "vtt" else plain, kind)
    captions = [_caption(number, event, kind) for number, event in enumerate(events, start=1)]
    _check(captions)
    return sorted(captions, key=lambda one: one.start_ms)


def _cues_only(text: str) -> str:
    """Return the text of a WebVTT file without comments, styles, regions and the identifiers of captions.

    pysubs2 takes all of them for words of the caption before.
    """
    return "\n\n".join(_cue(block.split("\n")) for block in re.split(r"\n(?:[ \t]*\n)+", text)) + "\n"


def _cue(lines: list[str]) -> str:
    """Return what is a caption in the lines between two blank ones."""
    times = next((number for number, line in enumerate(lines) if ARROW in line), None)
    if VTT_BLOCK.fullmatch(lines[0]):
        return "" if times is None else "\n".join(lines[times:])
    return "\n".join(lines[1:] if times == 1 else lines)


def _caption(number: int, event: Any, kind: str) -> TimedText:
    """Return a caption as pysubs2 read it; WebVTT's tags are still in its text."""
    text, speaker = event.plaintext, ""
    if kind == "vtt":
        voice = VTT_VOICE.search(text)
        speaker = " ".join(html.unescape(voice[1]).translate(UNNAMED).split()) if voice else ""
        text = VTT_TAG.sub("", text)
    text = ENTITY.sub(lambda match: html.unescape(match[0]), text)
    return TimedText(number, event.start, event.end, text.strip(), speaker)


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


def _check(captions: Sequence[TimedText]) -> None:
    """Raise ValueError for no captions, or faulty ones; the first ten are named."""
    if not captions:
        raise ValueError(
            "captions has no caption: write a number, '00:00:01,000 --> 00:00:02,500' and a text, then a blank line"
        )
    if len(captions) > MOST_CAPTIONS:
        raise ValueError(f"captions has {len(captions)}, more than {MOST_CAPTIONS}: split the file")
    errors = [f"caption {one.number}: {fault}" for one in captions for fault in _faults(one)]
    if errors:
        raise ValueError(report_faults(errors, "captions"))


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
    """Return the lines to speak, and the captions that have nothing to speak.

    Args:
        captions: of ``read_captions``.
        cast: the names of the characters; NARRATOR speaks captions without one of these names.
        languages: as for ``parse_script``.
        read_sounds: whether descriptions of sounds are read aloud.

    Raises:
        ScriptError: naming the faulty captions.
    """
    known = {name_key(name): name for name in cast}
    if errors := [error for one in captions for error in _second_speakers(one, known)]:
        raise ScriptError(report_faults(errors, "captions"))
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
    return [_dubbed(numbered[line.number], line, read_sounds) for line in script.lines], silent


def _dubbed(caption: TimedText, line: ScriptLine, read_sounds: bool) -> DubLine:
    left_out = not read_sounds and without_sounds(caption.text) != caption.text
    return DubLine(caption, line, left_out)


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


def _second_speakers(caption: TimedText, cast: dict[str, str]) -> Iterable[str]:
    """Name the lines that begin with a name of the cast behind a spoken line: the name would be read aloud."""
    spoken = [line for line in _lines(without_sounds(caption.text)) if _has_words(line)]
    for line in spoken[1:]:
        name = _head(line)
        if name is not None and _in_cast(name, cast):
            shown = repr(line.strip()[:LONGEST_SHOWN])
            yield f"caption {caption.number}: {shown} begins with a name: make it a caption of its own"


def _as_line(caption: TimedText, cast: dict[str, str], read_sounds: bool) -> str:
    """Return a caption as a line of a script, "" if nothing of it is spoken."""
    text = with_sounds(caption.text) if read_sounds else without_sounds(caption.text)
    said = " ".join(" ".join(_lines(text)).split())
    # A line of a script that begins with # is a comment; here it is sung. C# is a word.
    said = said.strip("# ") if said.startswith("#") else CLOSING_HASH.sub("", said)
    said = _name_first(said, cast)
    if not _has_words(said) or (text != caption.text and _is_only_name(said, cast)):
        return ""
    if _is_named(said, cast):
        return said
    # Without a narrator, an unknown speaker is named, so that the error says who is missing.
    speaker = cast.get(name_key(caption.speaker)) or cast.get(NARRATOR) or caption.speaker
    return f"{speaker}: {said}" if speaker else said


def _name_first(said: str, cast: dict[str, str]) -> str:
    """Return a text with its name before the sounds that it begins with: a script's line begins with the name."""
    found = REMARKS.fullmatch(said)
    if not found or not _is_named(found[2], cast):
        return said
    name, words = re.split("[:\uff1a]", found[2], maxsplit=1)
    return f"{name}: {found[1]}{words.lstrip()}"


def _is_only_name(said: str, cast: dict[str, str]) -> bool:
    """Return whether a text is a name whose words were all sounds: one of the cast, or in capitals."""
    head = _head(said)
    return head is not None and said.endswith((":", "\uff1a")) and (_in_cast(head, cast) or head.isupper())


def _has_words(said: str) -> bool:
    """Return whether a text is more than tags and signs."""
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
    """Return whether a name, or one with a remark behind it, is in the cast."""
    return name_key(name) in cast or name_key(REMARK.sub("", name).strip()) in cast
