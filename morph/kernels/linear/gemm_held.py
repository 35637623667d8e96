"""``project_many`` with all of a program's weights in shared memory before the wait: compute capability 9.0, Gluon.

Triton's pipeline starts both operands behind the wait. Here the weights' copies start before it, so that behind it
only the states come from the L2 cache, through a ring of STAGES buffers. Gluon, in which copies and barriers are
written out, has no interpreter: this kernel runs on a GPU or not at all. What some Tritons' Gluon lacks is imported by
name (3.5 has no num_warps), so that the import tells whether this one will do: ``plan.has_gluon``.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language import num_warps, thread_barrier
from triton.experimental.gluon.language.nvidia.ampere.async_copy import (
    async_copy_global_to_shared,
    commit_group,
    wait_group,
)
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

SHARE = gl.constexpr(16)  # as of project_many


@gluon.jit
def start_dependents(PDL: gl.constexpr):
    if PDL:
        gl.inline_asm_elementwise(
            "griddepcontrol.launch_dependents; // dummy $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
        )


@gluon.jit
def await_inputs(PDL: gl.constexpr):
    if PDL:
        gl.inline_asm_elementwise(
            "griddepcontrol.wait; // dummy $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
        )


@gluon.jit
def copy_rows(
    target, x, rows, start, K: gl.constexpr, END: gl.constexpr, SEGMENT: gl.constexpr, COPY: gl.constexpr
):
    """Start to copy columns ``start ..`` before END of some rows of x ``[.., K]``: ``[len(rows), SEGMENT]``."""
    places = start + gl.arange(0, SEGMENT, layout=gl.SliceLayout(0, COPY))
    pointers = x + rows[:, None].to(gl.int64) * K + places[None, :]
    async_copy_global_to_shared(target, pointers, mask=(places < END)[None, :])


@gluon.jit
def scales_of(
    squares,
    eps,
    first,
    states,
    K: gl.constexpr,
    SHARES: gl.constexpr,
    PADDED: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """RMSNorm's scale of each state, ``[PADDED]`` for the rows of LAYOUT, from its sums of squares."""
    ACROSS: gl.constexpr = 32 if PADDED > 32 else PADDED
    WIDE: gl.constexpr = gl.BlockedLayout([1, 1], [32 // ACROSS, ACROSS], [num_warps(), 1], [1, 0])
    rows = first + gl.arange(0, PADDED, layout=gl.SliceLayout(0, WIDE))
    shares = gl.arange(0, SHARES, layout=gl.SliceLayout(1, WIDE))
    mask = (shares < K // SHARE)[:, None] & (rows < states)[None, :]
    sums = gl.load(squares + shares[:, None] * states + rows[None, :], mask=mask, other=0.0)
    return gl.convert_layout(gl.rsqrt(gl.sum(sums, axis=0) / K + eps), gl.SliceLayout(1, LAYOUT))


@gluon.jit
def store_squares(values, squares, first, column, states, PADDED: gl.constexpr, COLUMNS: gl.constexpr):
    """As of ``store_operand``: ``[COLUMNS / SHARE, states]``."""
    GROUPS: gl.constexpr = COLUMNS // SHARE
    NARROW: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [num_warps(), 1], [0, 1])
    sums = gl.sum(gl.reshape(values * values, (PADDED, GROUPS, SHARE)), axis=2)
    sums = gl.convert_layout(sums, NARROW)
    rows = first + gl.arange(0, PADDED, layout=gl.SliceLayout(1, NARROW))
    shares = column // SHARE + gl.arange(0, GROUPS, layout=gl.SliceLayout(0, NARROW))
    gl.store(squares + shares[None, :] * states + rows[:, None], sums, mask=(rows < states)[:, None])


@gluon.jit
def project_held(
    x, squares, eps, weight, bias, residual, out, next_gain, next_operand, next_squares, states,
    K: gl.constexpr, N: gl.constexpr, GATED: gl.constexpr, PADDED: gl.constexpr, COLUMNS: gl.constexpr,
    SEGMENT: gl.constexpr, STAGES: gl.constexpr, PARTS: gl.constexpr, SHARES: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """``project_many``, whose arguments these are, for whole tiles: of COLUMNS outputs, of SEGMENT columns."""
    start_dependents(PDL)
    DTYPE: gl.constexpr = weight.dtype.element_ty
    PART: gl.constexpr = K // PARTS
    PIECES: gl.constexpr = PART // SEGMENT
    WIDTH: gl.constexpr = 2 * COLUMNS if GATED else COLUMNS
    ACROSS: gl.constexpr = num_warps() // 4  # wgmma takes four warps down the rows
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, ACROSS], [16, WIDTH // ACROSS, 16])
    COPY: gl.constexpr = gl.BlockedLayout([1, 8], [256 // SEGMENT, SEGMENT // 8], [num_warps(), 1], [1, 0])
    OUT: gl.constexpr = gl.BlockedLayout([1, 4], [128 // COLUMNS, COLUMNS // 4], [num_warps(), 1], [1, 0])
    TILE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([WIDTH, SEGMENT], DTYPE)
    RING: gl.constexpr = gl.NVMMASharedLayout.get_default_for([PADDED, SEGMENT], DTYPE)
    first = gl.program_id(1) * PADDED
    sources = gl.arange(0, WIDTH, layout=gl.SliceLayout(1, COPY))
    if GATED:  # a gate and its up side by side, where one thread will have both
        sources = gl.program_id(0) * COLUMNS + sources // 2 + sources % 2 * N
    else:
        sources = gl.program_id(0) * COLUMNS + sources
    x += gl.program_id(2) * PART
    weight += gl.program_id(2) * PART
    out += gl.program_id(2) * states * N
    tiles = gl.allocate_shared_memory(DTYPE, [PIECES, WIDTH, SEGMENT], TILE)
    for index in range(PIECES):
        copy_rows(tiles.index(index), weight, sources, index * SEGMENT, K, PART, SEGMENT, COPY)
    await_inputs(PDL)
    ring = gl.allocate_shared_memory(DTYPE, [STAGES, PADDED, SEGMENT], RING)
    lines = gl.minimum(first + gl.arange(0, PADDED, layout=gl.SliceLayout(1, COPY)), states - 1)
    for index in gl.static_range(STAGES - 1):  # the first group of copies has the weights too
        copy_rows(ring.index(index), x, lines, index * SEGMENT, K, PART, SEGMENT, COPY)
        commit_group()
    result = gl.zeros((PADDED, WIDTH), gl.float32, ACC)
    for index in range(PIECES):
        wait_group(STAGES - 2)
        fence_async_shared()
        thread_barrier()  # this piece is there for all, and none still reads the one before it
        tile = tiles.index(index).permute((1, 0))
        sums = warpgroup_mma(ring.index(index % STAGES), tile, result, is_async=True)
        ahead = index + STAGES - 1
        copy_rows(ring.index(ahead % STAGES), x, lines, ahead * SEGMENT, K, PART, SEGMENT, COPY)
        commit_group()
        result = warpgroup_mma_wait(0, deps=(sums,))
    wait_group(0)  # a copy of nothing writes zeros: where the ring was, results are rearranged now
    if squares is not None:
        result *= scales_of(squares, eps, first, states, K, SHARES, PADDED, ACC)[:, None]
    if GATED:
        gate, up = gl.split(gl.reshape(result, (PADDED, COLUMNS, 2)))
        result = gate / (1.0 + gl.exp(-gate)) * up
    result = gl.convert_layout(result, OUT)
    column = gl.program_id(0) * COLUMNS
    rows = first + gl.arange(0, PADDED, layout=gl.SliceLayout(1, OUT))
    columns = column + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, OUT))
    mask = (rows < states)[:, None] & (columns < N)[None, :]
    places = rows[:, None] * N + columns[None, :]
    if bias is not None:
        result += gl.load(bias + columns)[None, :].to(gl.float32)
    if residual is not None:
        result += gl.load(residual + places, mask=mask, other=0.0)
    gl.store(out + places, result.to(out.dtype.element_ty), mask=mask)
    if next_operand is not None:
        narrow = result * gl.load(next_gain + columns)[None, :].to(gl.float32)
        gl.store(next_operand + places, narrow.to(DTYPE), mask=mask)
        store_squares(result, next_squares, first, column, states, PADDED, COLUMNS)
