"""The recordings that a node shows on itself: temporary files, and their entries in the page's list."""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...morph.speech.lines import Spoken
from ...morph.text.pronunciation import shown_text
from ...morph.text.scripts.cues import TimedWord
from ...morph.words.captions import timed_words
from ...morph.words.timing import WordTime
from ...postprocess.convert import to_s16

KEY = "morph_clips"  # in the ui of a node's output; ComfyUI's own "audio" needs a widget of that name
LONGEST_NAME = 40  # characters of a name, and of the words, in a file's name
MOST_BYTES = 100  # of the same in UTF-8: file systems allow 255 for the whole name


@dataclass(frozen=True, eq=False)
class Clip:
    waveform: np.ndarray  # float ``[T]``; if only listed also ``[C, T]``
    sample_rate: int
    name: str  # the character or the setting, or ""
    text: str
    problems: tuple[str, ...] = ()  # shown in red
    words: tuple[TimedWord, ...] = ()  # highlighted as they play
    number: int = 0  # of its caption; 0 if there is none


def to_clip(spoken: Spoken, name: str = "", words: Sequence[WordTime] = ()) -> Clip:
    """Return a spoken line as a clip, named ``name`` or after its character; ``words`` have times in its own audio."""
    from ...morph.speech.pieces import WHAT_HAPPENED, WORDS_DIFFER

    report = spoken.report
    problems = [WHAT_HAPPENED[report.ended]] if report.ended in WHAT_HAPPENED else []
    if report.heard is not None and not report.heard.passed:
        problems.append(WORDS_DIFFER)
    text = shown_text(report.text)
    shown = name or report.name
    return Clip(spoken.waveform, spoken.sample_rate, shown, text, tuple(problems), show_words(words), spoken.number)


def show_words(words: Sequence[WordTime]) -> tuple[TimedWord, ...]:
    """Return the words of a line for the page, to the millisecond."""
    return tuple((word, round(start, 3), round(end, 3)) for word, start, end in timed_words(words))


def show(text: str, clips: Sequence[Clip], compare: bool = False, report: str = "") -> dict[str, Any]:
    """Return the ui of a node's output: a text, and its clips as a list.

    The page shows the first line of ``text``, and ``report``, or else the other lines, folded. ``compare``: the clips
    are of the same words.
    """
    import folder_paths

    shown = write_clips(clips, Path(folder_paths.get_temp_directory()))
    return {"text": (text,), KEY: shown, f"{KEY}_compare": (compare,), f"{KEY}_report": (report,)}


def write_clips(clips: Sequence[Clip], folder: Path) -> list[dict[str, Any]]:
    """Write the clips as FLAC files into a new folder below ``folder``; return their entries for the page."""
    import soundfile

    own = f"speech_{secrets.token_hex(4)}"
    (folder / own).mkdir(parents=True)
    shown = []
    for number, clip in enumerate(clips, start=1):
        name = file_name(number, clip.name, clip.text)
        soundfile.write(folder / own / name, to_s16(clip.waveform), clip.sample_rate, subtype="PCM_16")
        shown.append(list_clip(clip, {"filename": name, "subfolder": own, "type": "temp"}))
    return shown


def list_clip(clip: Clip, file: dict[str, str]) -> dict[str, Any]:
    """Return a clip's entry for the page; ``file``: where it is, as ComfyUI's ``/view`` expects it."""
    seconds = clip.waveform.shape[-1] / clip.sample_rate
    shown = {**file, "name": clip.name, "text": clip.text, "seconds": seconds, "problems": list(clip.problems)}
    more = {"words": list(clip.words), "number": clip.number}
    return shown | {key: value for key, value in more.items() if value}


def file_name(number: int, name: str, text: str, suffix: str = ".flac") -> str:
    """Return a name that is safe on every system: the number, the character or setting, and the first words."""
    parts = [f"{number:03}", *(_slug(part) for part in (name, text))]
    return "_".join(part for part in parts if part) + suffix


def _slug(text: str) -> str:
    """Keep letters, digits and marks, at most LONGEST_NAME and MOST_BYTES; the rest becomes single hyphens."""
    text = unicodedata.normalize("NFC", text)
    kept = "".join(char if char.isalnum() or unicodedata.category(char)[0] == "M" else " " for char in text)
    words = "-".join(kept[: 2 * LONGEST_NAME].split())[:LONGEST_NAME]
    return words.encode()[:MOST_BYTES].decode(errors="ignore").strip("-")
