"""Codes of many lines to waveforms on the GPU: rows of chunks, one CUDA graph replay per row.

The result equals upstream's chunked decoding up to rounding: in float32 the difference is at least 80 dB below the
signal, in bf16 no larger than that of upstream's own bf16 (tests and ``lab/benchmarks/codec.py`` measure both, with
random weights, which amplify rounding). The eager engine's lines are decoded by ``codec.stream.decode_waveform``,
bit-equal to upstream.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch

from ..codec.forward import Slabs, TorchOps, synthesise
from ..codec.modules import check_samples
from ..codec.packing import CHUNK_FRAMES, CodecChunk, Row, choose_size, cut_chunks, pack_rows, row_sizes, write_plan
from ..codec.stream import cut_reference
from ..codec.weights import CodecWeights
from ..model.layers import without_cudnn
from ..model.model import Model
from ..model.weights import TensorAddresses
from ..runtime.capture import OFFLINE, CapturedGraphs, CaptureStream, Fallback
from ..runtime.errors import first_line

log = logging.getLogger(__name__)

LARGEST_ROW = 1152  # frames: 92 s of audio
LONG_ROW = 288  # frames; longer rows are limited by occupancy, shorter ones by memory traffic
# A row takes about 0.15 MB per frame in bf16, and 1.4 MB for each frame of a slab.
# With the second block in the slabs of long rows too, 4 and 16 lines of 10 s took 113 and 136 ms instead of 13 and 35.
SLABS, SHORT_SLABS = Slabs(288, 2), Slabs(24, 1)
MOST_ROWS = 8  # in flight, a tenth of a second's work: 16 MB of pinned memory each


class BatchCodec:
    """One model's codec for the codes of many lines together. Not thread-safe.

    If a kernel fails, torch operations replace it, with one warning; ``fallback`` has the reason.

    The buffers of the longest row so far are kept until ``free``; call it before the model leaves its device.
    Rows run on a stream of their own, after the current stream's work so far and concurrently with its later work:
    frames are bound by memory and launches, rows by the tensor cores.

    Args:
        ops: operations of SnakeBeta and the residual units; None chooses for the device.
        captures: the stream for captures, which nothing else may use meanwhile; None creates one.
    """

    def __init__(self, model: Model, ops: TorchOps | None = None, captures: CaptureStream | None = None):
        # No reference to the model: it must be freed when its last user releases it.
        self.codec = model.codec
        self._samples_per_frame = model.samples_per_frame
        self._ops, self.ops = ops, TorchOps()  # those requested; those in use, chosen by ``look_up``
        self.fallback: Fallback | None = None
        self._captures, self._own = captures or CaptureStream(), CaptureStream()
        self._graphs = CapturedGraphs(model.device, self._captures, temporary=True)
        self._weights: CodecWeights | None = None
        self._seen: set[int] = set()
        self.sizes = row_sizes(model.codec.decoder.config.sliding_window, LARGEST_ROW)
        self.free()

    def free(self) -> None:
        """Release graphs, buffers and views of the weights; the next decoding creates them again."""
        if self._weights is not None and self._weights.codebooks.is_cuda:
            # Rows of abandoned lines may still be in flight.
            self._own.on(self._weights.codebooks.device).synchronize()
        self._graphs.forget()
        self._weights = None
        self._where: TensorAddresses | None = None
        self._plan: torch.Tensor | None = None
        self._samples: torch.Tensor | None = None

    @torch.inference_mode()
    def begin_waveforms(
        self,
        codes: Sequence[torch.Tensor],
        references: Sequence[torch.Tensor | None] | None = None,
        on_chunk: Callable[[], None] | None = None,
    ) -> RowsInFlight:
        """Begin to decode lines, as ``Engine.begin_waveforms``; the device has the first rows when this returns.

        ``on_chunk`` is called before every row. If it raises, the codec can be used again.
        """
        references = [None] * len(codes) if references is None else references
        lines = [
            line.cpu() if reference is None or len(line) == 0 else torch.cat((reference.cpu(), line.cpu()))
            for line, reference in zip(codes, references, strict=True)
        ]
        waves = [np.empty(len(line) * self._samples_per_frame, dtype=np.float32) for line in lines]
        weights = self.look_up()

        @torch.inference_mode()
        def start(row: Row) -> SamplesInFlight:
            if on_chunk is not None:
                on_chunk()
            with torch.cuda.device_of(weights.codebooks):
                return self._try(weights, write_plan(row, lines, choose_size(row, self.sizes)))

        return RowsInFlight(
            len(lines),
            pack_rows(list(cut_chunks([len(line) for line in lines])), self.sizes[-1], weights.gap),
            start,
            partial(self._unpack, waves),
            lambda line: cut_reference(waves[line], codes[line], references[line]),
        )

    def _unpack(self, waves: Sequence[np.ndarray], row: Row, samples: np.ndarray) -> None:
        per_frame = self._samples_per_frame
        for chunk in row:
            begin = (chunk.position + chunk.context) * per_frame
            own = samples[begin : begin + chunk.frames * per_frame]
            check_samples(own, self.codec)
            waves[chunk.line][chunk.start * per_frame :][: len(own)] = own

    def _try(self, weights: CodecWeights, plan: torch.Tensor) -> SamplesInFlight:
        """Start a row; if a kernel fails, use torch operations from then on, with one warning."""
        with self._beside(weights.codebooks.device):
            try:
                return self._start(weights, plan)
            except torch.cuda.OutOfMemoryError:
                raise
            # Too little shared memory, for example; Triton's own types, which vary by version.
            except Exception as error:
                self.replace_ops(error)
                self._graphs.forget()
                return self._start(weights, plan)

    def _beside(self, device: torch.device) -> AbstractContextManager[Any]:
        if device.type != "cuda":
            return nullcontext()
        stream = self._own.on(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        return torch.cuda.stream(stream)

    def replace_ops(self, error: Exception) -> TorchOps:
        """Switch to torch operations after a kernel failed, and return them; raise ``error`` if they are in use."""
        if type(self.ops) is TorchOps:
            raise error
        return self._use_torch(first_line(error))

    def _use_torch(self, reason: str) -> TorchOps:
        self.fallback = Fallback("codec kernels", reason)
        self._ops = self.ops = TorchOps()
        log.warning("Triton cannot run here (%s): the codec runs on torch's own operations, slower", reason)
        return self.ops

    def _start(self, weights: CodecWeights, plan: torch.Tensor) -> SamplesInFlight:
        size, device = len(plan), weights.codebooks.device
        if self._plan is None or self._samples is None:
            self._plan = torch.zeros(self.sizes[-1], plan.shape[1], dtype=torch.int64, device=device)
            self._samples = torch.zeros(self.sizes[-1] * weights.samples_per_frame, device=device)
        into, out = self._plan[:size], self._samples[: size * weights.samples_per_frame]
        into.copy_(plan.pin_memory() if device.type == "cuda" else plan, non_blocking=True)
        ops = self.ops
        slabs = SLABS if size > LONG_ROW else SHORT_SLABS

        is_first = size not in self._seen

        def decode_row() -> None:
            with without_cudnn():
                if is_first:
                    ops.compile_ahead(lambda others: synthesise(weights, into, others, slabs, out))
                synthesise(weights, into, ops, slabs, out)

        self._graphs.run(("row", size), decode_row)
        self._seen.add(size)
        return SamplesInFlight(out)

    @torch.inference_mode()
    def prepare(self) -> None:
        """Plan to capture rows of all lengths, if possible, so that no line waits for it."""
        weights = self.look_up()
        codes = torch.zeros(CHUNK_FRAMES, len(weights.offsets), dtype=torch.int64)
        with torch.cuda.device_of(weights.codebooks):
            for size in reversed(self.sizes):  # the largest first: all share its memory
                frames = max(0, min(CHUNK_FRAMES, size - weights.gap))
                plan = write_plan([CodecChunk(0, 0, 0, frames, weights.gap)], [codes], size)
                self._graphs.plan(OFFLINE, ("row", size), partial(self._try, weights, plan))

    def _choose_ops(self, weights: CodecWeights) -> TorchOps:
        """Return Triton's kernels for a CUDA device, once the smallest of them has run, or torch operations."""
        device = weights.codebooks.device
        if device.type != "cuda":
            return TorchOps()
        try:
            # It fails if Triton is not installed, has no compiler, or does not know the device.
            from ..kernels.codec.ops import TritonOps

            ops, keep = TritonOps.of(device), torch.ones(1, dtype=torch.bool, device=device)
            ops.activate(torch.zeros(16, len(weights.enter.bias), device=device), weights.enter, keep)
            return ops
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            return self._use_torch(first_line(error))

    def look_up(self) -> CodecWeights:
        """Return views of the weights; release graphs if the weights have moved."""
        decoder = self.codec.decoder
        if self._weights is None or self._where is None or not self._where.unchanged():
            self.free()
            self._weights = CodecWeights.of(decoder)
            with torch.cuda.device_of(self._weights.codebooks):
                self.ops = self._ops or self._choose_ops(self._weights)
            self._where = TensorAddresses(decoder)
            if (device := self._weights.codebooks.device) != self._graphs.device:
                self._graphs = CapturedGraphs(device, self._captures, temporary=True)
        return self._weights


