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
from typing import Any

from ...morph.options import MOST_SEED
from ...morph.setting import Setting
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
NUMBERS = {
    "seed": Setting(0, low=0, high=MOST_SEED, name="seed"),
    "take": Setting(1, low=1, high=MOST_TAKES, name="take"),
    "gain": Setting(0.0, low=LOWEST_GAIN_DB, high=HIGHEST_GAIN_DB, name="gain"),
    "speed": Setting(1.0, low=LOWEST_SPEED, high=HIGHEST_SPEED, name="speed"),
    "pitch": Setting(0.0, low=-MOST_SEMITONES, high=MOST_SEMITONES, name="pitch"),
    "pause": Setting(0.0, low=0, high=MAX_PAUSE_S, name="pause"),
}
KEYS = (*TEXTS, *NUMBERS)
LINE_BREAK = re.compile(r"\r\n|\r|\n")


def parse_lines(text: str) -> tuple[Script, dict[str, str]]:
    """Return lines in JSON as a script, whose names are those of the subtitles, and the voice of each name.

    Voices are names of the cast, "" for the narrator. ScriptError names the faulty lines.
    """
    items: list[ScriptLine | float] = []
    voices: dict[str, str] = {}
    errors: list[tuple[int, str]] = []
    # Not splitlines: a string in JSON may have the other line breaks as they are.
    for number, row in enumerate(LINE_BREAK.split(text.removeprefix("\ufeff")), start=1):
        try:
            if row.strip():
                items += _read(number, row, voices)
        except ValueError as error:
            errors.append((number, str(error)))
    if errors:
        raise ScriptError(report_faults(errors, "the list"))
    if not voices:
        raise ScriptError('there is no line to speak: write objects such as {"text": "Hello."}')
    return Script(tuple(items)), voices


def _read(number: int, row: str, voices: dict[str, str]) -> list[ScriptLine | float]:
    fields = _fields(row)
    name, voice = fields.pop("name", ""), fields.pop("voice", "")
    name, voice = name or voice, voice or name
    if voices.setdefault(name, voice) != voice:
        raise ValueError(f"{name!r} speaks with {voice!r} here and with {voices[name]!r} above: use another name")
    pause, gain = fields.pop("pause", None), fields.pop("gain", None)
    spoken = ScriptLine(number, name, gain_db=gain, **fields)
    return [spoken] if pause is None else [float(pause), spoken]


def _fields(row: str) -> dict[str, Any]:
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
        if key in NUMBERS:
            NUMBERS[key].check(value)
        elif not isinstance(value, str):
            raise ValueError(f"{key} is {value!r}: give text")
        else:
            check_encodable(value, key)
    check_spoken(fields["text"])
    return fields
