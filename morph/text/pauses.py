"""Read pauses in a text: ``[pause 0.4]`` is 0.4 seconds of silence."""

import re
from dataclasses import dataclass

from .split import check_text, shorten

MAX_PAUSE_S = 60.0
MAX_PAUSES_S = 3600.0  # all of one text together
# Runs in linear time on any text: no two of its parts can match the same characters.
PAUSE = re.compile(r"\[\s*pause\b([^\[\]]*)\]", re.IGNORECASE)
DECIMAL = re.compile(r"\d+(?:\.\d*)?|\.\d+")
FOLLOWS_CLOSELY = tuple(".,;:!?…。，、；：！？")  # no space before these when a pause before them is left out


@dataclass(frozen=True)
class PausedText:
    """The parts of a text that have a letter or a digit, between its pauses."""

    parts: tuple[str, ...]
    pauses_s: tuple[float, ...]  # seconds before each part and after the last


def read_pauses(text: str) -> PausedText:
    """Cut a text at its pauses; parts without letters and digits are dropped, and the pauses around them added."""
    first, *rest = PAUSE.split(text)
    if not rest:
        return PausedText((text,), (0.0, 0.0))
    parts, pauses = [], [0.0]
    for pause, part in zip([0.0, *map(read_seconds, rest[::2])], [first, *rest[1::2]], strict=True):
        pauses[-1] += pause
        if any(char.isalnum() for char in part):
            parts.append(part)
            pauses.append(0.0)
    if sum(pauses) > MAX_PAUSES_S:
        raise ValueError(
            f"the pauses of one text add up to {sum(pauses):g} s: give at most {MAX_PAUSES_S:g} seconds in all"
        )
    return PausedText(tuple(parts), tuple(pauses))


def read_seconds(value: str) -> float:
    """Read the value of a pause tag; raise ValueError if it is not a number from 0 to MAX_PAUSE_S."""
    value = value.strip()
    if not DECIMAL.fullmatch(value) or float(value) > MAX_PAUSE_S:
        raise ValueError(
            f"[pause {shorten(value)}] is not a pause: give 0 to {MAX_PAUSE_S:g} seconds, e.g. [pause 0.5]"
        )
    return float(value)


def without_pauses(text: str) -> str:
    """Return a text without its pauses, for display. A text that has none is returned unchanged."""
    first, *rest = PAUSE.split(text)
    if not rest:
        return text
    shown = first.strip()
    for part in rest[1::2]:
        words = part.strip()
        space = "" if not shown or not words or words.startswith(FOLLOWS_CLOSELY) else " "
        shown += space + words
    return shown


def check_spoken(text: str, name: str = "text") -> str:
    """Return a text that may have pauses; raise the errors of ``check_text`` and ``read_pauses``."""
    read_pauses(text)
    check_text(without_pauses(text), name)
    return text
