"""Choose the part of a recording that a voice is made from: the requested one, or the best 3 to 12 s.

The best part starts and ends in pauses and has the most speech. Each second of speech counts one. Subtracted are:
pauses beyond half a second, a fifth of a second for each clipped 20 ms, a quarter of a second for each dB by which
the level of its phrases varies, and a second for each end outside a pause. Of equal parts the first is taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .measure import FRAME_S, SHORTEST_PAUSE_S, Interval, Measurement, measure
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


def tell(part: Excerpt, measured: Measurement, waveform: np.ndarray, sample_rate: int) -> list[str]:
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


def propose(measured: Measurement) -> Excerpt:
    """Return the best 3 to 12 s of a recording, or what there is."""
    if not measured.speech:
        return Excerpt(0.0, min(measured.seconds, LONGEST_S), "no speech is found: its beginning")
    stretches = [short for one in measured.speech for short in _divide(one, measured.frame_db)]
    edges = [0.0, *(edge for stretch in stretches for edge in stretch), measured.seconds]
    # Before each stretch, and after the last one.
    pauses = [start - end for end, start in zip(edges[::2], edges[1::2], strict=True)]
    best, most = None, -math.inf
    for first, (start, _) in enumerate(stretches):
        for last in range(first + 1, len(stretches) + 1):
            if stretches[last - 1][1] - start > LONGEST_S + FRAME_S / 2:
                break
            part, score = _rate(measured, stretches[first:last], pauses[first : last + 1])
            if score > most:  # the first of equal ones
                best, most = part, score
    if best is not None:
        return best
    all_speech, _ = _rate(measured, stretches, pauses)
    end = min(max(all_speech.end_s, all_speech.start_s + LEAST_S), all_speech.start_s + LONGEST_S, measured.seconds)
    return Excerpt(max(0.0, min(all_speech.start_s, end - LEAST_S)), end, "there is no other speech")


def _rate(measured: Measurement, stretches: Sequence[Interval], pauses: Sequence[float]) -> tuple[Excerpt, float]:
    """Return the part with these stretches of speech, and its score, -inf unless it lasts 3 to 12 s.

    ``pauses``: before each of its stretches, and after the last one.
    """
    start = stretches[0][0] - min(LEAD_S, pauses[0] / 2)
    end = stretches[-1][1] + min(TAIL_S, pauses[-1] / 2)
    if not SHORTEST_S <= end - start <= LONGEST_S:
        return Excerpt(start, end), -math.inf
    lengths = np.array([end - start for start, end in stretches])
    levels = np.array([_frames(measured.frame_db, one).mean() for one in stretches])
    spoken, level = lengths.sum(), np.average(levels, weights=lengths)
    varies = math.sqrt(np.average((levels - level) ** 2, weights=lengths))
    too_long = sum(max(pause - LONGEST_PAUSE_S, 0) for pause in pauses[1:-1])
    clipped = _frames(measured.clipped_frames, (start, end)).sum()
    cuts = sum(pause < SHORTEST_PAUSE_S / 2 for pause in (pauses[0], pauses[-1]))
    score = spoken - too_long - PER_CLIPPED_FRAME * clipped - PER_DB * varies - PER_CUT * cuts
    ends = f"{cuts} of its ends not in a pause" if cuts else "starts and ends in pauses"
    about = f"{spoken:.1f} s of speech, {'clipped' if clipped else 'not clipped'}, {ends}"
    return Excerpt(start, end, about), round(score, 3)  # closer ones are equal


def better_part(measured: Measurement, icl: bool = False) -> Excerpt | None:
    """Return the best part if the whole recording is worse, else None.

    The whole is worse if it is longer than cloning uses, or with ``icl``, where every line continues it, than 12 s;
    and if it is clipped only outside the part.
    """
    if not measured.speech:
        return None
    part = propose(measured)
    is_long = measured.seconds > (LONGEST_S if icl else MOST_USED_S) + 1
    is_spoilt = measured.clipped_frames.any() and not _frames(measured.clipped_frames, (part.start_s, part.end_s)).any()
    return part if part.seconds >= SHORTEST_S and (is_long or is_spoilt) else None


def _divide(stretch: Interval, levels: np.ndarray) -> list[Interval]:
    start, end = stretch
    parts = []
    while end - start > LONGEST_S:
        first = round((start + SHORTEST_S) / FRAME_S)
        quietest = first + int(np.argmin(levels[first : round((start + LONGEST_S) / FRAME_S)]))
        parts.append((start, quietest * FRAME_S))
        start = quietest * FRAME_S
    return [*parts, (start, end)]


def _frames(values: np.ndarray, part: Interval) -> np.ndarray:
    """Return the values of a part's frames, at least one."""
    first, last = (min(round(moment / FRAME_S), len(values)) for moment in part)
    return values[min(first, len(values) - 1) : max(first + 1, last)]
