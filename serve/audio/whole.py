"""A complete sound to the bytes of its answer, in one go: for a thread beside the event loop's and the model's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from .encoders import open_encoder
from .speed import open_speed


@dataclass(frozen=True)
class Whole:
    """A complete sound, encoded.

    Args:
        content: the bytes of its file.
        samples: how many it has.
    """

    content: bytes
    samples: int


def encode_whole(sounds: Sequence[np.ndarray], sample_rate: int, speed: float, name: str) -> Whole:
    """Return a sound as a complete file.

    Args:
        sounds: its parts, float32 ``[T]`` within -1..1.
        sample_rate: in Hz.
        speed: see ``open_speed``.
        name: of the format, see ``open_encoder``.
    """
    change = open_speed(speed, sample_rate)
    changed = [part for part in (*map(change.add, sounds), change.finish()) if len(part)]
    with closing(open_encoder(name, sample_rate, complete=True)) as encoder:
        content = b"".join([*map(encoder.add, changed), encoder.finish()])
    return Whole(content, sum(map(len, changed)))
