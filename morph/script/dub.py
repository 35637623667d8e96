"""Dubbing: captions with times to one track, in which each is spoken when its caption says.

Speech that is longer than its caption may take is spoken faster, up to a limit; it may run into the silence after its
caption, up to another. What does not fit then is heard in full all the same, at the highest speed allowed, and listed.
The next caption starts when it has ended, later than its time, and is listed with how much later.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...postprocess.checks import check_switch
from ...postprocess.stretch import stretched_length
from ..batch.speaks import Speaks
from ..kept.once import Listener, Once, speak_lines
from ..options import FitLimits, GenerateOptions
from ..speech.lines import Line, Spoken
from ..speech.takes import ERROR
from ..text.names import name_key
from ..text.pronunciation import PronunciationList
from ..text.scripts.captions import DubLine, read_captions, read_dub
from ..text.scripts.cues import Cue, write_cues
from ..text.scripts.script import NARRATOR, Script
from ..text.split import shorten
from ..voice.voice import Voice
from .dialogue import (
    ScriptRequest,
    amplify_line,
    check_instructions,
    check_retiming,
    lines_of,
    retime,
    retiming_of,
)
from .sentences import captions_of

DOES_NOT_FIT = "does not fit its caption"  # as a recording of it is marked


@dataclass(frozen=True)
class DubRequest:
    """Captions to speak; see ``ScriptRequest`` for what is not explained here."""

    captions: str  # the text of an SRT or WebVTT file; see ``captions.py``
    cast: Mapping[str, Voice]  # NARRATOR speaks captions that name none
    language: str = "auto"
    seed: int = 0
    limits: FitLimits = field(default_factory=FitLimits)
    read_sounds: bool = False  # descriptions of sounds are read aloud
    pronunciation: tuple[PronunciationList, ...] = ()

    def __post_init__(self) -> None:
        check_switch("read_sounds", self.read_sounds)


class Room(NamedTuple):
    """Where speech may be, in samples: from its caption's start to the end that the limits allow."""

    start: int
    end: int


@dataclass(frozen=True)
class Placed:
    source: DubLine
    spoken: Spoken  # at its final speed, pitch and level
    room: Room
    start: int  # its first sample: ``room.start``, or later
    speed: float  # 1: as the model spoke it
    wanted: float  # the speed at which it would fit

    @property
    def caption(self) -> Cue:
        return self.source.caption

    @property
    def end(self) -> int:
        return self.start + len(self.spoken.waveform)

    @property
    def later_s(self) -> float:
        return (self.start - self.room.start) / self.spoken.sample_rate

    @property
    def too_long_s(self) -> float:
        length = self.room.end - self.room.start
        return max(0, len(self.spoken.waveform) - length) / self.spoken.sample_rate

    @property
    def fits(self) -> bool:
        return not self.later_s and not self.too_long_s


