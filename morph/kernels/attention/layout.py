"""How attention is divided among programs and warps."""

from __future__ import annotations

from dataclasses import dataclass

import triton

from ..linear.tiles import LONGEST_SEGMENT
from ..plan import FEWEST_PROGRAMS, WARP_BYTES, Plan

LINE_WARPS = 8  # per program of one line's attention, at most
MAX_LINE_SPLITS = 32  # that one thread combines
POSITION_BYTES = 256  # of a key or value; of wider ones attend_batch loads fewer positions at once
# More programs do not fit on the multiprocessors at once (measured at 256 and 512 lines): with half the positions, so
# fewer registers, more of them do.
MANY_PROGRAMS = 2048


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


@dataclass(frozen=True)
class BatchLayout:
    warps: int
    positions: int  # loaded by a warp at once
    copies: int  # per instruction
    loops: bool  # whether a line may have more old positions than that


def batch_layout(plan: Plan, programs: int, window: int, row_bytes: int) -> BatchLayout:
    """Return the layout of ``attend_batch`` for ``programs`` (lines times key heads), ``row_bytes`` per key."""
    copies, many = max(1, WARP_BYTES // row_bytes), programs >= MANY_PROGRAMS
    wanted = plan.batch_positions // 2 if many else plan.batch_positions
    wanted = wanted * POSITION_BYTES // max(row_bytes, POSITION_BYTES)
    if window - 1 <= wanted // 2:  # a frame's first positions: no more registers than they need
        return BatchLayout(1, max(triton.next_power_of_2(window - 1), copies), copies, loops=False)
    positions = max(wanted, copies)
    filling = FEWEST_PROGRAMS * LINE_WARPS // triton.next_power_of_2(programs)  # more warps for few lines
    warps = 1 if many else max(plan.batch_warps, min(LINE_WARPS, filling))
    warps = min(warps, triton.next_power_of_2(-(-window // positions)))
    return BatchLayout(warps, positions, copies, loops=True)


def context_splits(plan: Plan, lines: int, kv_heads: int, window: int) -> int:
    if plan.batch_attention and window <= plan.unsplit_window:
        return 1
    blocks = -(-window // plan.split_block)
    wanted = max(1, FEWEST_PROGRAMS // (lines * kv_heads))
    return min(1 << (blocks - 1).bit_length(), plan.max_splits, triton.next_power_of_2(wanted))
