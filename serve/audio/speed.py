"""Change the speed of a stream at the same pitch, by FFmpeg's ``atempo``.

The library of ``postprocess/stretch.py`` cannot stream (python-stretch 0.3.1).
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np

LOWEST_SPEED, HIGHEST_SPEED = 0.25, 4.0  # OpenAI's
LOWEST_STEP, HIGHEST_STEP = 0.5, 2.0  # of one filter: above, it drops samples; below, it refuses
LAYOUT, FORMAT = "mono", "fltp"
LATENCY_S = 0.5  # more than all filters hold back of their input
BLOCK = 480  # samples per step: a filter returns its output in portions of this size


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


def _chain(speed: float, sample_rate: int) -> tuple[Any, Any, Any]:
    from av.filter import Graph

    graph = Graph()
    if hasattr(graph, "threads"):  # older versions of PyAV use one per core, until the sound has ended
        graph.threads = 1
    steps = 1 if LOWEST_STEP <= speed <= HIGHEST_STEP else 2
    tempo = f"{speed ** (1 / steps):.9f}"
    source = graph.add_abuffer(
        sample_rate=sample_rate, format=FORMAT, layout=LAYOUT, time_base=Fraction(1, sample_rate)
    )
    sink = graph.add("abuffersink")
    graph.link_nodes(source, *(graph.add("atempo", tempo) for _ in range(steps)), sink)
    graph.configure()
    return graph, source, sink
