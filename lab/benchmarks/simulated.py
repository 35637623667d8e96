"""Simulate the device, to measure Python's share of a busy server. Needs no GPU; no figure is a GPU's.

    python -m lab.benchmarks.server --shape tiny --device cpu --rates 100 --rows 96 --seconds 10 --simulated
    python -m lab.benchmarks.simulated serve --checkpoint FOLDER --device cpu        # the server that this starts
    python -m lab.benchmarks.many --shape tiny --devices cpu cpu --device cpu --lines 512 --batch-size 64 --simulated

Frames, prompts, codec steps and codec rows compute nothing. They take the times of ``Times`` in launch order, and
waiting for one sleeps. Every launching thread has its own device. Codes are random and never end a line, and an
alignment head attends to one of the first three tokens of a text. The samples of streams are silence, those of offline
lines noise. Everything else is the pack's own: text, prompts, batch, chunks, HTTP.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from qwen3_tts_morph.morph.checkpoint import load
from qwen3_tts_morph.morph.codec.weights import CodecWeights
from qwen3_tts_morph.morph.decode.rows import ALIGNMENT
from qwen3_tts_morph.morph.frame.sampling import GROUPS
from qwen3_tts_morph.morph.graph import pool
from qwen3_tts_morph.morph.graph.engine import GraphDecoder
from qwen3_tts_morph.morph.graph.rows import LAG, Readback
from qwen3_tts_morph.morph.runtime.capture import CapturedGraphs
from qwen3_tts_morph.morph.waveform import incremental
from qwen3_tts_morph.morph.waveform.engine import LARGEST_ROW, BatchCodec, SamplesInFlight
from qwen3_tts_morph.morph.waveform.incremental import RowStream
from qwen3_tts_morph.morph.words.alignment import REPORTED
from qwen3_tts_morph.morph.words.head import AlignmentHead

CODES = 64  # of a tiny checkpoint's codebook
SAMPLES = 1920  # of a frame


@dataclass(frozen=True)
class Times:
    """Seconds of work on the device: 0.6B at S = 15 on an H200 (``nvidia-h200.json``).

    Args:
        frame: of 64 to 96 lines.
        talker: its talker step, about a third of it.
        prompt: the prefill of one line.
        step: a codec step without lines.
        line: each line in a codec step.
        row_frame: each frame in a codec row of offline lines, on an H100 (4,395 s of sound per second).
    """

    frame: float = 0.0038
    talker: float = 0.0012
    prompt: float = 0.0012
    step: float = 0.0009
    line: float = 0.00021
    row_frame: float = 0.000018

    def slower(self, times: float) -> Times:
        """Return the times of a device that is slower by this factor."""
        return Times(**{name: times * value for name, value in asdict(self).items()})


class Timeline(threading.local):
    """The timeline of this thread's device, which runs work in launch order."""

    free_at = 0.0

    def launch(self, seconds: float) -> None:
        self.free_at = max(self.free_at, time.perf_counter()) + seconds

    def mark(self) -> Mark:
        """Return a substitute for a CUDA event that is recorded now."""
        return Mark(max(self.free_at, time.perf_counter()))


@dataclass(frozen=True)
class Mark:
    """The end of all work launched so far."""

    at: float

    def query(self) -> bool:
        return time.perf_counter() >= self.at

    def synchronize(self) -> None:
        if (left := self.at - time.perf_counter()) > 0:
            time.sleep(left)

    def elapsed_time(self, other: Mark) -> float:
        """Return the milliseconds to another mark."""
        return 1000 * (other.at - self.at)


