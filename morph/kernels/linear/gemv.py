"""Products of one or two states with a weight matrix, and what stands before and after them in a decoder layer.

Such a product is bound by reading the weights: a program reads its share of them into registers before it waits for
the kernel that makes its input (see ``wait.py``), so that memory stays busy while the chain of kernels goes on.

Before it: RMSNorm, the sum of the last product's parts, or a look-up of embeddings. After it: SwiGLU, a bias, or the
residual. RMSNorm's scale is applied behind the product, so that its sum runs beside it. All sums are float32.

A warp owns whole rows: a tile is ``[WARPS, ROWS, CHUNKS, CHUNK]`` with CHUNK what one warp reads at once (512 bytes),
so that sums stay in a thread but for one butterfly over the lanes at the end.

INT8 weights are read as words of four, so a lane reads sixteen columns at once, more than it can of a state. So the
state's columns are put in an order in which it reads four at once and all that meet are its own: ``order_columns``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .. import plan
from ..pdl import launch_dependents, wait_for_inputs

WORD = tl.constexpr(plan.WORD)
UNPACKED = tl.constexpr(2.0**-23)  # 2^149 times it is still a float


@triton.jit
def unpack(words):
    """The INT8 numbers of words times UNPACKED, float32, the lowest byte first: four tensors.

    A byte that stands alone in a word is a float already, far below the normal ones: 2^-149 times what the word is.
    One multiplication and addition, exact and at full speed, makes it a usual one, and takes off the 128 by which it
    was moved up before, to have no sign. An instruction that converts a byte is many times slower.
    """
    words = words ^ -0x7F7F7F80  # the highest bit of each byte: 128 more
    first = _from_tiny(words & 0xFF, 0)
    second = _from_tiny(words & 0xFF00, 8)
    third = _from_tiny(words & 0xFF0000, 16)  # with the exponent's last bit, below which steps are the same
    fourth = _from_tiny((words >> 24) & 0xFF, 0)
    return first, second, third, fourth


@triton.jit
def _from_tiny(bits, PLACE: tl.constexpr):
    """Less 128 the byte at bit PLACE of words without other bits, times UNPACKED."""
    return bits.to(tl.float32, bitcast=True) * (UNPACKED * 2.0 ** (149 - PLACE)) - UNPACKED * 128.0


@triton.jit
def order_columns(places, CHUNK: tl.constexpr, PACK: tl.constexpr):
    """Which column of a segment stands at a place of the state's tile ``[CHUNKS, CHUNK]``, places counted by rows.

    Of words, a chunk is CHUNK of them in memory, four side by side for a lane: the first of each lane's go with the
    tile's first row, the second ones with its second. Full weights go with the columns as they are.
    """
    if PACK == 1:
        return places
    row, place = places // CHUNK, places % CHUNK
    word = (row // WORD * CHUNK) + place // WORD * WORD + row % WORD
    return word * WORD + place % WORD


@triton.jit
def interleave(words, WARPS: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr):
    """Words as they are in memory, ``[WARPS, ROWS, CHUNKS / 4, CHUNK]``, as ``order_columns`` says.

    ``[WARPS, ROWS, CHUNKS, CHUNK / 4]``; no word changes its thread.
    """
    words = tl.reshape(words, (WARPS, ROWS, CHUNKS // WORD, CHUNK // WORD, WORD))
    return tl.reshape(tl.trans(words, (0, 1, 2, 4, 3)), (WARPS, ROWS, CHUNKS, CHUNK // WORD))


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
    """Columns ``0 .. K`` of a weight's ``rows`` ``[WARPS, ROWS]``: a tuple of tiles, one a segment of columns.

    K, stride and the tiles' size count weights; ``weight`` points to them, or to words of four.
    """
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
        tile = tl.load(pointers + start, mask=mask, other=0, eviction_policy=EVICT)
        if PACK > 1:
            tile = interleave(tile, WARPS, rows.shape[1], CHUNKS, CHUNK)
        tiles = tiles + (tile,)
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
    """A tile's products with a segment, added up as far as no thread needs another's: ``[WARPS, ROWS, CHUNK]``.

    Of words ``[WARPS, ROWS, CHUNK / 4]``.
    """
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

    ``flat`` is the order in which they are to stand. A gather, because the compiler chooses its layout by who reads it;
    a plain reshape would move the weights.
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
        weight: ``[N, K]``, INT8 as words ``[N, K / 4]``; when GATED of 2 N rows, gates before ups, and
            ``out = silu(gate) up``.
        scales: of INT8 weights, ``[N]`` or ``[2 N]``.
        bias: ``[N]``.
        residual: ``[STATES, N]``, added to the result.
        out: ``[STATES, N]``.
        kept, normed: ``[STATES, K]``, where the first program leaves the states as they are and normed.
    """
    launch_dependents(PDL)
    SEGMENT: tl.constexpr = CHUNKS * CHUNK
    SHARED: tl.constexpr = PARTS > 0 and residual is None
    PACK: tl.constexpr = WORD if weight.dtype.element_ty == tl.int32 else 1
    first = tl.program_id(0) * WARPS * ROWS
    rows = first + tl.arange(0, WARPS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
    row_mask = rows < N
    tiles = load_tiles(weight, rows, row_mask, K, K, WARPS, CHUNKS, CHUNK, EVICT)
    row_scales = load_scales(scales, rows, row_mask)
    if GATED:
        up_tiles = load_tiles(weight, rows + N, row_mask, K, K, WARPS, CHUNKS, CHUNK, EVICT)
        up_scales = load_scales(scales, rows + N, row_mask)
    flat = order_columns(tl.arange(0, SEGMENT), CHUNK, PACK)
    places = tl.arange(0, SEGMENT) if SHARED else tile_columns(WARPS, CHUNKS, CHUNK)
    columns = places if SHARED else order_columns(places, CHUNK, PACK)
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
        sums = tl.zeros((WARPS, ROWS, CHUNK // PACK), tl.float32)
        up_sums = tl.zeros((WARPS, ROWS, CHUNK // PACK), tl.float32)
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