@dataclass(frozen=True)
class Dub:
    placed: tuple[Placed, ...]
    silent: tuple[Cue, ...]  # captions that have nothing to speak
    track: (
        np.ndarray
    )  # float32 ``[T]``, to the last caption's end or the end of its speech, whichever is later
    sample_rate: int
    cues: tuple[Cue, ...]  # at the times of their speech in the track
    clipped: bool = False  # speech of several captions together was too loud
    asked: tuple[Line, ...] = ()  # of ``placed``, as they were to be spoken

    @property
    def srt(self) -> str:
        return write_cues(self.cues, "srt")

    @property
    def misfits(self) -> str:
        """The captions that do not fit, start later or could not be spoken, one per line; "" if there are none."""
        return "\n".join(said for one in self.placed if (said := describe_misfit(one)))

    @property
    def summary(self) -> str:
        """How it went, in a few sentences, the captions that do not fit first."""
        said = [self._fit(), *self.misfits.splitlines()]
        if faster := [one.speed for one in self.placed if one.speed > 1]:
            said.append(f"{len(faster)} spoken faster than 1, at most {max(faster):.2f}.")
        if mixed := [one.caption for one in self.placed if one.source.left_out]:
            said.append(f"Captions whose sounds are not read: {_numbers(mixed)}.")
        captions = Counter(one.caption.number for one in self.placed)
        if shared := [one.caption for one in self.placed if captions[one.caption.number] > 1]:
            said.append(
                f"Captions of several speakers, in turn, each in a share of the time: {_numbers(shared)}."
            )
        if self.silent:
            said.append(f"Captions with nothing to speak: {_numbers(self.silent)}.")
        if self.clipped:
            said.append(
                "Captions that are heard together are too loud and are clipped: lower one with [gain -6]."
            )
        said.append(f"The track is {len(self.track) / self.sample_rate:.3f} s long.")
        return "\n".join(said)

    def _fit(self) -> str:
        count = len(self.placed)
        moved = sum(1 for one in self.placed if one.later_s)
        wrong = sum(1 for one in self.placed if one.too_long_s or one.spoken.report.ended == ERROR)
        fit = f"{wrong} of {count} captions do not fit" if wrong else f"All {count} captions fit"
        later = f", {moved} {'starts' if moved == 1 else 'start'} later" if moved else ""
        return fit + later + (":" if wrong or moved else ".")


def _numbers(captions: Sequence[Cue]) -> str:
    numbers = dict.fromkeys(one.number for one in captions)  # speakers of one caption have its number
    count = f"{len(numbers)} in all: " if len(numbers) > 3 else ""
    return count + ", ".join(map(str, numbers))


def read_request(
    speaks: Speaks, request: DubRequest, options: GenerateOptions
) -> tuple[list[DubLine], list[Cue], list[Line]]:
    """Return what is spoken for which caption, the captions with nothing to speak, and the lines to be spoken.

    Raises:
        ScriptError: naming the captions with an instruction that cannot be followed.
        ValueError: for captions that cannot be read or spoken, or where python-stretch is needed and not installed.
    """
    captions = read_captions(request.captions)
    dubbed, silent = read_dub(captions, list(request.cast), speaks.languages, request.read_sounds)
    script = Script(tuple(one.line for one in dubbed))
    check_retiming(script.lines, request.limits.max_speed > 1)
    by = ScriptRequest("", request.cast, request.language, request.seed, pronunciation=request.pronunciation)
    lines = lines_of(script, by)
    check_instructions(speaks, zip(script.lines, lines, strict=True), options, "captions")
    # No subtitle shows the name NARRATOR.
    lines = [replace(line, name="") if name_key(line.name) == NARRATOR else line for line in lines]
    return dubbed, silent, lines


def render_dub(
    speaks: Speaks,
    request: DubRequest,
    options: GenerateOptions,
    once: Once | None = None,
    listener: Listener | None = None,
) -> Dub:
    """Speak captions; errors as ``read_request`` and ``speak_lines``. Silence at the lines' ends is always cut."""
    options = replace(options, trim_ends=True)
    dubbed, silent, lines = read_request(speaks, request, options)
    spoken = speak_lines(speaks, lines, options, once, listener)
    return replace(assemble_dub(dubbed, silent, spoken, request.limits), asked=tuple(lines))


def assemble_dub(
    dubbed: Sequence[DubLine], silent: Sequence[Cue], spoken: Sequence[Spoken], limits: FitLimits
) -> Dub:
    """Fit lines to their captions, and mix them into a track; see ``place_all``."""
    rate = spoken[0].sample_rate
    spoken = [replace(one, number=source.caption.number) for one, source in zip(spoken, dubbed, strict=True)]
    placed = place_all(dubbed, spoken, limits)
    last = max(one.caption.end_ms for one in dubbed)
    length = max(round(last * rate / 1000), *(one.end for one in placed))
    mixed = np.zeros(length, dtype=np.float32)
    for one in placed:
        mixed[one.start : one.end] += one.spoken.waveform
    track = np.clip(mixed, np.float32(-1), np.float32(1))
    sounding = [one for one in placed if one.spoken.report.ended != ERROR]
    own = [cue for one in sounding for cue in captions_of(one.start, one.spoken)]
    cues = sorted(own, key=lambda one: one.start_ms)
    return Dub(placed, tuple(silent), track, rate, tuple(cues), not np.array_equal(track, mixed))


