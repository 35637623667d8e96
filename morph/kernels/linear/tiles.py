"""Tile sizes of the linear kernels."""

from dataclasses import dataclass, replace
from typing import Any

import triton

from ..plan import FEWEST_PROGRAMS, LANES, WARP_BYTES, Plan

WORD = 4  # INT8 weights per 32-bit word
LONGEST_SEGMENT = 1024  # input columns that a GEMV program holds at a time
SMALLEST_BLOCK_N = 16  # outputs per GEMM program
SMALLEST_BLOCK_K = 64  # BLOCK_K is halved down to this until FEWEST_STAGES stages fit in shared memory
FEWEST_STAGES = 4
HELD_SHARED = 220 * 1024  # bytes of shared memory that a program of gemm_held or gemm_folded may use
HELD_BLOCK_M = 64  # rows per program of gemm_held, at least: wgmma's M
FOLDED_ROWS = 64  # weight rows per program of gemm_folded: wgmma's M
FOLDED_WARPS = 4
MAX_FOLDED_ROWS = 32  # activation rows that gemm_folded computes, at most, if it holds its weights
FOLDS = (1, 2, 4)
SPLIT_MULTIPLE = 16  # K / split_k is a multiple of this


@dataclass(frozen=True)
class GemvShape:
    """The shape that a GEMV's tile depends on: the weight is ``[outputs, width]``."""

    outputs: int
    width: int
    itemsize: int  # bytes per weight
    weights: int = 1  # 2 if gates and ups are read together
    grids: int = 1  # that run side by side (split-K)


