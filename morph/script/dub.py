"""Dubbing: captions with times to one track, in which each is spoken when its caption says.

Speech that is longer than its caption may take is spoken faster, up to a limit; it may run into the silence after its
caption, up to another. If it still does not fit, nothing is cut: it has the highest speed allowed, and is listed.
The next caption starts when it has ended, later than its time, and is listed with how much later.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...postprocess.checks import Span
from ...postprocess.stretch import check_installed, stretched_length
from ..batch.speech import Checks
from ..options import FitLimits, GenerateOptions
from ..speech.lines import ERROR, Line, Spoken
from ..text.names import name_key
from ..text.scripts.captions import DubLine
from ..text.scripts.cues import Cue, find_rooms, write_cues
from ..text.scripts.script import NARRATOR
from ..text.split import shorten
from .dialogue import ScriptRequest, cues_of, finish_line, make_lines, retiming_of

DOES_NOT_FIT = "does not fit its caption"  # as a recording of it is marked


@dataclass(frozen=True)
class PlacedLine:
    """The speech of a caption in the track."""

    source: DubLine
    spoken: Spoken  # at its final speed, pitch and level
    room: Span  # samples from its caption's start to the end that the limits allow
    start: int  # its first sample: where the room starts, or later
    speed: float  # 1: as the model spoke it
    wanted: float  # the speed at which it would fit

    @property
    def caption(self) -> Cue:
        return self.source.caption

    @property
    def end(self) -> int:
        return self.start + len(self.spoken.waveform)

    @property
    def late_s(self) -> float:
        return (self.start - self.room[0]) / self.spoken.sample_rate

    @property
    def too_long_s(self) -> float:
        room = self.room[1] - self.room[0]
        return max(0, len(self.spoken.waveform) - room) / self.spoken.sample_rate

    @property
    def fits(self) -> bool:
        return not self.late_s and not self.too_long_s

    @property
    def misfit(self) -> str:
        """Why it is not as it should be, "" if it is."""
        text = shorten(" ".join(self.caption.text.split()))
        name = f"Caption {self.caption.number} ({self.caption.time}, {text!r})"
        if self.spoken.report.ended == ERROR:
            return f"{name} could not be made: {self.spoken.report.error}"
        faults = []
        if self.late_s:
            faults.append(f"starts {self.late_s:.2f} s later than its time, because an earlier one goes on")
        if self.too_long_s:
            faults.append(
                f"is {self.too_long_s:.2f} s too long at speed {self.speed:.2f}: shorten its text, or give it more "
                f"time; it would fit at {self.wanted:.2f}"
            )
        return f"{name} {' and '.join(faults)}." if faults else ""


@dataclass(frozen=True)
class Dub:
    """Spoken captions."""

    placed: tuple[PlacedLine, ...]
    silent: tuple[Cue, ...]  # captions that have nothing to speak
    # float32 ``[T]``, to the last caption's end or the end of its speech, whichever is later
    track: np.ndarray
    sample_rate: int
    cues: tuple[Cue, ...]  # at the times of their speech in the track
    clipped: bool = False  # speech of several captions together was too loud

    @property
    def srt(self) -> str:
        return write_cues(self.cues, "srt")

    @property
    def misfits(self) -> str:
        """The captions that do not fit, start later or could not be spoken, one per line; "" if there are none."""
        return "\n".join(filter(None, (one.misfit for one in self.placed)))

    @property
    def summary(self) -> str:
        """How it went, in a few sentences, the captions that do not fit first."""
        count, late = len(self.placed), sum(bool(one.late_s) for one in self.placed)
        wrong = sum(bool(one.too_long_s) or one.spoken.report.ended == ERROR for one in self.placed)
        all_fit = "The caption fits" if count == 1 else f"All {count} captions fit"
        fit = f"{wrong} of {count} captions do not fit" if wrong else all_fit
        later = f", {late} {'starts' if late == 1 else 'start'} later" if late else ""
        lines = [f"{fit}{later}{':' if wrong or late else '.'}", *self.misfits.splitlines()]
        if faster := [one.speed for one in self.placed if one.speed > 1]:
            lines.append(f"{len(faster)} spoken faster than 1, at most {max(faster):.2f}.")
        speakers = Counter(one.caption.number for one in self.placed)
        about = {
            "Captions whose sounds are not read": [one.caption for one in self.placed if one.source.left_out],
            "Captions of several speakers, in turn, each in a share of the time": [
                one.caption for one in self.placed if speakers[one.caption.number] > 1
            ],
            "Captions with nothing to speak": self.silent,
        }
        lines += [f"{what}: {_numbers(captions)}." for what, captions in about.items() if captions]
        if self.clipped:
            lines.append("Overlapping captions are too loud together and are clipped: lower one with [gain -6].")
        return "\n".join([*lines, f"The track is {len(self.track) / self.sample_rate:.3f} s long."])


def _numbers(captions: Sequence[Cue]) -> str:
    numbers = dict.fromkeys(one.number for one in captions)  # speakers of one caption have its number
    count = f"{len(numbers)} in all: " if len(numbers) > 3 else ""
    return count + ", ".join(map(str, numbers))


def make_dub_lines(
    speaks: Checks, dubbed: Sequence[DubLine], request: ScriptRequest, options: GenerateOptions, limits: FitLimits
) -> list[Line]:
    """Return the lines to be spoken, as ``make_lines``, of what ``read_dub`` returned.

    Silence at the lines' ends must be cut (``GenerateOptions.trim_ends``).
    """
    if limits.max_speed > 1:
        check_installed()
    lines = make_lines(speaks, [one.line for one in dubbed], replace(request, what="captions"), options)
    # No subtitle shows the name NARRATOR.
    return [replace(line, name="") if name_key(line.name) == NARRATOR else line for line in lines]


def assemble_dub(dubbed: Sequence[DubLine], silent: Sequence[Cue], spoken: Sequence[Spoken], limits: FitLimits) -> Dub:
    """Fit lines to their captions, and mix them into a track; see ``place_all``."""
    rate = spoken[0].sample_rate
    placed = place_all(dubbed, spoken, limits)
    last = max(one.caption.end_ms for one in dubbed)
    mixed = np.zeros(max(round(last * rate / 1000), *(one.end for one in placed)), dtype=np.float32)
    for one in placed:
        mixed[one.start : one.end] += one.spoken.waveform
    track = np.clip(mixed, np.float32(-1), np.float32(1))
    cues = cues_of([one.spoken for one in placed], [one.start for one in placed])
    return Dub(placed, tuple(silent), track, rate, tuple(cues), not np.array_equal(track, mixed))


def place_all(dubbed: Sequence[DubLine], spoken: Sequence[Spoken], limits: FitLimits) -> tuple[PlacedLine, ...]:
    """Return the speech of all captions, each when the speech that it must wait for has ended.

    Unless it may be spoken over, that is the speech of captions that end before this one starts, and of the same
    character. Captions of two characters that overlap are played together, but no longer than in the file.
    """
    rooms = find_rooms([one.caption for one in dubbed], spoken[0].sample_rate, limits.overrun)
    placed: list[PlacedLine] = []
    running: list[PlacedLine] = []  # their captions have not ended
    free = 0  # the sample after the speech of all others
    for source, line, room in zip(dubbed, spoken, rooms, strict=True):
        now = source.caption.start_ms
        free = max([free, *(one.end for one in running if one.caption.end_ms <= now)])
        running = [one for one in running if one.caption.end_ms > now]
        start = max([room[0], free, *(_earliest(source, room, one) for one in running)])
        placed.append(place(source, line, room, room[0] if limits.speak_over else start, limits))
        if line.report.ended != ERROR:
            running.append(placed[-1])
    return tuple(placed)


def _earliest(source: DubLine, room: Span, other: PlacedLine) -> int:
    """Return where a caption may start that overlaps an earlier one in the file."""
    if name_key(source.line.name) == name_key(other.source.line.name):
        return other.end
    return max(other.start, room[0] + other.end - other.room[1])


def place(source: DubLine, spoken: Spoken, room: Span, start: int, limits: FitLimits) -> PlacedLine:
    """Return a caption's speech from ``start``, faster if necessary to end in its room."""
    spoken = replace(spoken, number=source.caption.number)
    if spoken.report.ended == ERROR:
        return PlacedLine(source, spoken, room, room[0], 1.0, 1.0)
    own, samples = retiming_of(source.line).speed, len(spoken.waveform)

    def needed(length: int) -> float:
        return own if stretched_length(samples, own) <= length else samples / max(1, length)

    speed = max(own, min(needed(room[1] - start), limits.max_speed))
    fitted = finish_line(spoken, replace(source.line, speed=speed))
    return PlacedLine(source, fitted, room, start, speed, needed(room[1] - room[0]))