class InFlight:
    """Waveforms of lines by index; in subclasses a device may still compute them. Each can be taken once."""

    def __init__(self, waves: Sequence[np.ndarray]):
        self._waves = dict(enumerate(waves))

    @property
    def is_done(self) -> bool:
        """Whether all have been taken."""
        return not self._waves

    def take(self, wait: bool = False) -> dict[int, np.ndarray]:
        """Collect a part of the device's samples; return the waveforms that are complete by now.

        ``wait``: for the next part. float32 ``[T * 1920]`` each; ``NotFinite`` for samples that are not finite.
        """
        waves, self._waves = self._waves, {}
        return waves


def take_all(waveforms: InFlight) -> list[np.ndarray]:
    """Return all waveforms, in the order of the lines; errors as ``InFlight.take``."""
    waves = dict[int, np.ndarray]()
    while not waveforms.is_done:
        waves |= waveforms.take(wait=True)
    return [waves[line] for line in sorted(waves)]


class RowsInFlight(InFlight):
    """Waveforms of rows that are launched on a device, with at most MOST_ROWS in flight.

    A thread, which ends with this object, copies the samples, without the GIL: into fresh memory a row takes longer
    than a frame of 64 lines.

    Args:
        lines: how many; one without a chunk in a row is complete from the start.
        start: launches a row.
        unpack: copies a row's samples to the lines' waveforms.
        finish: returns a line's complete waveform.
    """

    def __init__(
        self,
        lines: int,
        rows: Sequence[Row],
        start: Callable[[Row], SamplesInFlight],
        unpack: Callable[[Row, np.ndarray], None],
        finish: Callable[[int], np.ndarray],
    ):
        self._start, self._unpack, self._finish = start, unpack, finish
        self._thread = ThreadPoolExecutor(1, "codec samples")
        self._chunks = Counter(chunk.line for row in rows for chunk in row)  # of each line, missing
        self._complete = [line for line in range(lines) if not self._chunks[line]]
        self._waiting = deque(rows)
        self._launched: deque[tuple[Row, SamplesInFlight]] = deque()
        self._copying: deque[tuple[Row, Future[None]]] = deque()
        self._launch()

    @property
    def is_done(self) -> bool:
        return not (self._launched or self._copying or self._complete)

    def take(self, wait: bool = False) -> dict[int, np.ndarray]:
        """See ``InFlight``; the parts are rows."""
        wait = wait and not self._complete
        if self._launched and (self._launched[0][1].is_ready or (wait and not self._copying)):
            self._copy()
        if self._copying and (wait or self._copying[0][1].done()):
            row, copy = self._copying.popleft()
            copy.result()
            for chunk in row:
                self._chunks[chunk.line] -= 1
                if not self._chunks[chunk.line]:
                    self._complete.append(chunk.line)
        complete, self._complete = self._complete, []
        return {line: self._finish(line) for line in complete}

    def _launch(self) -> None:
        while self._waiting and len(self._launched) < MOST_ROWS:
            row = self._waiting.popleft()
            self._launched.append((row, self._start(row)))

    def _copy(self) -> None:
        row, samples = self._launched.popleft()
        self._copying.append((row, self._thread.submit(self._unpack, row, samples.wait())))
        self._launch()


class SamplesInFlight:
    """A tensor that is copied from the device once its work so far is done."""

    def __init__(self, samples: torch.Tensor):
        self._host = copy_async(samples).numpy()
        self._event = torch.cuda.Event() if samples.is_cuda else None
        if self._event is not None:
            self._event.record()

    @property
    def is_ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def wait(self) -> np.ndarray:
        if self._event is not None:
            self._event.synchronize()
        return self._host


def copy_async(samples: torch.Tensor) -> torch.Tensor:
    """Copy to the CPU behind the device's work so far; the host may read the copy once that is done."""
    return samples.to("cpu", non_blocking=True, copy=True)  # torch uses pinned memory for it
