"""Where states begin: a row of a table for the predictor, a frame's 16 embeddings and the text for the talker."""

from __future__ import annotations

import triton
import triton.language as tl

from .linear.gemm import load_gains, store_operand
from .pdl import launch_dependents, wait_for_inputs


@triton.jit
def embed_frame(
    line_tokens, report, first_table, tables, text, steps, out, gain, operand, squares, text_length,
    V: tl.constexpr, CODES: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add up in float32; program ``(line, block of the width)``.

    Args:
        line_tokens: int64 ``[B]``, group 0; report: int64 ``[B, CODES + 1]``, the others in 1 .. CODES - 1.
        first_table: ``[V0, H]``; tables: ``[CODES - 1, V, H]``.
        text: ``[B, text_length, H]``, one row a frame; behind its end the last.
        steps: int64 ``[B]``, each line's frame.
        out: float32 ``[B, H]``.
        gain, operand, squares: as of ``store_operand``, or None.
    """
    launch_dependents(PDL)
    line = tl.program_id(0)
    first = tl.program_id(1) * BLOCK
    columns = first + tl.arange(0, BLOCK)
    mask = columns < H
    gains = load_gains(gain, first, H, BLOCK)
    wait_for_inputs(PDL)
    row = line.to(tl.int64) * text_length + tl.minimum(tl.load(steps + line), text_length - 1)
    total = tl.load(text + row * H + columns, mask=mask, other=0.0).to(tl.float32)
    total += tl.load(first_table + tl.load(line_tokens + line) * H + columns, mask=mask, other=0.0).to(
        tl.float32
    )
    for group in tl.static_range(1, CODES):
        entry = (group - 1) * V + tl.load(report + line * (CODES + 1) + group)
        total += tl.load(tables + entry * H + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + line * H + columns, total, mask=mask)
    if operand is not None:
        rows = line + tl.arange(0, 1)
        store_operand(total[None, :], gains, operand, squares, rows, first, tl.num_programs(0), H)


@triton.jit(do_not_specialize=["token_stride"])
def look_up_states(
    x, before, tokens, token_stride, out, gain, operand, squares,
    H: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Begin a pass of many states; program ``(row, block of the width)``.

    Args:
        x: the states ``[R, H]``, or with ``tokens`` a table whose rows ``tokens[i * token_stride]`` are the states.
        before: None, or ``[R / 2, H]``: states that stand one before each token's.
        out: float32 ``[R, H]``.
        gain, operand, squares: as of ``store_operand``.
    """
    launch_dependents(PDL)
    row = tl.program_id(0)
    begin = tl.program_id(1) * BLOCK
    columns = begin + tl.arange(0, BLOCK)
    gains = load_gains(gain, begin, H, BLOCK)
    wait_for_inputs(PDL)
    mask = columns < H
    if before is not None:
        line = row // 2
        is_before = row % 2 == 0
        first = tl.load(before + line * H + columns, mask=mask & is_before, other=0.0)
        source = tl.load(tokens + line * token_stride)
        second = tl.load(x + source * H + columns, mask=mask & (row % 2 == 1), other=0.0)
        values = tl.where(is_before, first, second).to(tl.float32)
    else:
        source = row.to(tl.int64) if tokens is None else tl.load(tokens + row * token_stride)
        values = tl.load(x + source * H + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * H + columns, values, mask=mask)
    store_operand(
        values[None, :], gains, operand, squares, row + tl.arange(0, 1), begin, tl.num_programs(0), H
    )
