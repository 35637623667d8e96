"""Measure a recording of speech, and choose the part that a voice is made from: the requested one, or the best.

Everything comes from levels: music counts as speech, and a steady noise is the noise of the room.

The best part is 3 to 12 s long, starts and ends in pauses, and has the most speech. Each second of speech counts one.
Subtracted are: pauses beyond half a second, a fifth of a second for each clipped 20 ms, a quarter of a second for each
dB by which the level of its phrases varies, and a second for each end outside a pause. Of equal parts the first is
taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .recording import LONGEST_S as MOST_USED_S
from .recording import SHORTEST_S as LEAST_S
from .recording import STEADY_DB, block_power, check_channels, to_mono

FRAME_S = 0.02  # for levels
LOWEST_DB = -100.0  # dBFS; digital silence has this level
LOUD, QUIET = 0.95, 0.05  # quantiles of frames: speech without its pauses, and the noise below it
NOT_SILENT_DB = 40.0  # frames within this range of the loudest one give the level of speech
SPEECH_RANGE_DB = 30.0  # of speech, below its loud frames
ABOVE_NOISE = 0.35  # and at least this share of the way from the noise to them
SHORTEST_PAUSE_S = 0.15  # shorter ones are inside a word
SHORTEST_SPEECH_S = 0.06  # shorter sounds are clicks
LEAST_NOISE_FRAMES = 10  # of pauses, to measure the noise in them
FLAT = 0.999  # of a channel's own peak: samples above it are clipped
FLAT_S = 1e-4  # if they are in a row for this long
FEWEST_FLAT = 3  # places; one or two are just the loudest moments

QUIET_SPEECH_DB = -35.0  # dBFS; quieter speech was recorded from afar or with a low gain
NOISY_DB = 15.0  # between speech and noise; below, the voice has the noise too

SHORTEST_S, LONGEST_S = 3.0, 12.0  # of the best part
LEAD_S, TAIL_S = 0.1, 0.25  # of the pauses at its ends, at most: a voice ends better after some silence
LONGEST_PAUSE_S = 0.5
PER_CLIPPED_FRAME, PER_DB, PER_CUT = 0.2, 0.25, 1.0  # seconds of speech
TOLERANCE_S = 0.01  # for rounded input

Interval = tuple[float, float]  # the start and the end of a part of a recording, in seconds


@dataclass(frozen=True, eq=False)
class Measurement:
    """The measurements of a recording."""

    seconds: float
    level_db: float  # of its speech, or of all if there is none, in dBFS (root mean square)
    peak_db: float  # of the loudest sample in any channel, in dBFS
    noise_db: float | None  # of its pauses, in dBFS, LOWEST_DB for digital silence; None without pauses
    clipped: float  # share of clipped samples, 0..1
    speech: tuple[Interval, ...]  # where somebody speaks, in order
    frame_db: np.ndarray  # level of each FRAME_S, ``[N]``
    clipped_frames: np.ndarray  # whether anything in each is clipped, ``[N]``

    @property
    def snr_db(self) -> float:
        """Speech above noise in dB; infinite if unknown."""
        return math.inf if self.noise_db is None else self.level_db - self.noise_db

    def clipped_at(self, most: int) -> list[float]:
        """Return where something is clipped, in seconds; at most ``most`` moments."""
        found = np.flatnonzero(self.clipped_frames)
        chosen = found[:: max(1, -(-found.size // most))]
        return [round(float(frame) * FRAME_S, 2) for frame in chosen]

    @property
    def figures(self) -> str:
        spoken = sum(end - start for start, end in self.speech)
        clipped = f"{100 * self.clipped:.2f} % clipped" if self.clipped else "not clipped"
        noise = "no pause to measure noise in"
        if self.noise_db is not None:
            noise = f"noise {self.noise_db:.0f} dBFS, {self.snr_db:.0f} dB below the speech"
        levels = f"level {self.level_db:.0f} dBFS, peak {self.peak_db:.1f} dBFS"
        return f"speech {spoken:.1f} s, {levels}, {clipped}, {noise}"

    @property
    def faults(self) -> dict[str, str]:
        """Faults that would spoil a voice: a name and a sentence for each; none for an ordinary recording."""
        if not self.speech:
            return {"speech": "no speech is found: its level hardly changes, like noise or a tone"}
        found = {}
        if self.clipped:
            found["clipped"] = "it is clipped: record it again with less gain, or choose a part without"
        if self.level_db < QUIET_SPEECH_DB:
            found["quiet"] = "it is quiet: speak closer to the microphone, or raise its gain"
        if self.snr_db < NOISY_DB:
            found["noisy"] = "it is noisy, and its voice will be: record it in a quiet room"
        return found


def measure(waveform: np.ndarray, sample_rate: int) -> Measurement:
    """Measure a recording, float ``[T]`` or ``[C, T]``; ValueError if it is shorter than 1 s, or not finite."""
    channels = check_channels(waveform, sample_rate)
    samples, frame = channels.shape[1], FRAME_S * sample_rate
    starts = np.round(np.arange(np.ceil(samples / frame)) * frame).astype(np.int64)
    starts = np.unique(starts[starts < samples])  # the last frame may be shorter
    powers = np.maximum(block_power(to_mono(channels, []), starts), 10 ** (LOWEST_DB / 10))
    levels = 10 * np.log10(powers)
    inside = _find_speech(levels)
    speech = _runs(inside)
    flat = _find_flat(channels, sample_rate)
    seconds, pauses = samples / sample_rate, levels[~inside]
    spoken = levels[inside] if speech else levels
    return Measurement(
        seconds,
        10 * math.log10(float(np.mean(10 ** (spoken / 10)))),
        max(LOWEST_DB, 20 * math.log10(max(float(np.abs(channels).max()), 1e-9))),
        float(np.median(pauses)) if pauses.size >= LEAST_NOISE_FRAMES else None,
        float(flat.mean()),
        tuple((start * FRAME_S, min(end * FRAME_S, seconds)) for start, end in speech),
        levels,
        np.logical_or.reduceat(flat, starts),
    )


def shape_of(waveform: np.ndarray, most: int) -> list[tuple[float, float]]:
    """Return the lowest and highest sample of each of at most ``most`` equal parts of ``[T]`` or ``[C, T]``."""
    channels = np.atleast_2d(waveform)
    starts = np.unique(np.linspace(0, channels.shape[1], most, endpoint=False).astype(np.int64))
    lows = np.minimum.reduceat(channels.min(axis=0), starts)
    highs = np.maximum.reduceat(channels.max(axis=0), starts)
    return [(float(low), float(high)) for low, high in zip(lows, highs, strict=True)]


def _find_speech(levels: np.ndarray) -> np.ndarray:
    """Return in which frames somebody speaks, ``[N]``: without pauses inside words, and without clicks."""
    from scipy.ndimage import binary_closing, binary_opening  # slow to import

    audible = levels[levels >= levels.max() - NOT_SILENT_DB]
    loud, noise = float(np.quantile(audible, LOUD)), float(np.quantile(levels, QUIET))
    if loud - noise < STEADY_DB:
        return np.zeros(len(levels), dtype=bool)
    least = max(loud - SPEECH_RANGE_DB, noise + ABOVE_NOISE * (loud - noise))
    pause, sound = (math.ceil(round(length / FRAME_S, 6)) for length in (SHORTEST_PAUSE_S, SHORTEST_SPEECH_S))
    joined = binary_closing(np.pad(levels >= least, pause), np.ones(pause))[pause:-pause]
    spoken: np.ndarray = binary_opening(joined, np.ones(sound))
    return spoken


def _runs(marked: np.ndarray) -> list[tuple[int, int]]:
    """Return where each run of marked elements begins and ends."""
    edges = np.flatnonzero(np.diff(marked, prepend=False, append=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _find_flat(channels: np.ndarray, sample_rate: int) -> np.ndarray:
    """Return which samples are in a flat top of any channel, ``[T]``."""
    from scipy.ndimage import binary_opening

    longest = max(3, round(FLAT_S * sample_rate))
    found = np.zeros(channels.shape[1], dtype=bool)
    for channel in np.abs(channels):
        near = channel >= min(FLAT * float(channel.max()), 1.0)
        tops = binary_opening(near, np.ones(longest))
        if len(_runs(tops)) >= FEWEST_FLAT and channel.max() > 0:
            found |= tops
    return found


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
    return [f"the best part: {place}: {part.about}" if part.about else place, own.figures, *own.faults.values()]


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
