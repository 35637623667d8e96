"""The server's counters in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from .speaker import Speaker

PREFIX = "morph_tts"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Events that may have delayed all requests; counters but GAUGES.
SLOW_MOMENTS = {
    "captures": "CUDA graphs that were captured.",
    "captures_planned": "CUDA graphs that were captured, or will be in idle time.",
    "late_captures": "First calls and captures that delayed requests: the log names them.",
    "collections": "Collections of garbage since the server was ready.",
    "collection_seconds": "Their time.",
    "collection_longest_seconds": "The longest of them.",
    "gpu_allocations": "Blocks of memory that torch requested from the GPU's driver.",
    "pinned_allocations": "Blocks of pinned memory that torch requested from the driver.",
}
GAUGES = ("captures_planned", "collection_longest_seconds")
FIRST_AUDIO_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)


class Metrics(Collector):
    """The counters of one server; ``collect`` reads the rest from its speaker."""

    def __init__(self, speaker: Speaker):
        self._speaker, self._registry = speaker, CollectorRegistry()
        # Memory, time and open files of this process, where /proc tells them.
        ProcessCollector(registry=self._registry)
        self._registry.register(self)
        more: Any = {"namespace": PREFIX, "registry": self._registry}
        self.requests = Counter("requests", "Answers by HTTP status; 499: the client left.", ["status"], **more)
        self.audio_s = Counter("audio_seconds", "Seconds of audio that were sent.", **more)
        ends = "Takes by how they ended: eos by itself, cap at its limit, loop, early or silent."
        self.takes = Counter("takes", ends, ["ended"], **more)
        first = "From a request to its first samples."
        self.first_audio_s = Histogram("first_audio_seconds", first, buckets=FIRST_AUDIO_S, **more)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        status = self._speaker.status
        for name, about, value in (
            ("rows", "Batch size of all devices.", status.rows),
            ("rows_in_use", "Requests with a row.", status.speaking),
            ("waiting", "Queued requests.", status.waiting),
            ("frame_seconds", "Time of a frame of all rows.", status.frame_s),
        ):
            yield GaugeMetricFamily(f"{PREFIX}_{name}", about, value)
        yield CounterMetricFamily(f"{PREFIX}_frames", "Decoded frames of 80 ms.", status.frames)
        if (size := self._speaker.gpu_bytes) is not None:
            yield GaugeMetricFamily(f"{PREFIX}_gpu_memory_bytes", "GPU memory that torch has reserved.", size)
        for name, value in self._speaker.slow_moments.items():
            kind = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
            yield kind(f"{PREFIX}_{name}", SLOW_MOMENTS[name], value)
