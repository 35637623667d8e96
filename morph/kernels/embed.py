"""The talker's next input: the sum of a frame's 16 embeddings and the line's text."""

from __future__ import annotations

import triton
import triton.language as tl

from .wait import launch_dependents, wait_for_inputs


@triton.jit
def embed_frame(
    line_tokens, report, first_table, tables, text, steps, out, copy, text_length,
    V: tl.constexpr, CODES: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add up in float32; program ``(line, block of the width)``.

    Args:
        line_tokens: int64 ``[B]``, group 0; report: int64 ``[B, CODES + 1]``, the others in 1 .. CODES - 1.
        first_table: ``[V0, H]``; tables: ``[CODES - 1, V, H]``.
        text: ``[B, text_length, H]``, one row a frame; behind its end the last.
        steps: int64 ``[B]``, each line's frame.
        out: float32 ``[B, H]``; copy: the same in the model's dtype, or None.
    """
    launch_dependents(PDL)
    line = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < H
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
    if copy is not None:
        tl.store(copy + line * H + columns, total.to(copy.dtype.element_ty), mask=mask)
