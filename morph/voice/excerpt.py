"""Choose the part of a recording that a voice is made from: the requested one, or the best 3 to 12 s.

The best part starts and ends in pauses and has the most speech. Each second of speech counts one. Subtracted are:
pauses beyond half a second, a fifth of a second for each clipped 20 ms, a quarter of a second for each dB by which
the level of its phrases varies, and a second for each end outside a pause. Of equal parts the first is taken.
"""

from dataclasses import dataclass, replace

import numpy as np

from .measure import FRAME_S, SHORTEST_PAUSE_S, Measured, Part, measure
from .reference import LONGEST_S as MOST_USED_S
from .reference import SHORTEST_S as LEAST_S

SHORTEST_S, LONGEST_S = 3.0, 12.0  # of the best part
LEAD_S, TAIL_S = 0.1, 0.25  # of the pauses at its ends, at most: a voice ends better after some silence
LONGEST_PAUSE_S = 0.5
PER_CLIPPED_FRAME, PER_DB, PER_CUT = 0.2, 0.25, 1.0  # seconds of speech
TOLERANCE_S = 0.01  # for rounded input


@dataclass(frozen=True)
class Excerpt:
    """A part of a recording in seconds, and what it has, as a sentence ("" if unknown)."""

    start_s: float
    end_s: float
    about: str = ""

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s

    def __str__(self) -> str:
        return f"{self.start_s:.2f} to {self.end_s:.2f} s"

    def cut(self, waveform: np.ndarray, sample_rate: int) -> np.ndarray:
        """Return its samples of ``[T]`` or ``[C, T]``."""
        first, last = round(self.start_s * sample_rate), round(self.end_s * sample_rate)
        return np.ascontiguousarray(waveform[..., first:last])


def check_bounds(start_s: float, end_s: float) -> None:
    """Raise ValueError if the part is too short for a voice. ``end_s`` 0: the recording's end, not checked."""
    if end_s and end_s - start_s < LEAST_S:
        raise ValueError(
            f"start {start_s:g} s and end {end_s:g} s leave {max(0.0, end_s - start_s):.2f} s: choose at least "
            f"{LEAST_S:g} s"
        )


def choose(seconds: float, start_s: float = 0.0, end_s: float = 0.0) -> Excerpt:
    """Return the part from ``start_s`` to ``end_s`` (0: the end); ValueError if missing or too short for a voice."""
    for name, moment in (("start", start_s), ("end", end_s)):
        if not 0 <= moment <= seconds + TOLERANCE_S:
            raise ValueError(
                f"{name} is {moment:g} s and the recording is {seconds:.2f} s long: choose a moment within it"
            )
    end_s = min(end_s or seconds, seconds)
    check_bounds(start_s, end_s)
    return Excerpt(start_s, end_s)