def place_all(dubbed: Sequence[DubLine], spoken: Sequence[Spoken], limits: FitLimits) -> tuple[Placed, ...]:
    """Return the speech of all captions, each when the speech that it must wait for has ended.

    Unless it may be spoken over, that is the speech of captions that end before this one starts, and of the same
    character. Captions of two characters that overlap are heard together, but no longer than in the file.
    """
    rooms = find_rooms([one.caption for one in dubbed], spoken[0].sample_rate, limits)
    placed: list[Placed] = []
    running: list[Placed] = []  # their captions have not ended
    free = 0  # the sample after the speech of all others
    for source, line, room in zip(dubbed, spoken, rooms, strict=True):
        start = room.start
        if not limits.speak_over:
            over = [one for one in running if one.caption.end_ms <= source.caption.start_ms]
            running = [one for one in running if one.caption.end_ms > source.caption.start_ms]
            free = max([free, *(one.end for one in over)])
            start = max([start, free, *(_earliest(source, room, one) for one in running)])
        placed.append(place(source, line, room, start, limits))
        if line.report.ended != ERROR:
            running.append(placed[-1])
    return tuple(placed)


def _earliest(source: DubLine, room: Room, other: Placed) -> int:
    """Return where a caption may start that overlaps an earlier one in the file."""
    if name_key(source.line.name) == name_key(other.source.line.name):
        return other.end
    return max(other.start, room.start + other.end - other.room.end)


def find_rooms(captions: Sequence[Cue], sample_rate: int, limits: FitLimits) -> list[Room]:
    """Return where the speech of each caption may be.

    It may end ``overrun`` after its caption, but not after the start of the next caption that starts when this one
    has ended. One that starts before that overlaps this one, and is heard together with it.
    """
    starts = np.array([one.start_ms for one in captions])  # ascending
    rooms = []
    for one in captions:
        end = one.end_ms + 1000 * limits.overrun
        later = int(np.searchsorted(starts, one.end_ms))
        if later < len(starts):
            end = min(end, max(one.end_ms, float(starts[later])))
        rooms.append(Room(round(one.start_ms * sample_rate / 1000), round(end * sample_rate / 1000)))
    return rooms


def place(source: DubLine, spoken: Spoken, room: Room, start: int, limits: FitLimits) -> Placed:
    """Return a caption's speech from ``start``, faster where it must be to end in its room."""
    if spoken.report.ended == ERROR:
        return Placed(source, spoken, room, room.start, 1.0, 1.0)
    asked, samples = retiming_of(source.line), len(spoken.waveform)

    def needed(length: int) -> float:
        fits = stretched_length(samples, asked.speed) <= length
        return asked.speed if fits else samples / max(1, length)

    speed = max(asked.speed, min(needed(room.end - start), limits.max_speed))
    fitted = amplify_line(retime(spoken, replace(asked, speed=speed)), source.line)
    return Placed(source, fitted, room, start, speed, needed(room.end - room.start))


def describe_misfit(placed: Placed) -> str:
    """Return why a caption is not as it should be, "" if it is."""
    caption, report = placed.caption, placed.spoken.report
    name = f"Caption {caption.number} ({caption.time}, {shorten(' '.join(caption.text.split()))!r})"
    if report.ended == ERROR:
        return f"{name} could not be made: {report.error}"
    said = []
    if placed.later_s:
        said.append(f"starts {placed.later_s:.2f} s later than its time, because an earlier one goes on")
    if placed.too_long_s:
        said.append(
            f"is {placed.too_long_s:.2f} s too long at speed {placed.speed:.2f}: shorten its text, or give it more "
            f"time; it would fit at {placed.wanted:.2f}"
        )
    return f"{name} {' and '.join(said)}." if said else ""
