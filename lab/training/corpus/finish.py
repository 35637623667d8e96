"""Equal level and short silences for every spoken line, with the phoneme durations adjusted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_FRAME = 240  # 10 ms at 24 kHz


@dataclass(frozen=True)
class FinishOptions:
    """Level of the speech in dB below full scale, and the silence to keep before and after it."""

    level_db: float = -23.0
    floor_db: float = -40.0
    lead_ms: float = 60.0
    tail_ms: float = 120.0

    def __post_init__(self) -> None:
        if self.level_db >= 0 or self.floor_db >= 0:
            raise ValueError(
                f"level_db={self.level_db} and floor_db={self.floor_db} are relative to full scale: must be negative"
            )
        if min(self.lead_ms, self.tail_ms) < 0:
            raise ValueError(f"lead_ms={self.lead_ms} and tail_ms={self.tail_ms} must not be negative")


@dataclass(frozen=True)
class Finished:
    """``audio`` int16 ``[T]``; ``durations`` int32, samples per phoneme with an edge at both ends, summing to T."""

    audio: np.ndarray
    durations: np.ndarray


def finish(audio: np.ndarray, durations: np.ndarray, sample_rate: int, options: FinishOptions) -> Finished:
    """Trim a line's silent edges, set its level and round it to 16 bits.

    A 10 ms frame is speech if it is within ``floor_db`` of the loudest frame; the level is the RMS of these frames. A
    gain that would clip is reduced. Raises ValueError for silence and for durations that do not sum to the audio.
    """
    if durations.sum() != len(audio):
        raise ValueError(f"durations sum to {durations.sum()} samples, the audio has {len(audio)}")
    power = frame_power(audio)
    if not power.size or not power.max() > 1e-10:
        raise ValueError(f"the line is silent ({len(audio)} samples)")
    active = power > power.max() * 10 ** (options.floor_db / 10)
    spoken = np.flatnonzero(active)
    start = max(0, spoken[0] * _FRAME - round(options.lead_ms * sample_rate / 1000))
    end = min(len(audio), (spoken[-1] + 1) * _FRAME + round(options.tail_ms * sample_rate / 1000))
    gain = 10 ** (options.level_db / 20) / np.sqrt(power[active].mean())
    gain = min(gain, 0.99 / np.abs(audio[start:end]).max())
    trimmed = np.round(audio[start:end] * (gain * 32767)).astype(np.int16)
    return Finished(trimmed, crop_durations(durations, start, end))


def frame_power(audio: np.ndarray) -> np.ndarray:
    """Return the mean square of every complete 10 ms frame at 24 kHz."""
    whole = audio[: len(audio) // _FRAME * _FRAME].astype(np.float64)
    return (whole.reshape(-1, _FRAME) ** 2).mean(axis=1)


def crop_durations(durations: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return the part of each token within ``[start, end)``; a token outside has 0 samples."""
    edges = np.clip(np.concatenate([[0], np.cumsum(durations)]), start, end)
    return np.diff(edges).astype(np.int32)
