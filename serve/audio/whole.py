"""Encode audio in threads of its own: neither the event loop nor the model waits."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

import numpy as np

from ...morph.audio.writer import FFMPEG, LIBSNDFILE, PLAIN, Encoder, encode, encoder_kind, open_encoder
from .speed import SpeedChange

PLAIN_THREADS = 2  # numpy, which releases the GIL for long arrays
FFMPEG_THREADS = 2  # each needs the GIL for every packet
FEWEST_FILE_THREADS, MOST_FILE_THREADS = 2, 8  # half of the processors: encoding a file releases the GIL


Whole: TypeAlias = tuple[bytes, int]
"""An encoded file and its number of samples."""


def encode_whole(sounds: Sequence[np.ndarray], sample_rate: int, speed: float, name: str) -> Whole:
    """Return chunks of audio, float32 ``[T]`` within -1..1, as one file of format ``name`` (one of SERVED)."""
    change = SpeedChange(speed, sample_rate)
    changed = np.concatenate([*map(change.add, sounds), change.finish()])
    return encode(changed, sample_rate, name), len(changed)


class StreamEncoder:
    """An ``Encoder`` for an event loop: works in ``pool``; None: in the caller's thread."""

    def __init__(self, encoder: Encoder, pool: ThreadPoolExecutor | None):
        self._encoder, self._pool = encoder, pool
        self._lock, self._is_closed = threading.Lock(), False

    async def add(self, samples: np.ndarray) -> bytes:
        return await self._run(partial(self._encoder.add, samples))

    async def finish(self) -> bytes:
        return await self._run(self._encoder.finish)

    async def _run(self, work: Callable[[], bytes]) -> bytes:
        if self._pool is None:
            return work()
        return await asyncio.wrap_future(self._pool.submit(self._work, work))

    def _work(self, work: Callable[[], bytes]) -> bytes:
        with self._lock:  # ``close`` may come meanwhile
            return b"" if self._is_closed else work()

    def close(self) -> None:
        """Close the encoder; wait for its thread."""
        with self._lock:
            self._is_closed = True
            self._encoder.close()


class Encoders:
    """The threads that encode, by how long they hold the GIL."""

    def __init__(self) -> None:
        files = min(MOST_FILE_THREADS, max(FEWEST_FILE_THREADS, (os.cpu_count() or 1) // 2))
        self._pools = {
            PLAIN: ThreadPoolExecutor(PLAIN_THREADS, "plain sound"),
            LIBSNDFILE: ThreadPoolExecutor(files, "sound file"),
            FFMPEG: ThreadPoolExecutor(FFMPEG_THREADS, "speech encoder"),
        }

    def submit(self, name: str, encode: Callable[[], Whole]) -> Future[Whole]:
        return self._pools[encoder_kind(name, complete=True)].submit(encode)

    def open_stream(self, name: str, sample_rate: int) -> StreamEncoder:
        """Return an encoder for a stream; close it when its answer ends."""
        kind = encoder_kind(name, complete=False)
        return StreamEncoder(open_encoder(name, sample_rate), None if kind == PLAIN else self._pools[kind])

    def close(self) -> None:
        """Accept no more work; do not wait for the rest."""
        for pool in self._pools.values():
            pool.shutdown(wait=False)
