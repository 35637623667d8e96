"""``gemm_held`` for few rows, with the operands of wgmma exchanged (Gluon).

wgmma multiplies at least 64 rows, so the weights are its rows (M) and the activations its columns (N). Most layers
have too few outputs to give every multiprocessor 64 of them. A program therefore folds the columns of 64 / FOLDS
outputs: its 64 rows are FOLDS stretches of each output's weights, its columns FOLDS stretches of each activation row.
All stretches are multiplied with each other; only the matching pairs are kept and added up. The surplus work costs
nothing, as the tensor cores would idle, and each sum is shorter.

Held (STAGES is the number of steps): all weights are in shared memory before the wait, all activations soon after,
and no buffer is used twice. Up to 32 rows, without split-K and so without a second kernel.

Streamed (fewer STAGES): both pass through a ring of STAGES buffers, for weights so large that programs which hold
theirs would run one after another. The ring takes most of the shared memory, or with more than 32 rows half of it, so
that two programs run side by side (``tiles.py``).
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

from .gemm_held import await_inputs, norm_scales, start_dependents, store_squares


@gluon.jit
def _add_folds(result, FOLDS: gl.constexpr, BLOCK_M: gl.constexpr, ACC: gl.constexpr):
    """Add up the matching stretches of ``[ROWS, FOLDS BLOCK_M]``: ``[ROWS / FOLDS, BLOCK_M]``."""
    ROWS: gl.constexpr = result.shape[0]
    EACH: gl.constexpr = ROWS // FOLDS
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, ACC)) // EACH
    columns = gl.arange(0, FOLDS * BLOCK_M, layout=gl.SliceLayout(0, ACC)) // BLOCK_M
    result = gl.where(rows[:, None] == columns[None, :], result, 0.0)
    return gl.sum(gl.sum(gl.reshape(result, (FOLDS, EACH, FOLDS, BLOCK_M)), axis=2), axis=0)


@gluon.jit
def _first_weights(
    first, row, N: gl.constexpr, K: gl.constexpr, GATED: gl.constexpr, EACH: gl.constexpr, SPAN: gl.constexpr
):
    """Return where the weight stretches of a program's wgmma rows begin; EACH rows per fold."""
    sources = row % EACH
    if GATED:  # each gate next to its up, so that one thread gets both
        sources = sources // 2 + sources % 2 * N
    return (first + sources).to(gl.int64) * K + row // EACH * SPAN


