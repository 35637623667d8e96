"""A complete sound to the bytes of its answer, in one go: for a thread beside the event loop's and the model's."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from .encoders import open_encoder
from .speed import open_speed

EVENT_BYTES = 3 << 20  # of sound in an event: a minute of pcm, which is 4 MiB as base64


@dataclass(frozen=True)
class Whole:
    """A complete sound, encoded.

    Args:
        parts: the bytes of its file, or of events.
        samples: how many it has.
    """

    parts: Sequence[bytes]
    samples: int

    def as_events(self) -> Whole:
        """Return the file as server-sent events."""
        content = b"".join(self.parts)
        starts = range(0, len(content), EVENT_BYTES)
        return replace(self, parts=[delta_event(content[start : start + EVENT_BYTES]) for start in starts])


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
        parts = [*map(encoder.add, changed), encoder.finish()]
    return Whole([part for part in parts if part], sum(map(len, changed)))


def delta_event(data: bytes) -> bytes:
    """Return the event of a part of the sound: JSON, without what ``json`` would do to a megabyte."""
    return sse_event(
        "speech.audio.delta", b'{"type": "speech.audio.delta", "audio": "', base64.b64encode(data), b'"}'
    )


def sse_event(name: str, *data: bytes) -> bytes:
    """Return a server-sent event, with its data in parts."""
    return b"".join((b"event: ", name.encode(), b"\ndata: ", *data, b"\n\n"))
