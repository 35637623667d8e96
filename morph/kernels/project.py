"""Products of one or two states with a weight matrix, and what stands before and after them in a decoder layer.

Such a product is bound by reading the weights: a program reads its share of them into registers before it waits for
the kernel that makes its input (see ``wait.py``), so that memory stays busy while the chain of kernels goes on.

Before it: RMSNorm, the sum of the last product's parts, or a look-up of embeddings. After it: SwiGLU, a bias, or the
residual. RMSNorm's scale is applied behind the product, so that its sum runs beside it. All sums are float32.

A warp owns whole rows: a tile is ``[WARPS, ROWS, CHUNKS, CHUNK]`` with CHUNK what one warp reads at once (512 bytes),
so that sums stay in a thread but for one butterfly over the lanes at the end.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .wait import launch_dependents, wait_for_inputs


@triton.jit
def tile_columns(WARPS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr):
    """A segment's columns as ``[WARPS, 1, CHUNKS, CHUNK]``: every warp has all of them."""
    chunk = tl.arange(0, CHUNKS)[None, None, :, None] * CHUNK + tl.arange(0, CHUNK)[None, None, None, :]
    return chunk + tl.arange(0, WARPS)[:, None, None, None] * 0


@triton.jit
def load_tiles(
    weight,
    rows,
    row_mask,
    stride,
    K: tl.constexpr,
    WARPS: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    EVICT: tl.constexpr,
):
    """Columns ``0 .. K`` of a weight's ``rows`` ``[WARPS, ROWS]``: a tuple of tiles, one a segment of columns."""
    columns = tile_columns(WARPS, CHUNKS, CHUNK)
    pointers = weight + rows[:, :, None, None].to(tl.int64) * stride + columns
    tiles = ()
    for start in tl.static_range(0, K, CHUNKS * CHUNK):
        mask = row_mask[:, :, None, None]
        if start + CHUNKS * CHUNK > K:
            mask = mask & (start + columns < K)
        tiles = tiles + (tl.load(pointers + start, mask=mask, other=0.0, eviction_policy=EVICT),)
    return tiles


@triton.jit
def load_scales(scales, rows, row_mask):
    """The scales of some rows of INT8 weights; ones of full weights, which have none."""
    if scales is None:
        row_scales = tl.full(rows.shape, 1.0, tl.float32)
    else:
        row_scales = tl.load(scales + rows, mask=row_mask, other=0.0).to(tl.float32)
    return row_scales


@triton.jit
def add_products(tile, values):
    """A tile's products with a segment, added up as far as no thread needs another's: ``[WARPS, ROWS, CHUNK]``."""
    return tl.sum(tile.to(tl.float32) * values, axis=2)