@gluon.jit
def gemm_folded(
    x, squares, eps, weight, bias, residual, out, next_gain, next_scaled, next_squares, M,
    K: gl.constexpr, N: gl.constexpr, GATED: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, FOLDS: gl.constexpr, STAGES: gl.constexpr, SPLIT_K: gl.constexpr,
    SUMS: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """As ``gemm.gemm``, with the same arguments, for M <= BLOCK_M rows; program ``(outputs, 0, split)``.

    BLOCK_N outputs per program (when GATED, BLOCK_N gates and BLOCK_N ups) are 64 weight rows after folding, or 128.
    K / SPLIT_K / FOLDS is a multiple of BLOCK_K.
    """
    start_dependents(PDL)
    DTYPE: gl.constexpr = weight.dtype.element_ty
    ROWS: gl.constexpr = BLOCK_N * FOLDS * (2 if GATED else 1)
    SPAN: gl.constexpr = K // SPLIT_K // FOLDS  # the columns of a stretch
    STEPS: gl.constexpr = SPAN // BLOCK_K
    AHEAD: gl.constexpr = STEPS if STAGES >= STEPS else STAGES - 1  # steps whose copies are in flight
    EACH: gl.constexpr = ROWS // FOLDS
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps(), 1], [16, FOLDS * BLOCK_M, 16])
    COPY: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_K, BLOCK_K // 8], [num_warps(), 1], [1, 0])
    SIZE: gl.constexpr = 4 if BLOCK_N > 64 else 2  # outputs per thread
    THREADS: gl.constexpr = [32 * SIZE // BLOCK_N, BLOCK_N // SIZE]
    PAIRS: gl.constexpr = gl.BlockedLayout([1, 2 * SIZE if GATED else SIZE], THREADS, [num_warps(), 1], [1, 0])
    # Half of PAIRS when GATED.
    OUT: gl.constexpr = gl.BlockedLayout([1, SIZE], THREADS, [num_warps(), 1], [1, 0])
    TILE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, BLOCK_K], DTYPE)
    LINES: gl.constexpr = gl.NVMMASharedLayout.get_default_for([FOLDS * BLOCK_M, BLOCK_K], DTYPE)
    first = gl.program_id(0) * BLOCK_N
    split = gl.program_id(2)
    x += split * (K // SPLIT_K)
    weight += split * (K // SPLIT_K)
    out += split * M * N
    offsets_k = gl.arange(0, BLOCK_K, layout=gl.SliceLayout(0, COPY))
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, COPY))
    starts = _first_weights(first, row, N, K, GATED, EACH, SPAN)
    pointers = weight + starts[:, None] + offsets_k[None, :]
    # Before the wait: start copying the program's weights, and load the bias and gains, which no kernel writes.
    tiles = gl.allocate_shared_memory(DTYPE, [STAGES, ROWS, BLOCK_K], TILE)
    for index in gl.static_range(AHEAD):
        async_copy_global_to_shared(tiles.index(index), pointers + index * BLOCK_K)
    columns = first + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, OUT))
    if bias is not None:
        biases = gl.load(bias + columns)[None, :].to(gl.float32)
    if next_scaled is not None:
        gains = gl.load(next_gain + columns)[None, :].to(gl.float32)
    column = gl.arange(0, FOLDS * BLOCK_M, layout=gl.SliceLayout(1, COPY))
    line = column % BLOCK_M
    starts = line * K + column // BLOCK_M * SPAN
    sources_x = x + starts[:, None] + offsets_k[None, :]
    real = (line < M)[:, None]
    lines = gl.allocate_shared_memory(DTYPE, [STAGES, FOLDS * BLOCK_M, BLOCK_K], LINES)
    await_inputs(PDL)
    for index in gl.static_range(AHEAD):  # the first group of copies includes the weights
        async_copy_global_to_shared(lines.index(index), sources_x + index * BLOCK_K, mask=real)
        commit_group()
    rows = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, OUT))
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    offsets = rows[:, None] * N + columns[None, :]
    if residual is not None:  # loaded here, so that it arrives while the tensor cores work
        residuals = gl.load(residual + offsets, mask=mask, other=0.0)
    if squares is not None:
        scale = norm_scales(squares, eps, 0, M, K, SUMS, BLOCK_M, PAIRS)
    result = gl.zeros((ROWS, FOLDS * BLOCK_M), gl.float32, ACC)
    for index in gl.static_range(STEPS):
        wait_group(AHEAD - 1 if STEPS - index > AHEAD else STEPS - index - 1)
        fence_async_shared()
        thread_barrier()  # this step's rows have arrived for all threads, and none still reads the step before
        tile, operand = tiles.index(index % STAGES), lines.index(index % STAGES).permute((1, 0))
        result = warpgroup_mma(tile, operand, result, is_async=True)
        if index + AHEAD < STEPS:  # into the buffers of the step before, which no thread still reads
            ahead = index + AHEAD
            async_copy_global_to_shared(tiles.index(ahead % STAGES), pointers + ahead * BLOCK_K)
            async_copy_global_to_shared(lines.index(ahead % STAGES), sources_x + ahead * BLOCK_K, mask=real)
            commit_group()
            result = warpgroup_mma_wait(0, deps=(result,))
    result = warpgroup_mma_wait(0, deps=(result,))
    thread_barrier()  # no thread still reads the shared memory in which results are rearranged from here on
    if FOLDS > 1:
        result = _add_folds(result, FOLDS, BLOCK_M, ACC)
    result = gl.convert_layout(gl.permute(result, (1, 0)), PAIRS)
    if squares is not None:
        result *= scale[:, None]
    if GATED:
        gate, up = gl.split(gl.reshape(result, (BLOCK_M, BLOCK_N, 2)))
        result = gate / (1.0 + gl.exp(-gate)) * up
    result = gl.convert_layout(result, OUT)
    if bias is not None:
        result += biases
    if residual is not None:
        result += residuals
    gl.store(out + offsets, result.to(out.dtype.element_ty), mask=mask)
    if next_scaled is not None:
        gl.store(next_scaled + offsets, (result * gains).to(DTYPE), mask=mask)
        store_squares(result, next_squares, 0, first, M, BLOCK_M, BLOCK_N)