def gemv_tile(plan: Plan, shape: GemvShape, warps: int) -> tuple[int, dict[str, Any]]:
    """Return the programs of a GEMV and the share of each, as the kernel's arguments.

    It has WARPS x ROWS outputs, and reads CHUNKS x CHUNK columns at a time.
    """
    padded = triton.next_power_of_2(shape.width)
    if shape.itemsize == 1:
        # INT8 is read as words of four: a chunk has one column of each, so four chunks interleave.
        chunk = min(WARP_BYTES // WORD, max(padded // WORD, WORD))
    else:
        chunk = min(WARP_BYTES // shape.itemsize, padded)
    chunks = min(triton.next_power_of_2(-(-shape.width // chunk)), max(1, LONGEST_SEGMENT // chunk))
    # As many INT8 weights as bf16 weights: they are widened to floats, and smaller programs raise the occupancy.
    rows = max(1, plan.gemv_register_bytes // (shape.weights * shape.width * max(shape.itemsize, 2)))
    rows = 1 << (rows.bit_length() - 1)
    while rows > 1 and shape.grids * -(-shape.outputs // (warps * rows)) < FEWEST_PROGRAMS:
        rows //= 2
    return -(-shape.outputs // (warps * rows)), {"WARPS": warps, "ROWS": rows, "CHUNKS": chunks, "CHUNK": chunk}


@dataclass(frozen=True)
class GemmTile:
    """A program's share of a GEMM: BLOCK_M rows by BLOCK_N outputs, BLOCK_K columns per step."""

    block_m: int
    block_n: int
    block_k: int
    stages: int  # steps with loads in flight; of ``gemm_folded`` its buffers
    warps: int
    held: bool = False  # weights wait in shared memory: ``gemm_held``, with ``folds`` ``gemm_folded``
    split_k: int = 1  # programs that share an output's columns
    folds: int = 0


@dataclass(frozen=True)
class GemmShape:
    """The shape that a GEMM's tile depends on: activations ``[rows, width]``."""

    rows: int
    outputs: int  # of the weight; half its rows if ``gated``
    width: int
    itemsize: int  # bytes per activation
    gated: bool = False  # SwiGLU
    may_hold: bool = True  # not INT8 weights
    may_split: bool = True


# Tiles of many rows that are faster than cuBLAS (``library_tile``), up to these outputs of all rows, and columns.
SPLIT_TILE = GemmTile(block_m=64, block_n=64, block_k=64, stages=5, warps=4)
LARGE_SPLIT_TILE = replace(SPLIT_TILE, block_m=128, warps=8)
LARGE_SPLIT_WIDTH = 2048  # columns above which it is used if there are enough programs
MOST_SPLIT_OUTPUTS = 256 * 1024
WIDEST_SPLIT = 3072


def gemm_tile(plan: Plan, shape: GemmShape) -> GemmTile:
    """Return the tile of a GEMM: of ``gemm_folded`` or ``gemm_held`` if they run, else of ``gemm``."""
    if shape.may_hold and plan.gemm_held and shape.itemsize == 2:
        tile = _folded_tile(plan, shape) or _held_tile(plan, shape)
        if tile is not None and _exceeds_gpu(plan, shape, tile):
            tile = _folded_tile(plan, shape, streams=True) or tile
        if tile is not None:
            return tile
    block_m = min(plan.gemm_block_m, max(16, triton.next_power_of_2(shape.rows)))
    block_n, split_k = _share(plan, replace(shape, may_split=shape.may_split and block_m > 32), block_m)
    block_k = min(plan.gemm_block_k, max(16, triton.next_power_of_2(shape.width // split_k)))
    if shape.itemsize == 4:
        block_k = min(block_k, 32)  # float32 runs on the CUDA cores, fully unrolled
    column_bytes = (block_m + block_n * (2 if shape.gated else 1)) * shape.itemsize
    while block_k > SMALLEST_BLOCK_K and plan.gemm_shared_bytes // (block_k * column_bytes) < FEWEST_STAGES:
        block_k //= 2
    stages = max(1, min(plan.gemm_stages, plan.gemm_shared_bytes // (block_k * column_bytes)))
    warps = plan.gemm_warps if block_m > 32 else 4
    return GemmTile(block_m, block_n, block_k, stages, warps, split_k=split_k)


def library_tile(plan: Plan, shape: GemmShape) -> GemmTile | None:
    """Return a tile of ``gemm`` with split-K if that was measured to be faster than cuBLAS, else None."""
    # cuBLAS has few programs for narrow GEMMs of up to some 256 rows, and the addition to the stream waits for it.
    if not plan.split_library or shape.itemsize != 2 or shape.rows * shape.outputs > MOST_SPLIT_OUTPUTS:
        return None
    tiles = -(-shape.rows // SPLIT_TILE.block_m) * -(-shape.outputs // SPLIT_TILE.block_n)
    tile, split_k = SPLIT_TILE, 4
    if 4 * tiles > plan.split_k_programs:
        tile, split_k = (LARGE_SPLIT_TILE, 4) if shape.width > LARGE_SPLIT_WIDTH else (SPLIT_TILE, 2)
    if shape.width > WIDEST_SPLIT or shape.width % (split_k * tile.block_k):
        return None
    return replace(tile, split_k=split_k)


def prefetches(plan: Plan, tile: GemmTile, outputs: int, row_bytes: int) -> bool:
    """Return whether a program of ``gemm`` can prefetch its weights: one thread per weight row of its tile."""
    complete = outputs % tile.block_n == 0 and tile.block_n <= LANES * tile.warps
    return plan.pdl and complete and row_bytes % 16 == 0


def _share(plan: Plan, shape: GemmShape, block_m: int) -> tuple[int, int]:
    across = -(-shape.rows // block_m)  # programs side by side along the rows
    split_k = _split_k(plan, shape, across) if shape.may_split and not shape.gated else 1
    return _block_n(plan, shape.outputs, block_m, across) if split_k == 1 else plan.split_k_block_n, split_k


def _block_n(plan: Plan, outputs: int, block_m: int, across: int) -> int:
    block_n = plan.gemm_block_n
    # A small batch is cheap to read again, so it is spread over more programs.
    programs = plan.gemm_programs if block_m > 32 else FEWEST_PROGRAMS
    while block_n > SMALLEST_BLOCK_N and -(-outputs // block_n) * across < programs:
        block_n //= 2
    return block_n


def _split_k(plan: Plan, shape: GemmShape, across: int) -> int:
    programs = across * -(-shape.outputs // plan.split_k_block_n)
    if shape.width < plan.split_k_min_width or 4 * programs > plan.split_k_programs:
        return 1
    split_k = 1
    while 2 * split_k <= plan.max_split_k and shape.width % (2 * split_k * SPLIT_MULTIPLE) == 0:
        weight_bytes = 2 * plan.split_k_block_n * shape.width // split_k
        if 2 * split_k * programs > plan.split_k_programs and 2 * weight_bytes <= HELD_SHARED:
            break
        split_k *= 2
    return split_k


def _folded_tile(plan: Plan, shape: GemmShape, streams: bool = False) -> GemmTile | None:
    """Return a tile of ``gemm_folded`` with the fewest folds that make enough programs, or None.

    It holds its weights, or ``streams`` them through a ring. None: too many rows, no divisor, or too little memory.
    """
    # Each fold is another copy of the rows that a program reads.
    block_m, weights = max(8, triton.next_power_of_2(shape.rows)), 2 if shape.gated else 1
    if block_m > (plan.stream_max_rows if streams else MAX_FOLDED_ROWS):
        return None
    split_k = _split_k(plan, shape, 1) if streams and shape.may_split and not shape.gated else 1
    chosen = None
    for folds in FOLDS:
        block_n, span = FOLDED_ROWS // folds // weights, shape.width // split_k // folds
        block_k = _held_block_k(plan, span)
        stages, shared = span // block_k, 2 * shape.width * (FOLDED_ROWS // folds + block_m)
        if streams:
            # Two programs with half the ring each are better where many rows pass through it.
            ring = plan.stream_shared_bytes // (2 if block_m > 32 else 1)
            block_k, stages = _ring(block_k, span, FOLDED_ROWS + folds * block_m, ring)
        fits = stages >= 2 if streams else shared <= HELD_SHARED
        divides = shape.outputs % block_n == 0 and shape.width % (split_k * folds * block_k) == 0
        if folds > plan.max_folds or not fits or not divides:
            continue
        programs = shape.outputs // block_n * split_k
        # More programs than fit on the GPU at once: the last would start to read their weights when the first are done.
        if chosen is not None and not streams and programs > FEWEST_PROGRAMS * (HELD_SHARED // shared):
            break
        chosen = GemmTile(block_m, block_n, block_k, stages, FOLDED_WARPS, True, split_k, folds)
        if programs >= FEWEST_PROGRAMS:
            break
    return chosen


def _exceeds_gpu(plan: Plan, shape: GemmShape, tile: GemmTile) -> bool:
    """Return whether a tile that holds its weights has more programs than run concurrently on a large GPU."""
    weights = 2 if shape.gated else 1
    rows = tile.block_m * tile.block_k * tile.stages * max(1, tile.folds)
    shared = 2 * (weights * tile.block_n * shape.width // tile.split_k + rows)
    programs = -(-shape.outputs // tile.block_n) * -(-shape.rows // tile.block_m) * tile.split_k
    return programs > plan.held_programs * (HELD_SHARED // shared)


def _ring(block_k: int, span: int, rows: int, shared: int) -> tuple[int, int]:
    while block_k > SMALLEST_BLOCK_K and shared // (2 * rows * block_k) < FEWEST_STAGES:
        block_k //= 2
    return block_k, min(shared // (2 * rows * block_k), span // block_k)


def _held_block_k(plan: Plan, width: int) -> int:
    """Return BLOCK_K of the kernels that hold weights: a divisor of ``width``, unless it would get too small."""
    block_k = min(plan.gemm_block_k, max(16, triton.next_power_of_2(width)))
    while width % block_k and block_k > SMALLEST_BLOCK_K:
        block_k //= 2
    return block_k


def _held_tile(plan: Plan, shape: GemmShape) -> GemmTile | None:
    """Return a tile of ``gemm_held`` whose weights leave space for a ring of row buffers, or None."""
    # A ring with one buffer more than there are steps has all loads in flight at once.
    block_m = min(plan.gemm_block_m, max(HELD_BLOCK_M, triton.next_power_of_2(shape.rows)))
    block_n, split_k = _share(plan, shape, block_m)
    width = shape.width // split_k
    block_k = _held_block_k(plan, width)
    stage_bytes, row_bytes = 2 * block_m * block_k, 2 * (2 if shape.gated else 1) * width
    while block_n > SMALLEST_BLOCK_N and HELD_SHARED - block_n * row_bytes < 3 * stage_bytes:
        block_n //= 2
    fitting = (HELD_SHARED - block_n * row_bytes) // stage_bytes
    stages = min(plan.gemm_stages, fitting, width // block_k + 1)
    if block_m < HELD_BLOCK_M or stages < 2 or shape.outputs % block_n or width % block_k:
        return None
    return GemmTile(block_m, block_n, block_k, stages, plan.gemm_warps, held=True, split_k=split_k)
