"""Measure a recording of speech: level, clipping, noise, and where somebody speaks.

Everything comes from levels: music counts as speech, and a steady noise is the noise of the room.
"""

import math
from dataclasses import dataclass

import numpy as np

from .reference import STEADY_DB, block_power, check_channels, to_mono

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

Interval = tuple[float, float]
"""The start and the end of a part of a recording, in seconds."""


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
