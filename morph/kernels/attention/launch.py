"""Launch a layer's attention: choose its kernels by lines, new positions and window."""

from dataclasses import dataclass
from typing import Any

import torch
import triton

from ...model.layers import Layer, LayerStack
from ...model.weights import split_scales
from ..linear.launch import as_words, project
from ..linear.tiles import LONGEST_SEGMENT, GemvShape, gemv_tile
from ..plan import FEWEST_PROGRAMS, WARP_BYTES, Plan, launch
from ..states import CacheSpan, Inputs, Projection, Residual
from .batch import attend_batch, attend_pair
from .one_line import attend_line, attend_o_proj, combine_o_proj
from .split import attend_prompt, attend_split, combine_splits

DOT_QUERIES = 16  # rows that tl.dot multiplies, at least
SHORT_CONTEXT = 32  # positions that one block holds: a frame's 16 always fit
SPLIT_WARPS = 4  # per program of attend_split and combine_splits
PROMPT_BLOCK = 16  # positions per program of attend_prompt: prompts have a multiple of it
PROMPT_KEYS = 64  # positions that it loads at once, at most
LONGEST_PROMPT = 256  # positions: longer ones have enough work for FlashAttention
LINE_WARPS = 8  # per program of one line's attention, at most
MAX_LINE_SPLITS = 32  # that one thread combines
POSITION_BYTES = 256  # of a key or value; of wider ones attend_batch loads fewer positions at once
# More programs do not fit on the multiprocessors at once (measured at 256 and 512 lines): with half the positions, so
# fewer registers, more of them do.
MANY_PROGRAMS = 2048


@dataclass(frozen=True)
class AttentionInputs:
    """The inputs of one layer's attention."""

    stack: LayerStack
    index: int
    qkv: torch.Tensor  # [R, (heads + 2 kv_heads) head_dim], float32, or the model's dtype
    span: CacheSpan

    @property
    def layer(self) -> Layer:
        return self.stack.layers[self.index]

    @property
    def lines(self) -> int:
        return len(self.qkv) // self.span.length

    def arguments(self) -> dict[str, Any]:
        span, stack = self.span, self.stack
        keys, values = span.cache.keys[self.index], span.cache.values[self.index]
        return {
            "qkv": self.qkv, "gains": stack.qk_norms[self.index], "eps": stack.eps, "cos": span.angles.cos,
            "sin": span.angles.sin, "cache_keys": keys, "cache_values": values, "head_stride": keys.stride(1),
            "HEADS": stack.heads, "KV_HEADS": stack.kv_heads, "D": stack.head_dim,
        }  # fmt: skip

    def empty(self, plan: Plan) -> torch.Tensor:
        """Return a buffer for the heads' values, ``[R, heads, head_dim]``."""
        stack = self.stack
        return plan.empty("mean", (len(self.qkv), stack.heads, stack.head_dim), stack.norm)


def attend(plan: Plan, inputs: AttentionInputs, residual: Residual) -> torch.Tensor | None:
    """Compute attention and its output projection: one line's split-K partials ``[split_k, R, H]``, or None."""
    # Partials are added by the next reader of the residual stream. None: they were added to ``residual``.
    rows, span = len(inputs.qkv), inputs.span
    if inputs.lines == 1 and rows <= plan.gemv_max_rows:
        if span.positions is None and span.window <= SHORT_CONTEXT:
            return _attend_short(plan, inputs)
        layout = None if span.positions is None else line_layout(plan, span.window)
        if layout is not None:
            return _attend_long(plan, inputs, layout)
    values = Inputs(attend_lines(plan, inputs).view(rows, -1))
    output = Projection(inputs.layer.out, eps=inputs.stack.eps, residual=residual, next_norm=inputs.layer.post_norm)
    project(plan, values, residual.values, output)
    return None


