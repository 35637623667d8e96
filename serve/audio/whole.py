"""A complete sound to the bytes of its answer, in one go: in threads beside the event loop's and the model's."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from .encoders import MADE_BY_FFMPEG, by_libsndfile, open_encoder
from .speed import open_speed

# Word times are made by Python, for which the model waits meanwhile. With two such threads a list at a simulated
# server with two devices takes 8 % longer (docs/log/many-gpus.md).
WORD_THREADS = 1
PLAIN_THREADS = 2  # numpy, which needs no Python for long arrays
FFMPEG_THREADS = 2  # each wants Python for every packet
FEWEST_FILE_THREADS, MOST_FILE_THREADS = 2, 8  # half of the processors: a file is made without Python


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


class Encoders:
    """The threads that encode complete sounds, by what they want of Python."""

    def __init__(self) -> None:
        files = min(MOST_FILE_THREADS, max(FEWEST_FILE_THREADS, (os.cpu_count() or 1) // 2))
        self._words = ThreadPoolExecutor(WORD_THREADS, "word times")
        self._plain = ThreadPoolExecutor(PLAIN_THREADS, "plain sound")
        self._files = ThreadPoolExecutor(files, "sound file")
        self._ffmpeg = ThreadPoolExecutor(FFMPEG_THREADS, "speech encoder")

    def find_words(self, find: Callable[[], None]) -> Future[None]:
        """Find the times of a line's words, in the thread for that."""
        return self._words.submit(find)

    def submit(self, name: str, encode: Callable[[], Whole]) -> Future[Whole]:
        """Encode a sound in a thread for its format."""
        if name not in MADE_BY_FFMPEG:
            return self._plain.submit(encode)
        return (self._files if by_libsndfile(name) else self._ffmpeg).submit(encode)

    def close(self) -> None:
        """Take no more sounds; do not wait for the others."""
        for pool in (self._words, self._plain, self._files, self._ffmpeg):
            pool.shutdown(wait=False)
