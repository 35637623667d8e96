"""Samples as the integers of sound files and streams."""

from __future__ import annotations

import numpy as np


def to_s16(samples: np.ndarray) -> np.ndarray:
    """Convert float samples within -1..1, of any shape, to signed 16 bits, little endian, as FFmpeg does."""
    return np.clip(np.rint(samples * np.float32(32768)), -32768, 32767).astype("<i2")
