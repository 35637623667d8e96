"""GEMV: one or two rows times a weight matrix, fused with what precedes and follows it in a decoder layer.

It is bound by reading the weights, so a program loads its share into registers before it waits for its input
(``pdl.py``): memory stays busy while the chain of kernels advances. Before the GEMV come RMSNorm, the sum of
split-K partials, or an embedding look-up; after it SwiGLU, a bias, or the residual. RMSNorm's scale is applied to the
result, so that its sum of squares runs in parallel. All sums are float32.

A warp has complete weight rows. A tile is ``[WARPS, ROWS, CHUNKS, CHUNK]``, with CHUNK read by a warp in one
instruction (512 bytes), so sums stay within a thread until one butterfly over the lanes at the end. INT8 weights are
words of four, unpacked exactly. A lane that reads a word per column chunk has sixteen columns at once, more than it
can load of the input row. The row's columns are therefore permuted: a lane loads four at once, which meet its own
weights (``order_columns``).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..pdl import launch_dependents, wait_for_inputs
from . import tiles

WORD = tl.constexpr(tiles.WORD)
UNPACKED = tl.constexpr(2.0**-23)  # the scale of unpacked numbers: 2^149 times it is still a float


@triton.jit
def unpack(words):
    """Return the four INT8 numbers of each word times UNPACKED, float32, lowest byte first: four tensors."""
    # A byte alone in a word, read as a float, is a subnormal: the byte times 2^-149. One multiply-add, exact and at
    # full speed, scales it to a normal number and subtracts the 128 that made it unsigned. The instruction that
    # converts a byte to a float is many times slower.
    words = words ^ -0x7F7F7F80  # flip the highest bit of each byte: adds 128
    first = _from_subnormal(words & 0xFF, 0)
    second = _from_subnormal(words & 0xFF00, 8)
    # Reaches the exponent's lowest bit, where the steps are still equal.
    third = _from_subnormal(words & 0xFF0000, 16)
    fourth = _from_subnormal((words >> 24) & 0xFF, 0)
    return first, second, third, fourth


@triton.jit
def _from_subnormal(bits, BIT: tl.constexpr):
    """Return ``(byte - 128) * UNPACKED`` for words whose only non-zero byte starts at bit BIT."""
    return bits.to(tl.float32, bitcast=True) * (UNPACKED * 2.0 ** (149 - BIT)) - UNPACKED * 128.0


@triton.jit
def order_columns(index, CHUNK: tl.constexpr, PACK: tl.constexpr):
    """Return which column of a segment belongs at an index of the row's tile ``[CHUNKS, CHUNK]``, in row order."""
    # With words, a chunk in memory is CHUNK words, four consecutive ones per lane: every lane's first word meets the
    # tile's first row, its second word the second row, and so on.
    if PACK == 1:
        return index
    row, column = index // CHUNK, index % CHUNK
    word = (row // WORD * CHUNK) + column // WORD * WORD + row % WORD
    return word * WORD + column % WORD


@triton.jit
def interleave(words, WARPS: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr):
    """Reorder words ``[WARPS, ROWS, CHUNKS / 4, CHUNK]`` as ``order_columns`` does: ``[.., CHUNKS, CHUNK / 4]``."""
    # No word changes threads.
    words = tl.reshape(words, (WARPS, ROWS, CHUNKS // WORD, CHUNK // WORD, WORD))
    return tl.reshape(tl.trans(words, (0, 1, 2, 4, 3)), (WARPS, ROWS, CHUNKS, CHUNK // WORD))


@triton.jit
def tile_columns(WARPS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr):
    """Return a segment's columns for every warp: ``[WARPS, 1, CHUNKS, CHUNK]``."""
    chunk = tl.arange(0, CHUNKS)[None, None, :, None] * CHUNK + tl.arange(0, CHUNK)[None, None, None, :]
    return chunk + tl.arange(0, WARPS)[:, None, None, None] * 0


@triton.jit
def load_tiles(
    weight, rows, row_mask, stride, K: tl.constexpr, WARPS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """Load columns ``0 .. K`` of a weight's ``rows`` ``[WARPS, ROWS]``: a tuple of tiles, one per segment."""
    # K, stride and the tiles' size count weights; ``weight`` points to them, or to words of four.
    PACK: tl.constexpr = WORD if weight.dtype.element_ty == tl.int32 else 1
    SEGMENT: tl.constexpr = CHUNKS * CHUNK // PACK
    WIDTH: tl.constexpr = K // PACK
    columns = tile_columns(WARPS, CHUNKS // PACK, CHUNK)
    pointers = weight + rows[:, :, None, None].to(tl.int64) * (stride // PACK) + columns
    tiles = ()
    for start in tl.static_range(0, WIDTH, SEGMENT):
        mask = row_mask[:, :, None, None]
        if start + SEGMENT > WIDTH:
            mask = mask & (start + columns < WIDTH)
        tile = tl.load(pointers + start, mask=mask, other=0, eviction_policy="evict_first")
        if PACK > 1:
            tile = interleave(tile, WARPS, rows.shape[1], CHUNKS, CHUNK)
        tiles = tiles + (tile,)
    return tiles


@triton.jit
def load_scales(scales, rows, row_mask):
    """Load the scales of some rows, ones without scales."""
    if scales is None:
        row_scales = tl.full(rows.shape, 1.0, tl.float32)
    else:
        row_scales = tl.load(scales + rows, mask=row_mask, other=0.0).to(tl.float32)
    return row_scales


@triton.jit
def add_products(tile, values):
    """Multiply a tile with a segment, summed per thread: ``[WARPS, ROWS, CHUNK]``, with words ``[.., CHUNK / 4]``."""
    if tile.dtype == tl.int32:
        first, second, third, fourth = unpack(tile)
        quads = tl.reshape(values, (values.shape[0], 1, tile.shape[2], tile.shape[3], 2, 2))
        even, odd = tl.split(quads)
        one, three = tl.split(even)
        two, four = tl.split(odd)
        products = first * one + second * two + third * three + fourth * four
        sums = tl.sum(products, axis=2) * (1.0 / UNPACKED)
    else:
        sums = tl.sum(tile.to(tl.float32) * values, axis=2)
    return sums


@triton.jit
def load_row(x, partials, source, row, columns, mask, WIDTH: tl.constexpr, M, SPLIT_K: tl.constexpr):
    """Load columns of row ``source`` of x plus row ``row`` of each of the SPLIT_K partials, float32."""
    values = tl.load(x + source * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    for split in tl.static_range(SPLIT_K):
        at = split * M + row
        values += tl.load(partials + at * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    return values


@triton.jit
def share(values, order, CHUNKS: tl.constexpr, CHUNK: tl.constexpr):
    """Share values that each thread holds a part of with all threads, via shared memory: ``[1, 1, CHUNKS, CHUNK]``."""
    # The compiler chooses a gather's layout by its reader. A plain reshape would make it move the weights instead.
    return tl.reshape(tl.gather(values, order, axis=0), (1, 1, CHUNKS, CHUNK))


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit(do_not_specialize=["token_stride"])
def gemv(
    x, hidden, tokens, token_stride, partials, gain, eps, weight, scales, bias, residual, out, input_copy,
    normed, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr, SPLIT_K: tl.constexpr, GATED: tl.constexpr,
    WARPS: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """``out = W norm(x)`` for M = 1 or 2 rows; each program computes WARPS x ROWS of the N outputs of every row.

    Args (None if not used):
        x: ``[M, K]``, or with ``tokens`` a table of input rows ``tokens[i * token_stride]``.
        hidden: ``[1, K]``, the first of two rows; x holds the second.
        partials: ``[SPLIT_K, M, K]``, added to x; with a residual, ``[SPLIT_K, M, N]``, added to that.
        gain: RMSNorm's weight ``[K]``.
        weight: ``[N, K]``, INT8 as words ``[N, K / 4]``; GATED: 2 N rows, gates first, ``out = silu(gate) * up``.
        scales: of INT8 weights, ``[N]`` or ``[2 N]``; bias: ``[N]``.
        residual: ``[M, N]``, added to the result; out: ``[M, N]``.
        input_copy, normed: ``[M, K]``, where the first program stores the rows before and after the norm.
    """
    launch_dependents(PDL)
    SEGMENT: tl.constexpr = CHUNKS * CHUNK
    # With partials to sum, each thread loads some columns once and shares them; else every warp loads all columns.
    SHARED: tl.constexpr = SPLIT_K > 0 and residual is None
    PACK: tl.constexpr = WORD if weight.dtype.element_ty == tl.int32 else 1
    first = tl.program_id(0) * WARPS * ROWS
    rows = first + tl.arange(0, WARPS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
    row_mask = rows < N
    # Before the wait: all of the program's weights, scales and gains, which no kernel writes.
    tiles = load_tiles(weight, rows, row_mask, K, K, WARPS, CHUNKS, CHUNK)
    row_scales = load_scales(scales, rows, row_mask)
    if GATED:
        up_tiles = load_tiles(weight, rows + N, row_mask, K, K, WARPS, CHUNKS, CHUNK)
        up_scales = load_scales(scales, rows + N, row_mask)
    order = order_columns(tl.arange(0, SEGMENT), CHUNK, PACK)
    index = tl.arange(0, SEGMENT) if SHARED else tile_columns(WARPS, CHUNKS, CHUNK)
    columns = index if SHARED else order_columns(index, CHUNK, PACK)
    gains = ()
    if gain is not None:
        for start in tl.static_range(0, K, SEGMENT):
            gains = gains + (tl.load(gain + start + columns, mask=start + columns < K, other=0.0),)
    wait_for_inputs(PDL)
    for row in tl.static_range(M):
        if hidden is not None and row == 0:
            table, source = hidden, 0
        elif hidden is not None:
            table, source = x, tl.load(tokens)
        elif tokens is not None:
            table, source = x, tl.load(tokens + row * token_stride)
        else:
            table, source = x, row
        sums = tl.zeros((WARPS, ROWS, CHUNK // PACK), tl.float32)
        up_sums = tl.zeros((WARPS, ROWS, CHUNK // PACK), tl.float32)
        squares = 0.0
        for start in tl.static_range(0, K, SEGMENT):
            column, inside = start + columns, start + columns < K
            values = load_row(table, partials, source, row, column, inside, K, M, SPLIT_K if SHARED else 0)
            if input_copy is not None and tl.program_id(0) == 0:
                tl.store(input_copy + row * K + column, values, mask=inside)
            if gain is not None:
                # If every warp has the complete row, each computes the sum itself, without a barrier.
                squares += tl.sum(values * values, axis=0) if SHARED else _sum_segment(values * values)
                values *= gains[start // SEGMENT].to(tl.float32)
            if SHARED:
                values = share(values, order, CHUNKS, CHUNK)
            sums += add_products(tiles[start // SEGMENT], values)
            if GATED:
                up_sums += add_products(up_tiles[start // SEGMENT], values)
        result = tl.sum(sums, axis=2) * row_scales
        if gain is not None:
            scale = tl.rsqrt(squares / K + eps)
            result *= scale
        if normed is not None and tl.program_id(0) == 0:
            # The scale is a scalar when SHARED, else a column vector per warp.
            wide = scale if SHARED else scale[:, :, None, None]
            for start in tl.static_range(0, K, SEGMENT):
                column, inside = start + columns, start + columns < K
                again = load_row(table, partials, source, row, column, inside, K, M, SPLIT_K if SHARED else 0)
                again *= gains[start // SEGMENT].to(tl.float32) * wide
                tl.store(normed + row * K + column, again.to(normed.dtype.element_ty), mask=inside)
        if GATED:
            up = tl.sum(up_sums, axis=2) * up_scales
            result = silu(result) * (up * scale)
        if bias is not None:
            result += tl.load(bias + rows, mask=row_mask, other=0.0).to(tl.float32)
        if residual is not None:
            result += load_row(residual, partials, row, row, rows, row_mask, N, M, SPLIT_K)
        tl.store(out + row * N + rows, result.to(out.dtype.element_ty), mask=row_mask)


@triton.jit
def _sum_segment(values):
    return tl.sum(tl.sum(values, axis=2), axis=2)