def attend_lines(plan: Plan, inputs: AttentionInputs) -> torch.Tensor:
    """Compute attention of several lines or positions, not projected: ``[R, heads, head_dim]``."""
    span = inputs.span
    if span.is_prompt:
        return attend_prompt_alone(plan, inputs)
    if span.length == 2:
        out, grid = inputs.empty(plan), (inputs.lines, inputs.stack.kv_heads)
        launch(attend_pair, grid, plan, 1, line_stride=span.cache.keys.stride(1), out=out, **inputs.arguments())
        return out
    splits = context_splits(plan, inputs.lines, inputs.stack.kv_heads, span.window)
    return _attend_batch(plan, inputs) if splits == 1 else _attend_split(plan, inputs, splits)


def _attend_short(plan: Plan, inputs: AttentionInputs) -> torch.Tensor:
    stack, span = inputs.stack, inputs.span
    partials = plan.empty("partials", (stack.kv_heads, len(inputs.qkv), len(inputs.layer.out)), stack.norm)
    grid, output = _output_projection(plan, inputs, partials)
    block = max(16, 2 * output["WARPS"], triton.next_power_of_2(span.window))
    launch(
        attend_o_proj, grid, plan, output["WARPS"], T=span.length, BLOCK=block, start=span.start,
        **inputs.arguments(), **output,
    )  # fmt: skip
    return partials


def _attend_long(plan: Plan, inputs: AttentionInputs, layout: tuple[int, int, int]) -> torch.Tensor:
    splits, warps, positions = layout
    stack, span, qkv = inputs.stack, inputs.span, inputs.qkv
    means = plan.empty("means", (splits, stack.heads, stack.head_dim), qkv)
    log_sums = plan.empty("log sums", (splits, stack.heads), qkv)
    launch(
        attend_line, (stack.kv_heads, splits), plan, warps, positions=span.positions, window=span.window,
        means=means, log_sums=log_sums, SPLITS=splits, WARPS=warps, POSITIONS=positions, **inputs.arguments(),
    )  # fmt: skip
    split_k = o_proj_split_k(plan, stack.heads, stack.head_dim)
    partials = plan.empty("partials", (split_k, 1, len(inputs.layer.out)), stack.norm)
    grid, output = _output_projection(plan, inputs, partials)
    launch(
        combine_o_proj, grid, plan, output["WARPS"], means=means, log_sums=log_sums, HEADS=stack.heads,
        D=stack.head_dim, SPLITS=splits, SPLIT_K=split_k, **output,
    )  # fmt: skip
    return partials


