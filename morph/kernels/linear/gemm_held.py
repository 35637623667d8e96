"""GEMMs with all of a program's weights held in shared memory: wgmma, compute capability 9.0, in Gluon.

Triton's own pipeline loads both operands after the wait. Here the weights' copies (cp.async) start before it, so only
the rows are loaded after it: in ``gemm_held`` from the L2 cache, through a ring of STAGES buffers. Gluon has no
interpreter. Names that some Tritons' Gluon lacks are imported directly (3.5 has no num_warps), so that importing this
module tells whether this Triton will do (``plan.has_gluon``).

``gemm_folded`` is for few rows, with the operands of wgmma exchanged. wgmma multiplies at least 64 rows, so the weights
are its rows (M) and the activations its columns (N). Most layers have too few outputs to give every multiprocessor 64
of them. A program therefore folds the columns of 64 / FOLDS outputs: its 64 rows are FOLDS stretches of each output's
weights, its columns FOLDS stretches of each activation row. All stretches are multiplied with each other; only the
matching pairs are kept and added up. The surplus work costs nothing, as the tensor cores would idle, and each sum is
shorter.

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
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from .. import plan

SUM_WIDTH = gl.constexpr(plan.SUM_WIDTH)


@gluon.jit
def start_dependents(PDL: gl.constexpr):
    if PDL:
        gl.inline_asm_elementwise(
            "griddepcontrol.launch_dependents; // dummy $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
        )


@gluon.jit
def await_inputs(PDL: gl.constexpr):
    if PDL:
        gl.inline_asm_elementwise("griddepcontrol.wait; // dummy $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def copy_rows(target, x, rows, start, K: gl.constexpr, END: gl.constexpr, BLOCK_K: gl.constexpr, COPY: gl.constexpr):
    """Start copying columns ``start ..``, up to END, of some rows of x ``[.., K]``: ``[len(rows), BLOCK_K]``."""
    columns = start + gl.arange(0, BLOCK_K, layout=gl.SliceLayout(0, COPY))
    pointers = x + rows[:, None].to(gl.int64) * K + columns[None, :]
    async_copy_global_to_shared(target, pointers, mask=(columns < END)[None, :])


@gluon.jit
def norm_scales(
    squares, eps, first, M, K: gl.constexpr, SUMS: gl.constexpr, BLOCK_M: gl.constexpr, LAYOUT: gl.constexpr,
):  # fmt: skip
    """Return RMSNorm's scale of each row, ``[BLOCK_M]`` along the rows of LAYOUT, from its sums of squares."""
    ACROSS: gl.constexpr = 32 if BLOCK_M > 32 else BLOCK_M
    WIDE: gl.constexpr = gl.BlockedLayout([1, 1], [32 // ACROSS, ACROSS], [num_warps(), 1], [1, 0])
    rows = first + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, WIDE))
    sums = gl.arange(0, SUMS, layout=gl.SliceLayout(1, WIDE))
    mask = (sums < K // SUM_WIDTH)[:, None] & (rows < M)[None, :]
    loaded = gl.load(squares + sums[:, None] * M + rows[None, :], mask=mask, other=0.0)
    return gl.convert_layout(gl.rsqrt(gl.sum(loaded, axis=0) / K + eps), gl.SliceLayout(1, LAYOUT))


@gluon.jit
def store_squares(values, squares, first, column, M, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """Store the sums of squares as ``gemm.store_scaled`` does: ``[BLOCK_N / SUM_WIDTH, M]``."""
    GROUPS: gl.constexpr = BLOCK_N // SUM_WIDTH
    NARROW: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [num_warps(), 1], [0, 1])
    sums = gl.sum(gl.reshape(values * values, (BLOCK_M, GROUPS, SUM_WIDTH)), axis=2)
    sums = gl.convert_layout(sums, NARROW)
    rows = first + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, NARROW))
    groups = column // SUM_WIDTH + gl.arange(0, GROUPS, layout=gl.SliceLayout(0, NARROW))
    gl.store(squares + groups[None, :] * M + rows[:, None], sums, mask=(rows < M)[:, None])


