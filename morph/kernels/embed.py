"""Start the residual stream: rows of a table for the predictor, a frame's 16 embeddings for the talker."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..decode.rows import REPORT_WIDTH
from .linear.gemm import load_gains, store_scaled
from .pdl import launch_dependents, wait_for_inputs
from .plan import Plan, launch
from .rows import normed_row
from .states import Inputs, Residual

EMBED_BLOCK = 128  # columns per program
WIDTH = tl.constexpr(REPORT_WIDTH)


def look_up(plan: Plan, inputs: Inputs, gain: torch.Tensor, eps: float) -> Residual:
    """Start the residual stream of a GEMM pass; ``gain`` ``[H]`` and ``eps`` are those of the first norm."""
    residual = Residual.empty(plan, inputs.rows, gain)
    tokens, block = inputs.tokens, embed_block(residual)
    launch(
        look_up_rows, (inputs.rows, -(-len(gain) // block)), plan, 4, dependent=inputs.hidden is None, x=inputs.states,
        hidden=inputs.hidden, tokens=tokens, token_stride=0 if tokens is None else tokens.stride(0),
        out=residual.values, gain=gain, eps=eps, scaled=residual.operand(plan), squares=residual.squares, H=len(gain),
        BLOCK=block,
    )  # fmt: skip
    return residual


def embed_block(residual: Residual) -> int:
    """Return the columns per program that starts ``residual``: whole rows if it leaves them after the norm."""
    whole = residual.scaled is not None and residual.squares is None
    return triton.next_power_of_2(residual.values.shape[1]) if whole else EMBED_BLOCK


@triton.jit
def store_start(values, gains, eps, scaled, squares, row, first, H: tl.constexpr):
    """Store columns ``first ..`` of a row of the residual stream ``[C]`` as the next GEMM reads them."""
    # Without ``squares`` it is the whole row, and ``scaled`` gets it after the norm; else as ``store_scaled``.
    if squares is None:
        columns = tl.arange(0, values.shape[0])
        normed = normed_row(values, gains.to(tl.float32), eps, H)
        tl.store(scaled + row * H + columns, normed.to(scaled.dtype.element_ty), mask=columns < H)
    else:
        rows = row + tl.arange(0, 1)
        store_scaled(values[None, :], gains, scaled, squares, rows, first, tl.num_programs(0), H)


@triton.jit
def embed_frame(
    line_tokens, report, first_table, tables, text, steps, out, gain, eps, scaled, squares, text_length,
    V: tl.constexpr, CODES: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Sum the embeddings of a frame's 16 codes and its text token, in float32; program ``(line, block of columns)``.

    Args:
        line_tokens: int64 ``[B]``, group 0; report: int64 ``[B, WIDTH]``, the other groups in 1 .. CODES - 1.
        first_table: ``[V0, H]``; tables: ``[CODES - 1, V, H]``.
        text: ``[B, text_length, H]``, one row per frame; the last row is repeated after its end.
        steps: int64 ``[B]``, frame numbers; out: float32 ``[B, H]``; the rest as of ``store_start``.
    """
    launch_dependents(PDL)
    line = tl.program_id(0)
    first = tl.program_id(1) * BLOCK
    columns = first + tl.arange(0, BLOCK)
    mask = columns < H
    gains = load_gains(gain, first, H, BLOCK)
    wait_for_inputs(PDL)  # for the codes
    row = line.to(tl.int64) * text_length + tl.minimum(tl.load(steps + line), text_length - 1)
    total = tl.load(text + row * H + columns, mask=mask, other=0.0).to(tl.float32)
    total += tl.load(first_table + tl.load(line_tokens + line) * H + columns, mask=mask, other=0.0).to(tl.float32)
    for group in tl.static_range(1, CODES):
        entry = (group - 1) * V + tl.load(report + line * WIDTH + group)
        total += tl.load(tables + entry * H + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + line * H + columns, total, mask=mask)
    if scaled is not None:
        store_start(total, gains, eps, scaled, squares, line, first, H)


@triton.jit(do_not_specialize=["token_stride"])
def look_up_rows(
    x, hidden, tokens, token_stride, out, gain, eps, scaled, squares,
    H: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Copy a pass's input rows into the residual stream; program ``(row, block of columns)``.

    ``x`` is ``[R, H]``, or with ``tokens`` a table of rows ``tokens[i * token_stride]``; ``hidden`` ``[R / 2, H]``
    are rows that precede each token's; ``out`` is float32 ``[R, H]``; the rest as of ``store_start``.
    """
    launch_dependents(PDL)
    row = tl.program_id(0)
    first_column = tl.program_id(1) * BLOCK
    columns = first_column + tl.arange(0, BLOCK)
    gains = load_gains(gain, first_column, H, BLOCK)
    wait_for_inputs(PDL)  # for the tokens, or the rows
    mask = columns < H
    if hidden is not None:
        line = row // 2
        is_hidden = row % 2 == 0
        first = tl.load(hidden + line * H + columns, mask=mask & is_hidden, other=0.0)
        source = tl.load(tokens + line * token_stride)
        second = tl.load(x + source * H + columns, mask=mask & (row % 2 == 1), other=0.0)
        values = tl.where(is_hidden, first, second).to(tl.float32)
    else:
        source = row.to(tl.int64) if tokens is None else tl.load(tokens + row * token_stride)
        values = tl.load(x + source * H + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * H + columns, values, mask=mask)
    store_start(values, gains, eps, scaled, squares, row, first_column, H)
