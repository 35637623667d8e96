"""Detect echo: after a reference (ICL), a take may repeat the reference's last words before its text.

The alignment head looks at a line's own words while they are spoken; during an echo it has no weight on the text.
Silence before the text is no echo, which the audio shows.
"""

from __future__ import annotations

import numpy as np

from ..decode.decoded import Decoded

UNSEEN = 0.1  # a frame with less weight on the text belongs to other words
# Of audio before the text, 0.24 s. Good lines had none, and at most one frame of silence.
LEAST_FRAMES = 3
FOLLOWED = 0.5  # the median weight after them, if the head follows the text
LOUD_DB = 25.0  # below the loud parts of the take; quieter frames are silence or breath
LOUD_PERCENTILE = 95


def begins_elsewhere(decoded: Decoded, waveform: np.ndarray) -> bool:
    """Return whether a take (samples float ``[T]``) says something before its text; False without alignment head."""
    if decoded.trace is None:
        return False
    weights = decoded.trace.weights
    seen = np.flatnonzero(weights >= UNSEEN)
    if not len(seen) or seen[0] < LEAST_FRAMES or np.median(weights[seen[0] :]) < FOLLOWED:
        return False
    return int(_loud_frames(waveform, len(weights))[: seen[0]].sum()) >= LEAST_FRAMES


def _loud_frames(waveform: np.ndarray, frames: int) -> np.ndarray:
    """Return whether each frame is loud, bool ``[frames]``."""
    length = len(waveform) // frames
    power = np.square(waveform[: frames * length].reshape(frames, length), dtype=np.float64).mean(axis=1)
    loud: np.ndarray = power > np.percentile(power, LOUD_PERCENTILE) * 10 ** (-LOUD_DB / 10)
    return loud