def _output_projection(
    plan: Plan, inputs: AttentionInputs, partials: torch.Tensor
) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return grid and arguments of an output projection that leaves split-K partials ``[split_k, R, H]``."""
    split_k, outputs = len(partials), len(inputs.layer.out)
    values, scales = split_scales(inputs.layer.out)
    shape = GemvShape(outputs, values.shape[1] // split_k, values.element_size(), grids=split_k)
    programs, tile = gemv_tile(plan, shape, plan.o_proj_warps)
    return (split_k, programs), {"weight": as_words(values), "scales": scales, "out": partials, "N": outputs, **tile}


def _attend_batch(plan: Plan, inputs: AttentionInputs) -> torch.Tensor:
    stack, span, qkv = inputs.stack, inputs.span, inputs.qkv
    keys, out = span.cache.keys, inputs.empty(plan)
    programs = len(qkv) * stack.kv_heads
    layout = batch_layout(plan, programs, span.window, stack.head_dim * keys.element_size())
    launch(
        attend_batch, (len(qkv), stack.kv_heads), plan, layout["WARPS"], positions=span.positions, start=span.start,
        window=span.window, line_stride=keys.stride(1), out=out, **layout, **inputs.arguments(),
    )  # fmt: skip
    return out


def attends_alone(lines: int, length: int) -> bool:
    return lines == 1 and length % PROMPT_BLOCK == 0 and length <= LONGEST_PROMPT


def attend_prompt_alone(plan: Plan, inputs: AttentionInputs) -> torch.Tensor:
    """Compute attention of one line's prompt, from position 0 on: ``[R, heads, head_dim]``."""
    length, out = inputs.span.length, inputs.empty(plan)
    keys = min(PROMPT_KEYS, triton.next_power_of_2(length))
    launch(
        attend_prompt, (length // PROMPT_BLOCK, inputs.stack.kv_heads), plan, 4 if keys < PROMPT_KEYS else 8, out=out,
        LENGTH=length, BLOCK=PROMPT_BLOCK, KEYS=keys, **inputs.arguments(),
    )  # fmt: skip
    return out


def _attend_split(plan: Plan, inputs: AttentionInputs, splits: int) -> torch.Tensor:
    stack, span, like = inputs.stack, inputs.span, inputs.stack.norm
    shape = (splits, len(inputs.qkv), stack.heads, stack.head_dim)
    means = plan.empty("means", shape, like, torch.float32)
    log_sums = plan.empty("log sums", shape[:3], like, torch.float32)
    dot = like.dtype != torch.float32  # the tensor cores would round float32 to TF32
    queries = stack.heads // stack.kv_heads
    block = max(16, triton.next_power_of_2(min(plan.split_block, span.window)))
    launch(
        attend_split, (inputs.lines, stack.kv_heads, splits), plan, SPLIT_WARPS, positions=span.positions,
        window=span.window, line_stride=span.cache.keys.stride(1), means=means, log_sums=log_sums, SPLITS=splits,
        QUERIES=max(queries, DOT_QUERIES) if dot else queries, BLOCK=block, DOT=dot, **inputs.arguments(),
    )  # fmt: skip
    out = inputs.empty(plan)
    launch(
        combine_splits, (len(out), stack.kv_heads), plan, SPLIT_WARPS, means=means, log_sums=log_sums, out=out,
        HEADS=stack.heads, KV_HEADS=stack.kv_heads, D=stack.head_dim, SPLITS=splits,
    )  # fmt: skip
    return out


def o_proj_split_k(plan: Plan, heads: int, head_dim: int) -> int:
    """Return the split-K of a long line's output projection: a power of two of heads each."""
    # Their columns fit into a GEMV's segment.
    wanted = max(min(plan.o_proj_split_k, heads), heads * head_dim // LONGEST_SEGMENT)
    each = heads & -heads  # the largest power of two that divides them
    while each > 1 and heads // each < wanted:
        each //= 2
    return heads // each


def line_layout(plan: Plan, window: int) -> tuple[int, int, int] | None:
    """Return splits per key head, warps per program and positions per warp for one line."""
    # None if ``window`` needs more splits than a thread combines.
    if not plan.line_splits:
        return None
    for positions in (plan.line_positions, 2 * plan.line_positions, 4 * plan.line_positions):
        warps = min(triton.next_power_of_2(-(-window // (plan.line_splits * positions))), LINE_WARPS)
        splits = triton.next_power_of_2(-(-window // (warps * positions)))
        if splits <= MAX_LINE_SPLITS:
            return splits, warps, positions
    return None


def batch_layout(plan: Plan, programs: int, window: int, row_bytes: int) -> dict[str, Any]:
    """Return layout arguments of ``attend_batch`` for ``programs`` (lines times key heads), ``row_bytes`` per key."""
    copies, many = max(1, WARP_BYTES // row_bytes), programs >= MANY_PROGRAMS
    wanted = plan.batch_positions // 2 if many else plan.batch_positions
    wanted = wanted * POSITION_BYTES // max(row_bytes, POSITION_BYTES)
    if window - 1 <= wanted // 2:  # a frame's first positions: no more registers than they need
        positions = max(triton.next_power_of_2(window - 1), copies)
        return {"WARPS": 1, "POSITIONS": positions, "COPIES": copies, "LOOPS": False}
    positions = max(wanted, copies)
    filling = FEWEST_PROGRAMS * LINE_WARPS // triton.next_power_of_2(programs)  # more warps for few lines
    warps = 1 if many else max(plan.batch_warps, min(LINE_WARPS, filling))
    warps = min(warps, triton.next_power_of_2(-(-window // positions)))
    return {"WARPS": warps, "POSITIONS": positions, "COPIES": copies, "LOOPS": True}


def context_splits(plan: Plan, lines: int, kv_heads: int, window: int) -> int:
    if window <= plan.unsplit_window:
        return 1
    blocks = -(-window // plan.split_block)
    wanted = max(1, FEWEST_PROGRAMS // (lines * kv_heads))
    return min(1 << (blocks - 1).bit_length(), plan.max_splits, triton.next_power_of_2(wanted))