class Frames:
    """A substitute for ``FrameBackend`` with only the time and the codes of a frame."""

    fallback = None

    def __init__(self, timeline: Timeline, times: Times):
        self._timeline, self._times, self._count = timeline, times, 0
        self._codes = torch.randint(CODES, (97, 256, GROUPS + 1), generator=torch.Generator().manual_seed(0))
        self._codes[..., GROUPS] = 0  # all numbers are finite
        self._said = torch.randint(1, 4, (97, 256, REPORTED), generator=torch.Generator().manual_seed(1))

    def choose(self, *_: Any) -> None:
        """See ``FrameBackend``."""

    compile = prefill_prefix = choose

    def prefill(self, *_: Any) -> None:
        self._timeline.launch(self._times.prompt)

    begin = prefill

    def decode(self, _: Any, slots: Any, *__: Any) -> None:
        self._make_codes(slots, self._times.frame)

    def predict(self, _: Any, slots: Any, *__: Any) -> None:
        self._make_codes(slots, self._times.frame - self._times.talker)

    def advance(self, *_: Any) -> None:
        self._timeline.launch(self._times.talker)

    def _make_codes(self, slots: Any, seconds: float) -> None:
        report, self._count = slots.state.report, self._count + 1
        for columns, made in ((report[:, :ALIGNMENT], self._codes), (report[:, ALIGNMENT:], self._said)):
            columns.copy_(made[self._count % len(made), : len(report)])
        self._timeline.launch(seconds)


@dataclass(frozen=True)
class Samples:
    """A substitute for ``SamplesInFlight``."""

    samples: np.ndarray
    ready: Mark

    @property
    def is_ready(self) -> bool:
        """Whether the row has been decoded."""
        return self.ready.query()

    def wait(self) -> np.ndarray:
        """Return them once the row has been decoded."""
        self.ready.synchronize()
        return self.samples


@contextmanager
def simulated(times: Times | None = None) -> Iterator[Timeline]:
    """Run every graph engine and every row of the codec in the block on a simulated device."""
    timeline, times = Timeline(), times or Times()
    copy = SamplesInFlight.__init__

    def run(row: RowStream, size: int, wanted: bool = True) -> None:
        timeline.launch(times.step + times.line * size)

    noise = 0.1 * np.random.default_rng(0).standard_normal(LARGEST_ROW * SAMPLES).astype(np.float32)

    def start_row(codec: BatchCodec, weights: CodecWeights, plan: torch.Tensor) -> Samples:
        timeline.launch(times.row_frame * len(plan))
        return Samples(noise[: len(plan) * weights.samples_per_frame], timeline.mark())

    def copy_later(made: SamplesInFlight, samples: torch.Tensor) -> None:
        copy(made, samples)
        made._event = timeline.mark()  # type: ignore[assignment]

    init = Readback.__init__

    def init_readback(readback: Readback, source: torch.Tensor) -> None:
        init(readback, source)
        readback._events = [_Event(timeline) for _ in range(LAG + 1)]  # type: ignore[misc]

    instead = [
        (load, "read_alignment", lambda *_: AlignmentHead(0, 0)),
        (pool, "FrameBackend", lambda *_: Frames(timeline, times)),
        (GraphDecoder, "_synchronous", property(lambda _: False)),
        (CapturedGraphs, "has", lambda *_: True),
        (BatchCodec, "_start", start_row),
        (RowStream, "_run", run),
        (RowStream, "step_s", lambda row, lines: times.step + times.line * row._size(lines)),
        (incremental, "_mark_time", lambda _: timeline.mark()),
        (SamplesInFlight, "__init__", copy_later),
        (Readback, "__init__", init_readback),
    ]
    with ExitStack() as stack:
        for owner, name, other in instead:
            stack.enter_context(mock.patch.object(owner, name, other))
        yield timeline


class _Event:
    def __init__(self, timeline: Timeline):
        self._timeline, self._mark = timeline, Mark(0.0)

    def record(self) -> None:
        self._mark = self._timeline.mark()

    def synchronize(self) -> None:
        self._mark.synchronize()


def add_simulated(table: argparse.ArgumentParser) -> None:
    table.add_argument("--simulated", action="store_true", help="no device: see lab/benchmarks/simulated.py")


def check_simulated(table: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the command if a simulated device is combined with a real one."""
    if options.simulated and (options.shape, options.device) != ("tiny", "cpu"):
        table.error("--simulated computes nothing: add --shape tiny --device cpu")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line of the pack on a simulated device.

    ``--frame`` is the seconds of a frame, ``--slower`` a factor of all times.
    """
    from qwen3_tts_morph.serve.cli import main as run

    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--frame", type=float, default=Times.frame)
    own.add_argument("--slower", type=float, default=1.0)
    times, rest = own.parse_known_args(arguments)
    with simulated(Times(frame=times.frame).slower(times.slower)):
        return run(rest)


if __name__ == "__main__":
    sys.exit(main())
