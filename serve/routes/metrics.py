"""The server's counters in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .speaker import Speaker

PREFIX = "morph_tts"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CAPTURES_PLANNED = "CUDA graphs that were captured, or will be in idle time."
LATE_CAPTURES = "First calls and captures that delayed requests: the log names them."
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
        status, done, pauses = self._speaker.status, self._speaker.warm_ups, self._speaker.pauses
        for kind, name, about, value in (
            (GaugeMetricFamily, "rows", "Batch size of all devices.", status.rows),
            (GaugeMetricFamily, "rows_in_use", "Requests with a row.", status.speaking),
            (GaugeMetricFamily, "waiting", "Queued requests.", status.waiting),
            (GaugeMetricFamily, "frame_seconds", "Time of a frame of all rows.", status.frame_s),
            (CounterMetricFamily, "frames", "Decoded frames of 80 ms.", status.frames),
            # Events that may have delayed all requests.
            (CounterMetricFamily, "captures", "CUDA graphs that were captured.", sum(one.captures for one in done)),
            (GaugeMetricFamily, "captures_planned", CAPTURES_PLANNED, sum(one.planned for one in done)),
            (CounterMetricFamily, "late_captures", LATE_CAPTURES, sum(one.late for one in done)),
            (CounterMetricFamily, "collections", "Collections of garbage since the server was ready.", pauses.count),
            (CounterMetricFamily, "collection_seconds", "Their time.", pauses.seconds),
            (GaugeMetricFamily, "collection_longest_seconds", "The longest of them.", pauses.longest),
            *gpu_metrics(self._speaker.devices),
        ):
            yield kind(f"{PREFIX}_{name}", about, value)


def gpu_metrics(devices: Sequence[torch.device]) -> Iterator[tuple[Any, str, str, float]]:
    """Yield kind, name, text and value of each; requests to the driver stall the GPU."""
    if devices[0].type != "cuda":
        return
    reserved = sum(map(torch.cuda.memory_reserved, devices))
    yield GaugeMetricFamily, "gpu_memory_bytes", "GPU memory that torch has reserved.", reserved
    about = "Blocks of memory that torch requested from the GPU's driver."
    blocks = sum(torch.cuda.memory_stats(one).get("segment.all.allocated", 0) for one in devices)
    yield CounterMetricFamily, "gpu_allocations", about, blocks
    if hasattr(torch.cuda, "host_memory_stats"):  # not in older versions
        about = "Blocks of pinned memory that torch requested from the driver."
        pinned = torch.cuda.host_memory_stats().get("num_host_alloc", 0)
        yield CounterMetricFamily, "pinned_allocations", about, pinned