@gluon.jit
def gemm_held(
    x, squares, eps, weight, bias, residual, out, next_gain, next_scaled, next_squares, M,
    K: gl.constexpr, N: gl.constexpr, GATED: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, SPLIT_K: gl.constexpr, SUMS: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """As ``gemm.gemm``, with the same arguments. N is a multiple of BLOCK_N, K / SPLIT_K one of BLOCK_K."""
    start_dependents(PDL)
    DTYPE: gl.constexpr = weight.dtype.element_ty
    SPAN: gl.constexpr = K // SPLIT_K  # the columns that this program multiplies
    STEPS: gl.constexpr = SPAN // BLOCK_K
    WIDTH: gl.constexpr = 2 * BLOCK_N if GATED else BLOCK_N
    ACROSS: gl.constexpr = num_warps() // 4  # wgmma places four warps along the rows
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, ACROSS], [16, WIDTH // ACROSS, 16])
    COPY: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_K, BLOCK_K // 8], [num_warps(), 1], [1, 0])
    OUT: gl.constexpr = gl.BlockedLayout([1, 4], [128 // BLOCK_N, BLOCK_N // 4], [num_warps(), 1], [1, 0])
    TILE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([WIDTH, BLOCK_K], DTYPE)
    RING: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, BLOCK_K], DTYPE)
    first = gl.program_id(1) * BLOCK_M
    sources = gl.arange(0, WIDTH, layout=gl.SliceLayout(1, COPY))
    if GATED:  # each gate next to its up, so that one thread gets both
        sources = gl.program_id(0) * BLOCK_N + sources // 2 + sources % 2 * N
    else:
        sources = gl.program_id(0) * BLOCK_N + sources
    x += gl.program_id(2) * SPAN
    weight += gl.program_id(2) * SPAN
    out += gl.program_id(2) * M * N
    # Before the wait: start copying all weights of the program, which no kernel writes.
    tiles = gl.allocate_shared_memory(DTYPE, [STEPS, WIDTH, BLOCK_K], TILE)
    for index in range(STEPS):
        copy_rows(tiles.index(index), weight, sources, index * BLOCK_K, K, SPAN, BLOCK_K, COPY)
    await_inputs(PDL)
    ring = gl.allocate_shared_memory(DTYPE, [STAGES, BLOCK_M, BLOCK_K], RING)
    # Rows beyond M read the last one again; their results are not stored.
    lines = gl.minimum(first + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, COPY)), M - 1)
    for index in gl.static_range(STAGES - 1):  # the first group of copies includes the weights
        copy_rows(ring.index(index), x, lines, index * BLOCK_K, K, SPAN, BLOCK_K, COPY)
        commit_group()
    result = gl.zeros((BLOCK_M, WIDTH), gl.float32, ACC)
    for index in range(STEPS):
        wait_group(STAGES - 2)
        fence_async_shared()
        thread_barrier()  # this step's rows have arrived for all threads, and no thread still reads the previous step's
        tile = tiles.index(index).permute((1, 0))
        sums = warpgroup_mma(ring.index(index % STAGES), tile, result, is_async=True)
        ahead = index + STAGES - 1
        copy_rows(ring.index(ahead % STAGES), x, lines, ahead * BLOCK_K, K, SPAN, BLOCK_K, COPY)
        commit_group()
        result = warpgroup_mma_wait(0, deps=(sums,))
    # The last copies, all masked, write zeros into the ring, whose memory is reused from here on.
    wait_group(0)
    if squares is not None:
        result *= norm_scales(squares, eps, first, M, K, SUMS, BLOCK_M, ACC)[:, None]
    if GATED:
        gate, up = gl.split(gl.reshape(result, (BLOCK_M, BLOCK_N, 2)))
        result = gate / (1.0 + gl.exp(-gate)) * up
    result = gl.convert_layout(result, OUT)
    column = gl.program_id(0) * BLOCK_N
    rows = first + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, OUT))
    columns = column + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, OUT))
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    offsets = rows[:, None] * N + columns[None, :]
    if bias is not None:
        result += gl.load(bias + columns)[None, :].to(gl.float32)
    if residual is not None:
        result += gl.load(residual + offsets, mask=mask, other=0.0)
    gl.store(out + offsets, result.to(out.dtype.element_ty), mask=mask)
    if next_scaled is not None:
        scaled = result * gl.load(next_gain + columns)[None, :].to(gl.float32)
        gl.store(next_scaled + offsets, scaled.to(DTYPE), mask=mask)
        store_squares(result, next_squares, first, column, M, BLOCK_M, BLOCK_N)


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
