"""Codes of many lines to waveforms on the GPU: rows of chunks, one CUDA graph replay per row.

The result equals upstream's chunked decoding up to rounding: in float32 the difference is at least 80 dB below the
signal, in bf16 no larger than that of upstream's own bf16 (tests and ``lab/benchmarks/codec.py`` measure both, with
random weights, which amplify rounding). The eager engine's lines are decoded by ``codec.stream.decode_waveform``,
bit-equal to upstream.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch

from ..codec.forward import Slabs, TorchOps, synthesise
from ..codec.packing import (
    CHUNK_FRAMES,
    FrameSpan,
    PackedChunk,
    choose_size,
    cut_chunks,
    pack_rows,
    row_sizes,
    write_plan,
)
from ..codec.stream import cut_reference
from ..codec.weights import CodecWeights
from ..model.finite import check_samples
from ..model.model import Model
from ..model.sdpa import without_cudnn
from ..model.weights.addresses import TensorAddresses
from ..runtime.capture import OFFLINE, CapturedGraphs, CaptureStream, Fallback, graphs_keep_memory
from ..runtime.errors import first_line
from .in_flight import Row, RowsInFlight, SamplesInFlight

log = logging.getLogger(__name__)

LARGEST_ROW = 1152  # frames: 92 s of audio
LONG_ROW = 288  # frames; longer rows are limited by occupancy, shorter ones by memory traffic
# A row takes about 0.15 MB per frame in bf16, and 1.4 MB for each frame of a slab.
# With the second block in the slabs of long rows too, 4 and 16 lines of 10 s took 113 and 136 ms instead of 13 and 35.
SLABS, SHORT_SLABS = Slabs(288, 2), Slabs(24, 1)


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
        self._replays: CapturedGraphs | None = None
        self._weights: CodecWeights | None = None
        self._seen: set[int] = set()
        self.sizes = row_sizes(model.codec.decoder.config.sliding_window, LARGEST_ROW)
        self.free()

    def free(self) -> None:
        """Release graphs, buffers and views of the weights; the next decoding creates them again."""
        if self._weights is not None and self._weights.codebooks.is_cuda:
            # Rows of abandoned lines may still be in flight.
            self._own.on(self._weights.codebooks.device).synchronize()
        if self._replays is not None:
            self._replays.forget()
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
        lines = [_with_reference(line, reference) for line, reference in zip(codes, references, strict=True)]
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

    def _unpack(self, waves: Sequence[np.ndarray], row: Sequence[PackedChunk], samples: np.ndarray) -> None:
        per_frame = self._samples_per_frame
        for placed in row:
            chunk, begin = placed.chunk, (placed.position + placed.chunk.context) * per_frame
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
                if self._replays is not None:
                    self._replays.forget()
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
        self._use_torch(first_line(error))
        return self.ops

    def _use_torch(self, reason: str) -> None:
        self.fallback = Fallback("codec kernels", reason)
        self._ops, self.ops = TorchOps(), TorchOps()
        log.warning("Triton cannot run here (%s): the codec runs on torch's own operations, slower", reason)

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

        if (replays := self._graphs_on(device)) is not None:
            replays.run(("row", size), decode_row)
        else:
            decode_row()
        self._seen.add(size)
        return SamplesInFlight(out)

    def _graphs_on(self, device: torch.device) -> CapturedGraphs | None:
        """Return the graphs of rows on a device, or None if they would keep temporaries."""
        if graphs_keep_memory(device):
            return None
        if self._replays is None or self._replays.device != device:
            self._replays = CapturedGraphs(device, self._captures)
        return self._replays

    @torch.inference_mode()
    def prepare(self) -> None:
        """Plan to capture rows of all lengths, if possible, so that no line waits for it."""
        weights = self.look_up()
        codes = torch.zeros(CHUNK_FRAMES, len(weights.offsets), dtype=torch.int64)
        with torch.cuda.device_of(weights.codebooks):
            replays = self._graphs_on(weights.codebooks.device)
            for size in reversed(self.sizes):  # the largest first: all share its memory
                frames = max(0, min(CHUNK_FRAMES, size - weights.gap))
                plan = write_plan([PackedChunk(FrameSpan(0, 0, 0, frames), weights.gap)], [codes], size)
                if replays is not None:
                    replays.plan(OFFLINE, ("row", size), partial(self._try, weights, plan))

    def _choose_ops(self, weights: CodecWeights) -> TorchOps:
        if weights.codebooks.device.type != "cuda":
            return TorchOps()
        try:
            return try_kernels(weights)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            self._use_torch(first_line(error))
        return self.ops

    def look_up(self) -> CodecWeights:
        """Return views of the weights; release graphs if the weights have moved."""
        decoder = self.codec.decoder
        if self._weights is None or self._where is None or not self._where.unchanged():
            self.free()
            self._weights = CodecWeights.of(decoder)
            with torch.cuda.device_of(self._weights.codebooks):
                self.ops = self._ops or self._choose_ops(self._weights)
            self._where = TensorAddresses(decoder)
        return self._weights


def try_kernels(weights: CodecWeights) -> TorchOps:
    """Return Triton's kernels for a CUDA device, after the smallest of them has run.

    Raises any exception if Triton is not installed, has no compiler, or does not know the device.
    """
    from ..kernels.codec.ops import TritonOps

    device = weights.codebooks.device
    ops = TritonOps.of(device)
    keep = torch.ones(1, dtype=torch.bool, device=device)
    ops.activate(torch.zeros(16, len(weights.enter.bias), device=device), weights.enter, keep)
    return ops


def _with_reference(codes: torch.Tensor, reference: torch.Tensor | None) -> torch.Tensor:
    """Return a line's codes on the CPU, after its reference's if it has any itself."""
    if reference is None or len(codes) == 0:
        return codes.cpu()
    return torch.cat((reference.cpu(), codes.cpu()))
