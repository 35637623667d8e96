"""Decode many streamed lines step by step in one row of fixed length, with the kernels of offline lines.

A step takes up to ``STEP_FRAMES`` new frames of each line. The transformer runs over them with the keys and values of
its window. The convolutions run again over the transformer's last ``CONTEXT`` outputs that they depend on, and the new
ones (``convolve_newest``): that costs some arithmetic, but the kernels are those of offline lines. The row has the same
length for any step, so a CUDA graph can hold it, and a frame's samples do not depend on the sizes of the steps. If a
GEMM computes all its rows in the same way, two schedules give the same bits.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch.nn import functional

from ..codec.forward import TorchOps, convolve_newest, dequantise, run_layers
from ..codec.packing import CHUNK_FRAMES, CONTEXT_FRAMES, PART_FRAMES, first_needed
from ..codec.weights import CodecWeights, TransformerWeights
from ..model.layers import Angles, KvTarget, without_cudnn
from ..runtime.capture import TOGETHER, CapturedGraphs, next_power_of_2
from .engine import SamplesInFlight, copy_async

STEP_FRAMES = CONTEXT = 12  # per line: 24 frames of the row
TAPS = 3  # of the convolution before the transformer


@dataclass(frozen=True)
class LineStates:
    """The state of lines between steps, one per index of the dimension B; all zeros before a line's first frame.

    The keys and values ``[B, layers, kv_heads, window - 1 + STEP_FRAMES, head_dim]`` have RoPE applied and are a ring:
    a position's slot is its remainder.
    """

    positions: torch.Tensor  # int64 ``[B]``, frames decoded since the line's chunk began
    inputs: torch.Tensor  # ``[B, 2, 2 D]``, the last frames before the first convolution
    keys: torch.Tensor
    values: torch.Tensor
    outputs: torch.Tensor  # ``[B, CONTEXT or more, latent]``, the transformer's last outputs

    @classmethod
    def allocate(cls, weights: CodecWeights, lines: int) -> LineStates:
        transformer, like = weights.transformer, weights.quantised
        head_dim = transformer.angles.cos.shape[-1]
        slots = transformer.window - 1 + STEP_FRAMES
        ring = (len(transformer.layers), transformer.kv_heads, slots, head_dim)
        return cls(
            positions=torch.zeros(lines, dtype=torch.int64, device=like.device),
            inputs=like.new_zeros(lines, TAPS - 1, len(like)),
            keys=like.new_zeros(lines, *ring),
            values=like.new_zeros(lines, *ring),
            outputs=like.new_zeros(lines, max(CONTEXT, weights.context), len(transformer.restore[0])),
        )

    def gather(self, lines: torch.Tensor) -> LineStates:
        """Return a copy of some lines' states (int64 ``[N]``)."""
        return LineStates(*(getattr(self, one.name).index_select(0, lines) for one in fields(self)))

    def scatter(self, lines: torch.Tensor, states: LineStates) -> None:
        """Put back states of ``gather`` (``lines`` without repeats)."""
        for one in fields(self):
            getattr(self, one.name).index_copy_(0, lines, getattr(states, one.name))


def decode_step(
    weights: CodecWeights,
    states: LineStates,
    codes: torch.Tensor,
    counts: torch.Tensor,
    ops: TorchOps,
    wanted: bool = True,
) -> torch.Tensor | None:
    """Decode the next frames of every line; return float32 ``[B, N * 1920]`` within -1..1, None if not ``wanted``.

    No host read and no data-dependent shape: a CUDA graph can hold it. Samples beyond a line's count are meaningless.
    More than five parameters: a step's inputs are captured tensor by tensor.

    Args:
        states: advanced in place.
        codes: int64 ``[B, N, groups]``; those beyond a line's count are ignored, but must be in the codebook.
        counts: int64 ``[B]``, 0..N frames of each line.
        wanted: False leaves out the convolutions: the states are the same, and there are no samples.
    """
    lines, new = codes.shape[:2]
    latent = dequantise(weights, codes.flatten(0, 1)).unflatten(0, (lines, new))
    latent = torch.cat((states.inputs, latent), dim=1)
    taps = torch.cat([latent[:, tap : tap + new] for tap in range(TAPS)], dim=2)
    kernel, bias = weights.pre_conv
    x = functional.linear(taps, kernel.flatten(1), bias)
    x = torch.cat((states.outputs, _transform(weights.transformer, x, states, ops)), dim=1)
    wave = None
    if wanted:
        frames = torch.arange(-states.outputs.shape[1], new, device=x.device)
        keep = (frames >= -states.positions[:, None]) & (frames < counts[:, None])
        wave = convolve_newest(weights, x, keep, ops, new)
    states.inputs.copy_(_last(latent, counts, TAPS - 1))
    states.outputs.copy_(_last(x, counts, states.outputs.shape[1]))
    states.positions.add_(counts)
    return wave


