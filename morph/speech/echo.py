"""Speech that comes before its text: after a reference (ICL), mostly the reference's last words once more.

While a line's own words are spoken the alignment head looks at them; while words of the reference are, it has no weight
on the line's text. Silence there is no echo: the sound tells both apart.
"""

from __future__ import annotations

import numpy as np

from ..decode.decoded import Decoded

UNSEEN = 0.1  # a frame with less weight on the text is not on it
# Of sound before the text, 0.24 s. Lines that are said well had none, and at most one of silence.
LEAST_FRAMES = 3
FOLLOWED = 0.5  # the median weight after them, of a head that follows the text
LOUD_DB = 25.0  # below the loud parts of the take; what is quieter is silence or a breath
LOUD_PERCENTILE = 95


def begins_elsewhere(decoded: Decoded, waveform: np.ndarray) -> bool:
    """Return whether a take says something before its text; False where no alignment head tells it.

    Args:
        decoded: the take.
        waveform: float ``[T]``, its samples.
    """
    if decoded.trace is None:
        return False
    weights = decoded.trace.weights
    seen = np.flatnonzero(weights >= UNSEEN)
    if not len(seen) or seen[0] < LEAST_FRAMES or np.median(weights[seen[0] :]) < FOLLOWED:
        return False
    return int(_loud_frames(waveform, len(weights))[: seen[0]].sum()) >= LEAST_FRAMES


def _loud_frames(waveform: np.ndarray, frames: int) -> np.ndarray:
    """Return whether each frame of a waveform is loud, bool ``[frames]``; ``frames``: how many it has."""
    length = len(waveform) // frames
    power = np.square(waveform[: frames * length].reshape(frames, length), dtype=np.float64).mean(axis=1)
    loud: np.ndarray = power > np.percentile(power, LOUD_PERCENTILE) * 10 ** (-LOUD_DB / 10)
    return loud
