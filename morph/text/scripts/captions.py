"""Read captions to dub: SRT or WebVTT to lines of a script with their times.

A caption is one line of a script (see ``script.py``): ``NAME: text`` with a name of the cast, or text of the character
NARRATOR. WebVTT's mark ``<v NAME>`` chooses the voice, if the cast has that name, and is never spoken. Tags such as
``[speed 1.1]`` may stand before its text. Sounds are not spoken unless the caller asks for it. Dashes at the beginning
of a caption's lines are left out. A caption of several speakers, by such marks or by names at the beginning of its
lines, is split into one for each, in order; they share its time in proportion to the lengths of their texts.

``[door slams]`` is a sound anywhere. ``(laughs)`` and its full-width forms are one at the beginning or the end of a
caption, alone on a line, and after a sign; parentheses inside a sentence are spoken. Text between two notes
(``\u266a la la \u266a``, ``# la la #``), or after one that begins a line, is music.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ..names import name_key
from ..split import check_encodable
from .cues import Cue, read_cues, share_time
from .script import COLON, KNOWN_TAG, NARRATOR, RESERVED, ScriptError, ScriptLine, read_lines, report_faults

NOTE = "\u2669\u266a\u266b\u266c\U0001f3b5\U0001f3b6"
BRACKETS = re.compile(r"\[[^\[\]]*\]")
OPENING, CLOSING = "(\uff08\uff3b\u3010", ")\uff09\uff3d\u3011"
SOUND = re.compile(f"([{OPENING}][^{OPENING}{CLOSING}]*[{CLOSING}])")
SENTENCE_ENDS = ".!?\u2026\u3002\uff01\uff1f"
# The look-ahead keeps a group of notes whole: half of it would pass for a pair.
_NOTES = rf"[{NOTE}]+(?![{NOTE}])"
MUSIC = re.compile(
    rf"""
      {_NOTES}[^{NOTE}\n]*{_NOTES}                        # a pair on one line
    | {_NOTES}[^{NOTE}]*{_NOTES}(?=[ \t]*(?:\n|\Z))       # a pair that closes at the end of a later line
    | {_NOTES}[^{NOTE}\n]*                                # a lone note, and its line
    | ^[^{NOTE}\n]+{_NOTES}[ \t]*$                        # the last line of what an earlier caption began
    """,
    re.VERBOSE | re.MULTILINE,
)
HASHES = re.compile(
    r"""
      \A\s*\#+[^#]+\#+\s*\Z                                              # the whole caption
    | (?:^|(?<=[:\uff1a\-\u2010-\u2014]))[ \t]*\#+[^#\n]+\#+(?=\s|\Z)     # a pair on one line
    | ^[ \t]*\#+[ \t][^\n]*                                              # a lone one; #1 and #tag are words
    """,
    re.VERBOSE | re.MULTILINE,
)
MOST_CAPTIONS = 20_000
LAST_S = 12 * 3600.0  # no caption ends later: the track is held in memory
ASS = re.compile(r"^(?:\[(?:Script Info|V4\+? Styles|Events)\]|Dialogue:)", re.MULTILINE | re.IGNORECASE)
UNNAMED = str.maketrans(dict.fromkeys(RESERVED, " "))
REMARK = re.compile(r"[(\uff08][^()\uff08\uff09]*[)\uff09]")
REMARKS = re.compile(rf"((?:{REMARK.pattern}\s*)+)(.*)", re.DOTALL)  # before a text
DASH = re.compile(r"^[-\u2010-\u2014]\s*", re.MULTILINE)
SURE_DASH = re.compile(r"^[-\u2010-\u2014](?!\d)\s*", re.MULTILINE)  # no minus
SUNG = re.compile(r"#+(?![#\d])")
CLOSING_HASH = re.compile(r" #+\Z")  # after what is sung


def without_sounds(text: str) -> str:
    """Return a caption without sounds, unchanged if it has none."""
    text = BRACKETS.sub(lambda match: match[0] if KNOWN_TAG.fullmatch(match[0]) else " ", text)
    return HASHES.sub(" ", MUSIC.sub(_unsung, _without_remarks(text)))


def with_sounds(text: str) -> str:
    """Return a caption whose sounds can be read: brackets become parentheses, which are no tags of scripts."""
    text = BRACKETS.sub(lambda match: match[0] if KNOWN_TAG.fullmatch(match[0]) else f"({match[0][1:-1]})", text)
    return re.sub(f"[{NOTE}]", "", text)


def _unsung(match: re.Match[str]) -> str:
    words = match[0].strip(NOTE + " \t")
    spoken = match[0][0] not in NOTE and words.endswith(tuple(SENTENCE_ENDS))
    return words if spoken else " "


def _without_remarks(text: str) -> str:
    # Words and remarks alternate.
    parts = SOUND.split(text)
    last = len(parts) - 1
    kept = [
        " " if place % 2 and _is_sound(part, parts[place - 1], parts[place + 1], place + 1 == last) else part
        for place, part in enumerate(parts)
    ]
    return "".join(kept)


def _is_sound(remark: str, before: str, behind: str, is_last: bool) -> bool:
    """Return whether a remark between two texts describes a sound; ``(555)`` does not."""
    if not any(char.isalpha() for char in remark):
        return False
    words = before.rstrip()
    begins = not words or not words[-1].isalnum()
    ends = is_last and not behind.strip()
    alone = "\n" in before[len(words) :] and "\n" in behind[: len(behind) - len(behind.lstrip())]
    return begins or ends or alone


@dataclass(frozen=True)
class DubLine:
    """A caption and its line to speak."""

    caption: Cue
    line: ScriptLine
    left_out: bool = False  # whether sounds of the caption are not spoken


def read_captions(text: str) -> list[Cue]:
    """Read captions to speak, in the order of their starts; see ``read_cues``.

    Raises ValueError if there is no caption, or the times of one are wrong; the first ten are named.
    """
    if not text.strip():
        raise ValueError("captions is empty: paste the text of an SRT file, or connect Script From File")
    check_encodable(text, "captions")
    captions = read_cues(text)
    if not captions and ASS.search(text):
        raise ValueError("captions is ASS or SSA, not SRT or WebVTT: save it as SRT in a subtitle editor")
    if not captions:
        raise ValueError(
            "captions has no caption: write a number, '00:00:01,000 --> 00:00:02,500' and a text, then a blank line"
        )
    if len(captions) > MOST_CAPTIONS:
        raise ValueError(f"captions has {len(captions)}, more than {MOST_CAPTIONS}: split the file")
    if errors := dict.fromkeys((one.number, fault) for one in captions for fault in _faults(one)):
        raise ValueError(report_faults(errors, "captions"))
    named = (replace(one, name=" ".join(one.name.translate(UNNAMED).split())) for one in captions)
    return sorted(named, key=lambda one: one.start_ms)


def _faults(caption: Cue) -> Iterable[str]:
    if caption.end_ms <= caption.start_ms:
        yield f"it ends at its start ({caption.time}) or before: correct its times"
    if caption.end_ms > LAST_S * 1000:
        yield f"it ends after {LAST_S / 3600:g} hours: correct its times, or split the file"
    if "-->" in caption.text:
        yield "its text has -->: leave a blank line between captions, and write times as 00:00:01,000"


def read_dub(
    captions: Sequence[Cue], cast: Collection[str], languages: Collection[str] | None = None, read_sounds: bool = False
) -> tuple[list[DubLine], list[Cue]]:
    """Return the lines to speak, and the captions that have nothing to speak, in the order of their starts.

    ``captions`` are of ``read_captions``. NARRATOR, if in the ``cast``, speaks captions without one of its names.
    ``languages`` as for ``parse_script``. Raises ScriptError naming the faulty captions.
    """
    known = {name_key(name): name for name in cast}
    parts = [part for one in captions for part in _by_name(one, known)]
    captions = sorted(parts, key=lambda one: one.start_ms)
    texts = [_as_line(one, known, read_sounds) for one in captions]
    own = [(one, text) for one, text in zip(captions, texts, strict=True) if text]
    if not own:
        raise ScriptError("captions have nothing to speak: write words into them, or have sounds read")
    script = read_lines(((one.number, text) for one, text in own), cast, languages, "captions")
    if any(script.pauses):
        raise ScriptError("a [pause] is before or after a caption's text: change the caption's time instead")
    dubbed = [
        DubLine(one, line, not read_sounds and without_sounds(one.text) != one.text)
        for (one, _), line in zip(own, script.lines, strict=True)
    ]
    return dubbed, [one for one, text in zip(captions, texts, strict=True) if not text]


def _lines(text: str) -> list[str]:
    """Return the lines of a caption without the dashes of speakers.

    A dash before a figure is a minus, unless another line begins with a dash too.
    """
    dash = DASH if len(DASH.findall(text)) > 1 else SURE_DASH
    return dash.sub("", text).split("\n")


def _by_name(caption: Cue, cast: dict[str, str]) -> list[Cue]:
    parts: list[list[str]] = [[]]
    is_spoken = False
    for line in _lines(caption.text):
        said = without_sounds(line).strip()
        if is_spoken and _in_cast(_head(said), cast):
            parts.append([])
        parts[-1].append(line)
        is_spoken = is_spoken or _has_words(said)
    if len(parts) == 1:
        return [caption]
    return share_time(caption, [(caption.name, "\n".join(lines)) for lines in parts])


def _as_line(caption: Cue, cast: dict[str, str], read_sounds: bool) -> str:
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
    speaker = cast.get(name_key(caption.name)) or cast.get(NARRATOR) or caption.name
    return f"{speaker}: {said}" if speaker else said.lstrip("#")


def _name_first(said: str, cast: dict[str, str]) -> str:
    """Return a text with its name before the sounds that it begins with, as in a script."""
    found = REMARKS.fullmatch(said)
    if not found or not _is_named(found[2], cast):
        return said
    name, words = COLON.split(found[2], maxsplit=1)
    return f"{name}: {found[1]}{words.lstrip()}"


def _is_only_name(said: str, cast: dict[str, str]) -> bool:
    head = _head(said)
    return said.endswith((":", "\uff1a")) and (_in_cast(head, cast) or head.isupper())


def _has_words(said: str) -> bool:
    return any(map(str.isalnum, BRACKETS.sub("", said)))


def _is_named(said: str, cast: dict[str, str]) -> bool:
    """Return whether the words before a colon are a name: one of the cast, or in capitals, maybe a typo."""
    name = _head(said)
    bare = REMARK.sub("", name).strip()
    capitals = bare.isupper() and len(bare.split()) <= 3 and len(cast) > 1
    return _in_cast(name, cast) or capitals


def _head(said: str) -> str:
    """Return the words before the first colon, without brackets; "" without a colon."""
    head, *text = COLON.split(BRACKETS.sub("", said), maxsplit=1)
    return head.strip() if text else ""


def _in_cast(name: str, cast: dict[str, str]) -> bool:
    return name_key(name) in cast or name_key(REMARK.sub("", name).strip()) in cast
