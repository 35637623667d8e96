"""What the server counts, in Prometheus' text format."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ...morph.batch.batch import BatchStatus

PREFIX = "morph_tts"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# What all requests may have waited for; counters but GAUGES.
SLOW_MOMENTS = {
    "captures": "CUDA graphs that were captured.",
    "captures_planned": "CUDA graphs that were captured, or will be while nothing is spoken.",
    "late_captures": "First calls and captures that held up requests: the log says of what.",
    "collections": "Collections of garbage since the server was ready.",
    "collection_seconds": "What they took.",
    "collection_longest_seconds": "What the longest of them took.",
    "gpu_allocations": "Blocks of memory that torch asked the GPU's driver for.",
    "pinned_allocations": "Blocks of pinned memory that torch asked the driver for.",
}
GAUGES = ("captures_planned", "collection_longest_seconds")
FIRST_AUDIO_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)


class Metrics:
    """The counters of one server. ``gpu_bytes`` is None on a CPU; ``slow_moments`` is as in ``Speaker``."""

    def __init__(
        self,
        status: Callable[[], BatchStatus],
        gpu_bytes: Callable[[], int] | None = None,
        slow_moments: Callable[[], Mapping[str, float]] | None = None,
    ):
        self._registry = registry = CollectorRegistry()
        # Memory, time and open files of this process, where /proc tells them.
        ProcessCollector(registry=registry)
        registry.register(_Now(status, gpu_bytes, slow_moments))
        count = partial(Counter, namespace=PREFIX, registry=registry)
        self._requests = count("requests", "Answers by HTTP status; 499: the client left.", ["status"])
        self._audio = count("audio_seconds", "Seconds of sound that were sent.")
        ends = "Takes by how they ended: eos by itself, cap at its limit, loop, early or silent."
        self._takes = count("takes", ends, ["ended"])
        first = "From a request to its first samples."
        self._first = Histogram(
            "first_audio_seconds", first, namespace=PREFIX, registry=registry, buckets=FIRST_AUDIO_S
        )

    def answered(self, status: int) -> None:
        self._requests.labels(str(status)).inc()

    def first_audio(self, seconds: float) -> None:
        """Note how long a request waited for its first samples."""
        self._first.observe(seconds)

    def took(self, ended: str) -> None:
        """Count a take that was spoken to its end, by how it ended."""
        self._takes.labels(ended).inc()

    def sent(self, seconds: float) -> None:
        self._audio.inc(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)


@dataclass(frozen=True)
class _Now(Collector):
    """Reads what the server has now, whenever it is asked for its metrics."""

    status: Callable[[], BatchStatus]
    gpu_bytes: Callable[[], int] | None
    slow_moments: Callable[[], Mapping[str, float]] | None

    def collect(self) -> Iterator[Metric]:
        status = self.status()
        for name, about, value in (
            ("rows", "Requests that can be spoken at a time.", status.rows),
            ("rows_in_use", "Requests that are being spoken.", status.speaking),
            ("waiting", "Requests that wait for a row.", status.waiting),
            ("frame_seconds", "What a frame of all rows takes.", status.frame_s),
        ):
            yield GaugeMetricFamily(f"{PREFIX}_{name}", about, value)
        yield CounterMetricFamily(f"{PREFIX}_frames", "Frames of 80 ms that were made.", status.frames)
        if self.gpu_bytes is not None:
            yield GaugeMetricFamily(
                f"{PREFIX}_gpu_memory_bytes", "Memory taken of the GPU.", self.gpu_bytes()
            )
        for name, value in (self.slow_moments() if self.slow_moments else {}).items():
            kind = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
            yield kind(f"{PREFIX}_{name}", SLOW_MOMENTS[name], value)
