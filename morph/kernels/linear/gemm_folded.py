"""``project_held`` for few states: up to 32 at once, without parts that another kernel would have to add up.

The tensor cores' instruction takes 64 rows at the least, so the weights are its rows and the states its columns. Most
weights have too few outputs to give every multiprocessor 64 of them. So a program folds the columns of 64 / FOLDS
outputs: its rows are FOLDS stretches of each output's weights, and its columns FOLDS stretches of each state. Every
stretch of weights meets every stretch of states; those that belong together are kept, and added up at the end. The
tensor cores have nothing else to do, and sums over stretches are shorter.

All of the weights lie in shared memory before the wait, all of the states soon behind it: no buffer is used twice.
Gluon, as ``project_held``.
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

from ..plan import FOLDED_ROWS
from .gemm_held import await_inputs, scales_of, start_dependents, store_squares

ROWS = gl.constexpr(FOLDED_ROWS)  # that the tensor cores multiply at once


@gluon.jit
def _join_folds(result, FOLDS: gl.constexpr, PADDED: gl.constexpr, ACC: gl.constexpr):
    """Of ``[ROWS, FOLDS PADDED]`` what belongs together, added up: ``[ROWS / FOLDS, PADDED]``."""
    EACH: gl.constexpr = ROWS // FOLDS
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, ACC)) // EACH
    columns = gl.arange(0, FOLDS * PADDED, layout=gl.SliceLayout(0, ACC)) // PADDED
    result = gl.where(rows[:, None] == columns[None, :], result, 0.0)
    return gl.sum(gl.sum(gl.reshape(result, (FOLDS, EACH, FOLDS, PADDED)), axis=2), axis=0)


@gluon.jit
def project_folded(
    x, squares, eps, weight, bias, residual, out, next_gain, next_operand, next_squares, states,
    K: gl.constexpr, N: gl.constexpr, GATED: gl.constexpr, PADDED: gl.constexpr, COLUMNS: gl.constexpr,
    SEGMENT: gl.constexpr, FOLDS: gl.constexpr, SHARES: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """``project_many``, whose arguments these are, for up to PADDED states; program ``(outputs)``, four warps.

    COLUMNS outputs a program, when GATED with as many gates and ups, are 64 / FOLDS rows of weights.
    """
    start_dependents(PDL)
    DTYPE: gl.constexpr = weight.dtype.element_ty
    PART: gl.constexpr = K // FOLDS
    PIECES: gl.constexpr = PART // SEGMENT
    EACH: gl.constexpr = ROWS // FOLDS
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, FOLDS * PADDED, 16])
    COPY: gl.constexpr = gl.BlockedLayout([1, 8], [256 // SEGMENT, SEGMENT // 8], [num_warps(), 1], [1, 0])
    THREADS: gl.constexpr = [64 // COLUMNS, COLUMNS // 2]
    PAIRS: gl.constexpr = gl.BlockedLayout([1, 4 if GATED else 2], THREADS, [num_warps(), 1], [1, 0])
    OUT: gl.constexpr = gl.BlockedLayout([1, 2], THREADS, [num_warps(), 1], [1, 0])  # of pairs, a half
    TILE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, SEGMENT], DTYPE)
    RING: gl.constexpr = gl.NVMMASharedLayout.get_default_for([FOLDS * PADDED, SEGMENT], DTYPE)
    first = gl.program_id(0) * COLUMNS
    places = gl.arange(0, SEGMENT, layout=gl.SliceLayout(0, COPY))
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, COPY))
    sources = row % EACH
    if GATED:  # a gate and its up side by side, where one thread will have both
        sources = sources // 2 + sources % 2 * N
    starts = (first + sources).to(gl.int64) * K + row // EACH * PART
    pointers = weight + starts[:, None] + places[None, :]
    tiles = gl.allocate_shared_memory(DTYPE, [PIECES, ROWS, SEGMENT], TILE)
    for index in gl.static_range(PIECES):
        async_copy_global_to_shared(tiles.index(index), pointers + index * SEGMENT)
    columns = first + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, OUT))
    if bias is not None:
        biases = gl.load(bias + columns)[None, :].to(gl.float32)
    if next_operand is not None:
        gains = gl.load(next_gain + columns)[None, :].to(gl.float32)
    column = gl.arange(0, FOLDS * PADDED, layout=gl.SliceLayout(1, COPY))
    line = column % PADDED
    starts = line * K + column // PADDED * PART
    pointers = x + starts[:, None] + places[None, :]
    there = (line < states)[:, None]
    lines = gl.allocate_shared_memory(DTYPE, [PIECES, FOLDS * PADDED, SEGMENT], RING)
    await_inputs(PDL)
    for index in gl.static_range(PIECES):  # the first group of copies has the weights too
        async_copy_global_to_shared(lines.index(index), pointers + index * SEGMENT, mask=there)
        commit_group()
    rows = gl.arange(0, PADDED, layout=gl.SliceLayout(1, OUT))
    mask = (rows < states)[:, None] & (columns < N)[None, :]
    spots = rows[:, None] * N + columns[None, :]
    if residual is not None:  # asked for now: it comes while the tensor cores work
        residuals = gl.load(residual + spots, mask=mask, other=0.0)
    if squares is not None:
        scale = scales_of(squares, eps, 0, states, K, SHARES, PADDED, PAIRS)
    result = gl.zeros((ROWS, FOLDS * PADDED), gl.float32, ACC)
    for index in gl.static_range(PIECES):
        wait_group(PIECES - 1 - index)
        fence_async_shared()
        thread_barrier()  # this piece is there for all
        result = warpgroup_mma(tiles.index(index), lines.index(index).permute((1, 0)), result, is_async=True)
    result = warpgroup_mma_wait(0, deps=(result,))
    thread_barrier()  # none still reads what results are rearranged in now
    if FOLDS > 1:
        result = _join_folds(result, FOLDS, PADDED, ACC)
    result = gl.convert_layout(gl.permute(result, (1, 0)), PAIRS)
    if squares is not None:
        result *= scale[:, None]
    if GATED:
        gate, up = gl.split(gl.reshape(result, (PADDED, COLUMNS, 2)))
        result = gate / (1.0 + gl.exp(-gate)) * up
    result = gl.convert_layout(result, OUT)
    if bias is not None:
        result += biases
    if residual is not None:
        result += residuals
    gl.store(out + spots, result.to(out.dtype.element_ty), mask=mask)
    if next_operand is not None:
        gl.store(next_operand + spots, (result * gains).to(DTYPE), mask=mask)
        store_squares(result, next_squares, 0, first, states, PADDED, COLUMNS)
