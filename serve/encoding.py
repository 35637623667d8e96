"""Encode audio, with a changed speed at the same pitch, in threads of its own: neither event loop nor model waits.

The speed is changed by FFmpeg's ``atempo``: ``postprocess/stretch.py``'s library cannot stream (python-stretch 0.3.1).
"""

import asyncio
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..morph.audio.formats import SERVED
from ..morph.audio.writer import FFMPEG, LIBSNDFILE, PLAIN, Encoder, encode, encoder_kind, open_encoder

LOWEST_SPEED, HIGHEST_SPEED = 0.25, 4.0  # OpenAI's
LOWEST_STEP, HIGHEST_STEP = 0.5, 2.0  # of one filter: above, it drops samples; below, it refuses
LAYOUT, FORMAT = "mono", "fltp"
LATENCY_S = 0.5  # more than all filters hold back of their input
BLOCK = 480  # samples per step: a filter returns its output in portions of this size
PLAIN_THREADS = 2  # numpy, which releases the GIL for long arrays
FFMPEG_THREADS = 2  # each needs the GIL for every packet
FEWEST_FILE_THREADS, MOST_FILE_THREADS = 2, 8  # half of the processors: encoding a file releases the GIL

Whole: TypeAlias = tuple[bytes, int]
"""An encoded file and its number of samples."""


def changed_length(samples: int, speed: float) -> int:
    """Return samples / speed, rounded half up."""
    return math.floor(samples / speed + 0.5)


class SpeedChange:
    """Changes the speed of chunks of audio, 0.25 to 4; at 1 samples stay unchanged.

    The result does not depend on the sizes of chunks, and has ``changed_length`` samples.
    """

    def __init__(self, speed: float, sample_rate: int):
        self._speed, self._sample_rate = speed, sample_rate
        self._taken = self._given = 0  # samples
        if speed != 1:
            self._graph, self._source, self._sink = _chain(speed, sample_rate)

    def add(self, samples: np.ndarray) -> np.ndarray:
        """Process the next samples, float32 ``[n]``; return the finished ones, which may be none."""
        if self._speed == 1:
            return samples
        ready = self._through(samples)
        self._taken += len(samples)
        self._given += len(ready)
        return ready

    def finish(self) -> np.ndarray:
        if self._speed == 1:
            return np.zeros(0, dtype=np.float32)
        # Without silence after the audio the filters hold back up to a window.
        silence = self._through(np.zeros(round(LATENCY_S * self._sample_rate), dtype=np.float32))
        self._source.push(None)
        rest = np.concatenate((silence, self._ready()))
        return rest[: max(0, changed_length(self._taken, self._speed) - self._given)]

    def _through(self, samples: np.ndarray) -> np.ndarray:
        import av

        ready = [np.zeros(0, dtype=np.float32)]
        for start in range(0, len(samples), BLOCK):
            block = np.ascontiguousarray(samples[None, start : start + BLOCK])
            frame = av.AudioFrame.from_ndarray(block, format=FORMAT, layout=LAYOUT)
            frame.sample_rate = self._sample_rate
            self._source.push(frame)
            ready.append(self._ready())
        return np.concatenate(ready)

    def _ready(self) -> np.ndarray:
        import av

        ready = [np.zeros(0, dtype=np.float32)]
        while True:
            try:
                ready.append(self._sink.pull().to_ndarray()[0])
            except (av.BlockingIOError, av.EOFError):  # it needs more input, or has ended
                return np.concatenate(ready)


def _chain(speed: float, rate: int) -> tuple[Any, Any, Any]:
    from av.filter import Graph

    graph = Graph()
    if hasattr(graph, "threads"):  # older versions of PyAV use one per core, until the sound has ended
        graph.threads = 1
    steps = 1 if LOWEST_STEP <= speed <= HIGHEST_STEP else 2
    tempo = f"{speed ** (1 / steps):.9f}"
    source = graph.add_abuffer(sample_rate=rate, format=FORMAT, layout=LAYOUT, time_base=Fraction(1, rate))
    sink = graph.add("abuffersink")
    graph.link_nodes(source, *(graph.add("atempo", tempo) for _ in range(steps)), sink)
    graph.configure()
    return graph, source, sink


def encode_whole(sounds: Sequence[np.ndarray], sample_rate: int, speed: float, name: str) -> Whole:
    """Return chunks of audio, float32 ``[T]`` within -1..1, as one file of format ``name`` (one of SERVED)."""
    change = SpeedChange(speed, sample_rate)
    changed = np.concatenate([*map(change.add, sounds), change.finish()])
    return encode(changed, sample_rate, name), len(changed)


class StreamEncoder:
    """An ``Encoder`` for an event loop: works in ``pool``; None: in the caller's thread."""

    def __init__(self, encoder: Encoder, pool: ThreadPoolExecutor | None):
        self._encoder, self._pool = encoder, pool
        self._running: Future[bytes] | None = None

    async def add(self, samples: np.ndarray) -> bytes:
        return await self._run(partial(self._encoder.add, samples))

    async def finish(self) -> bytes:
        return await self._run(self._encoder.finish)

    async def _run(self, work: Callable[[], bytes]) -> bytes:
        if self._pool is None:
            return work()
        self._running = self._pool.submit(work)
        return await asyncio.wrap_future(self._running)

    def close(self) -> None:
        """Close the encoder; wait for its thread: a client may leave while it encodes."""
        if self._running is not None and not self._running.cancel():
            wait([self._running])
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

    async def run(self, name: str, encode: Callable[[], Whole]) -> Whole:
        """Encode a complete file of format ``name`` in one of the threads."""
        return await asyncio.wrap_future(self._pools[encoder_kind(name, complete=True)].submit(encode))

    def open_stream(self, name: str, sample_rate: int) -> StreamEncoder:
        """Return an encoder for a stream; close it when its answer ends."""
        kind = encoder_kind(name, complete=False)
        return StreamEncoder(open_encoder(name, sample_rate), None if kind == PLAIN else self._pools[kind])

    def close(self) -> None:
        """Accept no more work; do not wait for the rest."""
        for pool in self._pools.values():
            pool.shutdown(wait=False)


def encode_all(sample_rate: int) -> None:
    """Encode silence in every format, streamed and complete, and change its speed: that loads libraries."""
    silence = np.zeros(4800, dtype=np.float32)
    for name in SERVED:
        encode_whole([silence], sample_rate, 1.5, name)
        with closing(open_encoder(name, sample_rate)) as encoder:
            encoder.add(silence)
            encoder.finish()