def _transform(transformer: TransformerWeights, x: torch.Tensor, states: LineStates, ops: TorchOps) -> torch.Tensor:
    """Run the transformer over the new frames ``[B, N, latent]``; their keys and values go into the ring.

    A position's slot in the ring does not depend on the steps, and so neither does the order of attention's sums.
    Frames beyond a line's count overwrite slots that no query sees any more; the next step overwrites them again.
    """
    new, slots = x.shape[1], states.keys.shape[3]
    queries = states.positions[:, None] + torch.arange(new, device=x.device)
    # Frames beyond a line's count may be beyond the table.
    table = queries.clamp(max=len(transformer.angles.cos) - 1)
    angles = Angles(transformer.angles.cos[table][:, :, None], transformer.angles.sin[table][:, :, None])
    newest = queries[:, -1:]
    positions = newest - (newest - torch.arange(slots, device=x.device)) % slots  # the position in each slot
    distance = queries[:, :, None] - positions[:, None]
    seen = (distance >= 0) & (distance < transformer.window) & (positions >= 0)[:, None]
    bias = torch.zeros(seen.shape, dtype=x.dtype, device=x.device).masked_fill_(~seen, -math.inf)[:, None]
    at = queries % slots

    def attend(index: int, qkv: torch.Tensor) -> torch.Tensor:
        heads, kv_heads = transformer.heads, transformer.kv_heads
        qkv = qkv.unflatten(-1, (heads + 2 * kv_heads, -1))
        rings = KvTarget(states.keys[:, index], states.values[:, index], slots=at)
        query = ops.rotate_into(qkv, angles, rings).transpose(1, 2)
        keys, values = (
            ring.repeat_interleave(heads // kv_heads, dim=1) if heads > kv_heads else ring
            for ring in (rings.keys, rings.values)
        )
        out = functional.scaled_dot_product_attention(query, keys, values, attn_mask=bias)
        return out.transpose(1, 2).flatten(2)

    with without_cudnn():
        return run_layers(transformer, x, attend, ops)


def _last(x: torch.Tensor, counts: torch.Tensor, length: int) -> torch.Tensor:
    """Return the ``length`` entries of ``[B, length + N, ...]`` that end with each line's newest frame."""
    index = counts[:, None] + torch.arange(length, device=x.device)
    index = index.view(*index.shape, *[1] * (x.dim() - 2)).expand(-1, -1, *x.shape[2:])
    return x.gather(1, index)


class RowStream:
    """Streamed lines that share a row, each at an index that ``start`` can reuse. Not thread-safe.

    Chunks follow ``packing.cut_chunks``, as for offline lines: at frames 300, 600, ... a line starts again from the 25
    frames before.

    Args:
        graphs: of steps; None calls them directly.
        replace_ops: called with a failed kernel's error; returns the operations to use from then on, or raises.
    """

    def __init__(
        self,
        weights: CodecWeights,
        lines: int,
        ops: TorchOps,
        graphs: CapturedGraphs | None = None,
        replace_ops: Callable[[Exception], TorchOps] | None = None,
    ):
        self._weights, self._ops = weights, ops
        self._graphs, self._replace_ops = graphs or CapturedGraphs(torch.device("cpu")), replace_ops
        self._states = LineStates.allocate(weights, lines)
        device, groups = weights.codebooks.device, len(weights.offsets)
        # Codes, and in the last column a line's count (first frame) and its index (second): one copy for all.
        self._inputs = torch.zeros(lines, STEP_FRAMES, groups + 1, dtype=torch.int64, device=device)
        self._samples = torch.zeros(lines, STEP_FRAMES * weights.samples_per_frame, device=device)
        self._places = torch.arange(lines, device=device)[:, None]
        self._beginning = CodecSnapshot(LineStates.allocate(weights, 1), 0, np.zeros((0, groups), dtype=np.int64))
        self.frames = [0] * lines  # decoded since each line's start
        self._recent = [self._beginning.recent] * lines
        self._ahead: list[SamplesInFlight | None] = [None] * lines  # samples of frames that were begun ahead
        self._step_seconds: dict[int, float] = {}  # by size

    @property
    def lines(self) -> int:
        return len(self.frames)

    @torch.inference_mode()
    def start(self, line: int, snapshot: CodecSnapshot | None = None) -> None:
        """Begin a line at this index: at its start, after an ICL voice's reference, or where it was paused."""
        one = self._beginning if snapshot is None else snapshot
        self._states.scatter(self._places[line], one.state)
        self.frames[line], self._recent[line], self._ahead[line] = one.frames, one.recent, one.ahead

    @torch.inference_mode()
    def feed(self, line: int, snapshot: CodecSnapshot | None, reference: torch.Tensor) -> CodecSnapshot:
        """Return the state after the next frames of an ICL voice's ``reference`` ``[R, groups]``, in a chunk's time.

        ``line`` is a free index, ``snapshot`` the last call's result or None. Once ``frames`` is R, every line of the
        voice can begin with the result.
        """
        self.start(line, snapshot)
        codes = reference.cpu().numpy()
        begin = first_needed(len(codes)) if snapshot is None else snapshot.frames
        end = min(begin + PART_FRAMES, len(codes))
        for first in range(begin, end, STEP_FRAMES):
            self._step(self._put({line: codes[first : min(first + STEP_FRAMES, end)]}), wanted=False)
        self.frames[line], self._recent[line] = end, codes[:end][-CONTEXT_FRAMES:]
        return self.pause(line)

    @torch.inference_mode()
    def pause(self, line: int) -> CodecSnapshot:
        """Return a copy of a line's state, from which ``start`` continues it at any index."""
        state = self._states.gather(self._places[line])
        return CodecSnapshot(state, self.frames[line], self._recent[line], self._ahead[line])

    @torch.inference_mode()
    def begin_ahead(self, line: int, codes: torch.Tensor) -> bool:
        """Launch a line's next frame behind the device work that makes its ``codes`` ``[groups]``.

        ``launch`` is next, for this line. Returns False, and does nothing, if a chunk begins with that frame: the
        frames before it are decoded again there.
        """
        if self._ahead[line] is not None or (self.frames[line] and self.frames[line] % CHUNK_FRAMES == 0):
            return False
        inputs = self._inputs[: self._size(1)]
        inputs.zero_()
        # NaN logits may give codes outside the codebook: the host will raise, but no kernel may fault before.
        largest = len(self._weights.codebooks) // len(self._weights.offsets) - 1
        torch.clamp(codes, 0, largest, out=inputs[0, 0, :-1])
        inputs[0, 0, -1].fill_(1)  # an assignment would wait for the device
        inputs[0, 1, -1].fill_(line)
        self._step({line: 0})
        self.frames[line] += 1
        self._ahead[line] = SamplesInFlight(self._samples[:1, : self._weights.samples_per_frame])
        return True

    def _remember(self, line: int, codes: np.ndarray) -> None:
        """Append to a line's last frames, ``[n, groups]``: when a chunk begins, they are decoded again."""
        self._recent[line] = np.concatenate((self._recent[line], codes))[-CONTEXT_FRAMES:]

    @torch.inference_mode()
    def launch(self, codes: Mapping[int, torch.Tensor]) -> WavesInFlight:
        """Launch the decoding of lines' next codes ``[n, groups]``, any n, without special codes such as EOS.

        The first ones may be of a frame that was begun ahead. Launches may overlap.
        """
        waves = WavesInFlight(dict.fromkeys(codes, np.zeros(0, dtype=np.float32)))
        is_timed, per_frame, waiting = self._inputs.is_cuda, self._weights.samples_per_frame, dict[int, deque[_Step]]()
        for line, part in codes.items():
            # An array: torch takes several times as long to slice and join so few numbers.
            new = part.cpu().numpy()
            if len(new) and (ahead := self._ahead[line]) is not None:
                waves.add(ahead, {line: (0, per_frame)})
                self._ahead[line], is_timed = None, False  # the time of that frame is not known
                self._remember(line, new[:1])
                new = new[1:]
            waiting[line] = deque(self._cut(line, new))
        is_timed = is_timed and any(waiting.values())
        waves.began = _mark_time(is_timed)
        while any(waiting.values()):
            now = {line: parts.popleft() for line, parts in waiting.items() if parts}
            for line, one in now.items():
                if one.restarts:
                    self._states.scatter(self._places[line], self._beginning.state)
            rows = self._put({line: part.codes for line, part in now.items()})
            self._step(rows, any(part.wanted for part in now.values()))
            # One copy for all lines: the next step overwrites the samples.
            if places := {line: (rows[line], len(one.codes) * per_frame) for line, one in now.items() if one.wanted}:
                last, longest = map(max, zip(*places.values(), strict=True))
                waves.add(SamplesInFlight(self._samples[: last + 1, :longest]), places)
        waves.done = _mark_time(is_timed)
        return waves

    def _cut(self, line: int, codes: np.ndarray) -> Iterator[_Step]:
        """Cut a line's frames into steps; when a chunk begins, the frames of its left context go first."""
        for count, restarts in _cut_frames(self.frames[line], len(codes)):
            for begin in range(0, len(self._recent[line]) if restarts else 0, STEP_FRAMES):
                part = self._recent[line][begin : begin + STEP_FRAMES]
                yield _Step(part, wanted=False, restarts=begin == 0)
            part, codes = codes[:count], codes[count:]
            self.frames[line] += count
            self._remember(line, part)
            yield _Step(part)

    def _put(self, parts: Mapping[int, np.ndarray], size: int | None = None) -> dict[int, int]:
        """Copy the codes of the next step to the device; return each line's place in it.

        Lines without frames fill the step, so that few sizes are captured. ``size`` None: the smallest.
        """
        size = size or self._size(len(parts))
        others = (line for line in range(self.lines) if line not in parts)
        rows = [*parts, *islice(others, size - len(parts))] if size < self.lines else list(range(size))
        places = {line: row for row, line in enumerate(rows)}
        shape = (size, *self._inputs.shape[1:])
        inputs = torch.zeros(shape, dtype=torch.int64, pin_memory=self._inputs.is_cuda)
        written = inputs.numpy()  # assigning to a tensor takes several times as long
        written[:, 1, -1] = rows
        for line, part in parts.items():
            written[places[line], : len(part), :-1] = part
            written[places[line], 0, -1] = len(part)
        self._inputs[:size].copy_(inputs, non_blocking=True)
        return places

    @torch.inference_mode()
    def prepare(self) -> None:
        """Capture and time the step of a line alone; plan those of more lines."""
        sizes = sorted({self._size(lines) for lines in range(1, self.lines + 1)})
        if self._graphs.lacks(("step", 1)):
            passes = [partial(self._decode_nothing, size) for size in sizes]
            self._attempt(lambda: self._ops.compile_ahead(*passes))
        self._capture(1)
        self.step_s(1)
        for size in sizes[1:]:
            self._graphs.plan(TOGETHER, ("step", size), partial(self.step_s, size))
        if self._inputs.is_cuda:
            self._take_pinned()

    def _decode_nothing(self, size: int, ops: TorchOps) -> None:
        lines = torch.arange(size, device=self._inputs.device)
        inputs = torch.zeros_like(self._inputs[:size])
        decode_step(self._weights, self._states.gather(lines), inputs[:, :, :-1], inputs[:, 0, -1], ops)

    def _take_pinned(self) -> None:
        """Let torch cache pinned memory for the samples of all steps: allocating more later stalls the device."""
        samples, most = self._samples.view(-1), self.lines * STEP_FRAMES
        frames = {next_power_of_2(count) for count in range(1, most + 1)}
        parts = [samples[: min(count, most) * (len(samples) // most)] for count in frames]
        held = [copy_async(part) for part in parts for _ in range(2)]
        del held  # only now: a freed block would be allocated twice

    @torch.inference_mode()
    def step_s(self, lines: int) -> float | None:
        """Return the device's seconds for a step of this many lines, measured once; None on a CPU."""
        if not self._inputs.is_cuda:
            return None
        size = self._size(lines)
        if size not in self._step_seconds:
            self._capture(size)
            began, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            self._step(self._put({}, size))
            done.record()
            done.synchronize()
            self._step_seconds[size] = began.elapsed_time(done) / 1000
        return self._step_seconds[size]

    def _capture(self, size: int) -> None:
        self._graphs.prepare(("step", size), lambda: self._step(self._put({}, size)))
        if size == 1:  # of a reference, or of a left context
            self._graphs.prepare(("skip", size), lambda: self._step(self._put({}, size), wanted=False))

    def _size(self, lines: int) -> int:
        return min(next_power_of_2(lines), self.lines)

    def _step(self, rows: Mapping[int, int], wanted: bool = True) -> None:
        """Run the step that ``_put`` has written; it overwrites its lines' samples if they are wanted."""
        self._attempt(lambda: self._run(len(rows), wanted))

    def _attempt(self, run: Callable[[], None]) -> None:
        try:
            run()
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # Triton's own types, which vary by version
            if self._replace_ops is None:
                raise
            # The states are advanced last, and the rings' slots are written again.
            self._ops = self._replace_ops(error)
            self._replace_ops = None
            self._graphs.forget()
            run()

    def _run(self, size: int, wanted: bool) -> None:
        inputs, samples = self._inputs[:size], self._samples[:size]
        lines = inputs[:, 1, -1]

        def step() -> None:
            codes, counts = inputs[:, :, :-1], inputs[:, 0, -1]
            states = self._states if size == self.lines else self._states.gather(lines)
            wave = decode_step(self._weights, states, codes, counts, self._ops, wanted)
            if wave is not None:
                samples.copy_(wave)
            if size < self.lines:
                self._states.scatter(lines, states)

        if wanted or size == 1:
            self._graphs.run(("step" if wanted else "skip", size), step)
        else:
            step()  # rare and short: not worth a graph for every size


def count_steps(done: int, frames: int) -> int:
    """Return in how many steps a line's next ``frames`` are decoded, after ``done``: see ``RowStream``."""
    context = -(-CONTEXT_FRAMES // STEP_FRAMES)
    return sum(1 + context * restarts for _, restarts in _cut_frames(done, frames))


def _cut_frames(done: int, frames: int) -> Iterator[tuple[int, bool]]:
    """Cut a line's next ``frames`` into steps: yield each one's frames, and whether a chunk begins with it."""
    while frames > 0:
        within = done % CHUNK_FRAMES
        count = min(frames, STEP_FRAMES, CHUNK_FRAMES - within)
        yield count, done > 0 and within == 0
        done, frames = done + count, frames - count


class WavesInFlight:
    """Samples by line, in the order of their launches: first ``waves``, then the copies of those of steps."""

    def __init__(self, waves: Mapping[int, np.ndarray]):
        self._waves = dict(waves)
        # Each with its lines: a line's row in it, and how many samples of that.
        self._copies: list[tuple[SamplesInFlight, dict[int, tuple[int, int]]]] = []
        self.began: torch.cuda.Event | None = None  # of ``_mark_time``
        self.done: torch.cuda.Event | None = None

    def add(self, samples: SamplesInFlight, places: dict[int, tuple[int, int]]) -> None:
        self._copies.append((samples, places))

    def extend(self, other: WavesInFlight, lines: Mapping[int, int]) -> None:
        """Add the samples of a later launch, with other numbers of its ``lines``."""
        self._waves |= {lines[line]: wave for line, wave in other._waves.items()}
        for samples, places in other._copies:
            self.add(samples, {lines[line]: place for line, place in places.items()})
        self.began, self.done = other.began and (self.began or other.began), other.done

    @property
    def is_ready(self) -> bool:
        """Whether ``wait`` returns immediately."""
        return all(samples.is_ready for samples, _ in self._copies)

    @property
    def seconds(self) -> float | None:
        """The device's time for them, after ``wait``; None on a CPU, and if a frame was begun ahead."""
        if self.began is None or self.done is None:
            return None
        self.done.synchronize()
        return self.began.elapsed_time(self.done) / 1000

    def wait(self) -> dict[int, np.ndarray]:
        """Return them by line, float32 ``[n * 1920]`` on the CPU. Call it once."""
        # Copies: pinned memory is scarce, and shared by the lines of a step.
        made = {line: [wave] for line, wave in self._waves.items()}
        for samples, places in self._copies:
            rows = samples.wait()
            for line, (row, count) in places.items():
                made[line].append(rows[row, :count])
        return {line: np.concatenate(parts) for line, parts in made.items()}


@dataclass(frozen=True)
class CodecSnapshot:
    """The state of a line after ``frames`` frames, the last 25 of them in ``recent``."""

    state: LineStates
    frames: int
    recent: np.ndarray
    ahead: SamplesInFlight | None = None  # of the last of these frames, which ``recent`` lacks


@dataclass(frozen=True)
class _Step:
    """Frames of one step; samples of a left context are not ``wanted``."""

    codes: np.ndarray
    wanted: bool = True
    restarts: bool = False


def _mark_time(on_device: bool) -> torch.cuda.Event | None:
    """Record a moment of the device's work, on a GPU."""
    event = torch.cuda.Event(enable_timing=True) if on_device else None
    if event is not None:
        event.record()
    return event