@triton.jit
def load_state(x, partials, source, state, columns, mask, WIDTH: tl.constexpr, STATES, PARTS: tl.constexpr):
    """Columns of a state, float32: row ``source`` of x, plus row ``state`` of each part of the last product."""
    values = tl.load(x + source * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(PARTS):
        row = part * STATES + state
        values += tl.load(partials + row * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    return values


@triton.jit
def share(values, flat, CHUNKS: tl.constexpr, CHUNK: tl.constexpr):
    """Give all threads what each has made a part of, through shared memory: ``[n]`` to ``[1, 1, CHUNKS, CHUNK]``.

    A gather, because the compiler chooses its layout by who reads it; a plain reshape would move the weights.
    """
    return tl.reshape(tl.gather(values, flat, axis=0), (1, 1, CHUNKS, CHUNK))


@triton.jit
def silu(x):
    """``x sigmoid(x)``, float32."""
    return x / (1.0 + tl.exp(-x))


@triton.jit(do_not_specialize=["token_stride"])
def project_few(
    x,
    before,
    tokens,
    token_stride,
    partials,
    gain,
    eps,
    weight,
    scales,
    bias,
    residual,
    out,
    kept,
    normed,
    STATES: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    PARTS: tl.constexpr,
    GATED: tl.constexpr,
    WARPS: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    EVICT: tl.constexpr,
    PDL: tl.constexpr,
):
    """``out = W norm(state)`` for one or two states; a program makes WARPS x ROWS of the N outputs.

    Args (None for what does not take part):
        x: ``[STATES, K]``, or with ``tokens`` a table whose rows ``tokens[i * token_stride]`` are the states.
        before: ``[1, K]``, the first of two states; x gives the second.
        partials: ``[PARTS, STATES, K]``, added to x; where there is a residual, ``[PARTS, STATES, N]`` added to it.
        gain: RMSNorm's weight ``[K]``.
        weight: ``[N, K]``; when GATED ``[2 N, K]``, gates before ups, and ``out = silu(gate) up``.
        scales: of INT8 weights, ``[N]`` or ``[2 N]``.
        bias: ``[N]``.
        residual: ``[STATES, N]``, added to the result.
        out: ``[STATES, N]``.
        kept, normed: ``[STATES, K]``, where the first program leaves the states as they are and normed.
    """
    launch_dependents(PDL)
    SEGMENT: tl.constexpr = CHUNKS * CHUNK
    SHARED: tl.constexpr = PARTS > 0 and residual is None
    first = tl.program_id(0) * WARPS * ROWS
    rows = first + tl.arange(0, WARPS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
    row_mask = rows < N
    tiles = load_tiles(weight, rows, row_mask, K, K, WARPS, CHUNKS, CHUNK, EVICT)
    row_scales = load_scales(scales, rows, row_mask)
    if GATED:
        up_tiles = load_tiles(weight, rows + N, row_mask, K, K, WARPS, CHUNKS, CHUNK, EVICT)
        up_scales = load_scales(scales, rows + N, row_mask)
    flat = tl.arange(0, SEGMENT)
    columns = flat if SHARED else tile_columns(WARPS, CHUNKS, CHUNK)
    gains = ()
    if gain is not None:
        for start in tl.static_range(0, K, SEGMENT):
            gains = gains + (tl.load(gain + start + columns, mask=start + columns < K, other=0.0),)
    wait_for_inputs(PDL)
    for state in tl.static_range(STATES):
        if before is not None and state == 0:
            rows_of, source = before, 0
        elif before is not None:
            rows_of, source = x, tl.load(tokens)
        elif tokens is not None:
            rows_of, source = x, tl.load(tokens + state * token_stride)
        else:
            rows_of, source = x, state
        sums = tl.zeros((WARPS, ROWS, CHUNK), tl.float32)
        up_sums = tl.zeros((WARPS, ROWS, CHUNK), tl.float32)
        squares = 0.0
        for start in tl.static_range(0, K, SEGMENT):
            place, inside = start + columns, start + columns < K
            values = load_state(
                rows_of, partials, source, state, place, inside, K, STATES, PARTS if SHARED else 0
            )
            if kept is not None and tl.program_id(0) == 0:
                tl.store(kept + state * K + place, values, mask=inside)
            if gain is not None:
                # Where every warp has the whole state, each sums it up for itself.
                squares += tl.sum(values * values, axis=0) if SHARED else _sum_segment(values * values)
                values *= gains[start // SEGMENT].to(tl.float32)
            if SHARED:
                values = share(values, flat, CHUNKS, CHUNK)
            sums += add_products(tiles[start // SEGMENT], values)
            if GATED:
                up_sums += add_products(up_tiles[start // SEGMENT], values)
        result = tl.sum(sums, axis=2) * row_scales
        if gain is not None:
            scale = tl.rsqrt(squares / K + eps)
            result *= scale
        if normed is not None and tl.program_id(0) == 0:
            # A column vector per warp in the one case, a scalar in the other.
            wide = scale if SHARED else scale[:, :, None, None]
            for start in tl.static_range(0, K, SEGMENT):
                place, inside = start + columns, start + columns < K
                again = load_state(
                    rows_of, partials, source, state, place, inside, K, STATES, PARTS if SHARED else 0
                )
                again *= gains[start // SEGMENT].to(tl.float32) * wide
                tl.store(normed + state * K + place, again.to(normed.dtype.element_ty), mask=inside)
        if GATED:
            up = tl.sum(up_sums, axis=2) * up_scales
            result = silu(result) * (up * scale)
        if bias is not None:
            result += tl.load(bias + rows, mask=row_mask, other=0.0).to(tl.float32)
        if residual is not None:
            result += load_state(residual, partials, state, state, rows, row_mask, N, STATES, PARTS)
        tl.store(out + state * N + rows, result.to(out.dtype.element_ty), mask=row_mask)


@triton.jit
def _sum_segment(values):
    """The sum of a segment that every warp has: ``[WARPS, 1]``."""
    return tl.sum(tl.sum(values, axis=2), axis=2)
