"""Lines to speak as JSON, one object per line of a file.

    {"text": "Good morning.", "voice": "heart"}
    {"name": "Bob", "voice": "michael", "text": "It is 5:30.", "seed": 7, "pause": 0.5}

``text`` is needed, and may have ``[pause 0.4]`` inside. ``voice`` is one of the cast (see ``cast.py``) and ``name`` is
who speaks in the subtitles; either may be left out. ``language``, ``seed``, ``take``, ``gain`` (dB),
``speed``, ``pitch`` (semitones) and ``instruct`` are as in scripts; ``pause`` is seconds of silence before the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...morph.options import MOST_SEED
from ...morph.text.encoding import check_encodable
from ...morph.text.pauses import MAX_PAUSE_S, check_spoken
from ...morph.text.scripts.script import (
    HIGHEST_GAIN_DB,
    LOWEST_GAIN_DB,
    MOST_TAKES,
    Script,
    ScriptError,
    ScriptLine,
    report_faults,
)
from ...postprocess.stretch import HIGHEST_SPEED, LOWEST_SPEED, MOST_SEMITONES

TEXTS = ("text", "voice", "name", "language", "instruct")
WHOLE = {"seed": (0, MOST_SEED), "take": (1, MOST_TAKES)}
NUMBERS = {
    "gain": (LOWEST_GAIN_DB, HIGHEST_GAIN_DB),
    "speed": (LOWEST_SPEED, HIGHEST_SPEED),
    "pitch": (-MOST_SEMITONES, MOST_SEMITONES),
    "pause": (0.0, MAX_PAUSE_S),
}
KEYS = (*TEXTS, *WHOLE, *NUMBERS)
LINE_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class LineList:
    """Lines as a script, in which each name stands for one voice of the cast.

    Args:
        script: the lines and pauses; names are those that the subtitles show.
        voices: for each name, the voice's name in the cast; "" for the narrator.
    """

    script: Script
    voices: Mapping[str, str]


def parse_lines(text: str) -> LineList:
    """Read lines as JSON; ScriptError names the faulty ones."""
    items: list[ScriptLine | float] = []
    voices: dict[str, str] = {}
    errors: list[str] = []
    # Not splitlines: a string in JSON may have the other line breaks as they are.
    for number, row in enumerate(LINE_BREAK.split(text.removeprefix("\ufeff")), start=1):
        try:
            if row.strip():
                items += _read(number, row, voices)
        except ValueError as error:
            errors.append(f"line {number}: {error}")
    if errors:
        raise ScriptError(report_faults(errors, "the list"))
    if not voices:
        raise ScriptError('there is no line to speak: write objects such as {"text": "Hello."}')
    return LineList(Script(tuple(items)), voices)


def _read(number: int, row: str, voices: dict[str, str]) -> list[ScriptLine | float]:
    fields = _fields(row)
    name, voice = fields.pop("name", ""), fields.pop("voice", "")
    name, voice = name or voice, voice or name
    if voices.setdefault(name, voice) != voice:
        raise ValueError(
            f"{name!r} speaks with {voice!r} here and with {voices[name]!r} above: use another name"
        )
    pause, gain = fields.pop("pause", None), fields.pop("gain", None)
    spoken = ScriptLine(number, name, gain_db=gain, **fields)
    return [spoken] if pause is None else [float(pause), spoken]


def _fields(row: str) -> dict[str, Any]:
    """Return the checked fields of one object; ValueError for a wrong one."""
    try:
        fields = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
        raise ValueError('it has no text: write {"text": "Hello."}')
    if unknown := sorted(set(fields) - set(KEYS)):
        raise ValueError(f"{unknown[0]!r} is not a key: choose of {', '.join(KEYS)}")
    fields = {key: value for key, value in fields.items() if value is not None}
    for key, value in fields.items():
        _check(key, value)
    check_spoken(fields["text"])
    return fields


def _check(key: str, value: object) -> None:
    if key in TEXTS:
        if not isinstance(value, str):
            raise ValueError(f"{key} is {value!r}: give text")
        check_encodable(value, key)
        return
    low, high = (WHOLE | NUMBERS)[key]
    kinds = (int,) if key in WHOLE else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        raise ValueError(
            f"{key} is {value!r}: give a {'whole ' if key in WHOLE else ''}number, {low:g} to {high:g}"
        )