def cut_part(
    waveform: np.ndarray, sample_rate: int, start_s: float = 0.0, end_s: float = 0.0, best: bool = False
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the requested part of a recording, ``[C, T]``, and lines for people about it; ValueError if there is none.

    ``start_s`` and ``end_s`` are in seconds; 0 and 0: all of it. ``best``: the best part, in place of these.
    """
    if not (start_s or end_s or best):
        return waveform, ()
    measured = measure(waveform, sample_rate)
    part = propose(measured) if best else choose(measured.seconds, start_s, end_s)
    return part.cut(waveform, sample_rate), tuple(tell(part, measured, waveform, sample_rate))


def tell(part: Excerpt, measured: Measured, waveform: np.ndarray, sample_rate: int) -> list[str]:
    """Return lines for people about a part: its place, why it is the best, its figures, its faults.

    ``measured`` and ``waveform`` (``[T]`` or ``[C, T]``) are of the whole recording, whose pauses show the noise.
    """
    own = replace(measure(part.cut(waveform, sample_rate), sample_rate), noise_db=measured.noise_db)
    place = f"{part} of {measured.seconds:.2f} s, {part.seconds:.2f} s long"
    return [
        f"the best part: {place}: {part.about}" if part.about else place,
        own.figures,
        *own.faults.values(),
    ]


def propose(measured: Measured) -> Excerpt:
    """Return the best 3 to 12 s of a recording, or what there is."""
    if not measured.speech:
        return Excerpt(0.0, min(measured.seconds, LONGEST_S), "no speech is found: its beginning")
    parts = _Parts(measured)
    return parts.best() or parts.everything()


def better_part(measured: Measured, icl: bool = False) -> Excerpt | None:
    """Return the best part if the whole recording is worse, else None.

    The whole is worse if it is longer than cloning uses, or with ``icl``, where every line continues it, than 12 s;
    and if it is clipped only outside the part.
    """
    if not measured.speech:
        return None
    part = propose(measured)
    is_long = measured.seconds > (LONGEST_S if icl else MOST_USED_S) + 1
    is_spoilt = (
        measured.clipped_frames.any()
        and not _frames(measured.clipped_frames, (part.start_s, part.end_s)).any()
    )
    return part if part.seconds >= SHORTEST_S and (is_long or is_spoilt) else None


class _Parts:
    """The parts of a recording, of at most 12 s, that begin and end with a stretch of speech.

    Arrays of parts are in the order of their first, then of their last stretch.
    """

    def __init__(self, measured: Measured):
        self._measured = measured
        stretches = [short for one in measured.speech for short in _divide(one, measured.frame_db)]
        self._levels = np.array([_frames(measured.frame_db, one).mean() for one in stretches])
        self._starts, self._ends = np.array(stretches).T
        # Before each stretch, and after the last one.
        self._pauses = np.append(self._starts, measured.seconds) - np.append(0.0, self._ends)
        numbers = np.arange(len(stretches))
        # The last stretch of each part, plus one.
        behind = np.searchsorted(self._ends, self._starts + LONGEST_S + FRAME_S / 2)
        self._first = np.repeat(numbers, behind - numbers)
        self._last = np.concatenate([np.arange(*one) for one in zip(numbers, behind, strict=True)])

    def best(self) -> Excerpt | None:
        """Return the best part of 3 to 12 s, or None."""
        start, end = self._bounds(self._first, self._last)
        fits = (end - start >= SHORTEST_S) & (end - start <= LONGEST_S)
        if not fits.any():
            return None
        best = int(np.argmax(np.where(fits, self._rate(start, end), -np.inf)))  # the first of equal ones
        spoken = float(self._sum(self._ends - self._starts)[best])
        clipped = _frames(self._measured.clipped_frames, (start[best], end[best])).any()
        cuts = int(self._cuts()[best])
        about = f"{spoken:.1f} s of speech, {'clipped' if clipped else 'not clipped'}, " + (
            f"{cuts} of its ends not in a pause" if cuts else "starts and ends in pauses"
        )
        return Excerpt(float(start[best]), float(end[best]), about)

    def everything(self) -> Excerpt:
        """Return all the speech; at least 1 s, and at most 12."""
        first, last = (float(one) for one in self._bounds(np.array(0), np.array(len(self._starts) - 1)))
        end = min(max(last, first + LEAST_S), first + LONGEST_S, self._measured.seconds)
        return Excerpt(max(0.0, min(first, end - LEAST_S)), end, "there is no other speech")

    def _bounds(self, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lead, tail = (
            np.minimum(LEAD_S, self._pauses[first] / 2),
            np.minimum(TAIL_S, self._pauses[last + 1] / 2),
        )
        return self._starts[first] - lead, self._ends[last] + tail

    def _rate(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        lengths = self._ends - self._starts
        spoken, level, square = (self._sum(lengths * self._levels**power) for power in range(3))
        varies = np.sqrt(np.maximum(square / spoken - (level / spoken) ** 2, 0))
        too_long = np.maximum(self._pauses[:-1] - LONGEST_PAUSE_S, 0)
        pauses = self._sum(too_long) - too_long[self._first]
        clipped = np.append(0, np.cumsum(self._measured.clipped_frames))
        count = clipped[_frame_at(end, len(clipped))] - clipped[_frame_at(start, len(clipped))]
        lost = pauses + PER_CLIPPED_FRAME * count + PER_DB * varies + PER_CUT * self._cuts()
        return np.round(spoken - lost, 3)  # closer ones are equal

    def _sum(self, values: np.ndarray) -> np.ndarray:
        sums = np.append(0, np.cumsum(values))
        return sums[self._last + 1] - sums[self._first]

    def _cuts(self) -> np.ndarray:
        cut = self._pauses < SHORTEST_PAUSE_S / 2
        return cut[self._first].astype(int) + cut[self._last + 1]


def _divide(stretch: Part, levels: np.ndarray) -> list[Part]:
    start, end = stretch
    parts = []
    while end - start > LONGEST_S:
        first = round((start + SHORTEST_S) / FRAME_S)
        quietest = first + int(np.argmin(levels[first : round((start + LONGEST_S) / FRAME_S)]))
        parts.append((start, quietest * FRAME_S))
        start = quietest * FRAME_S
    return [*parts, (start, end)]


def _frame_at(seconds: np.ndarray, count: int) -> np.ndarray:
    return np.minimum(np.round(seconds / FRAME_S).astype(int), count - 1)


def _frames(values: np.ndarray, part: Part) -> np.ndarray:
    first, last = _frame_at(np.array(part), len(values) + 1)
    return values[min(first, len(values) - 1) : max(first + 1, last)]
