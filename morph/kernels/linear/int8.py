"""INT8 weights in GEMV kernels: words of four numbers, unpacked exactly, and the order of columns they imply.

A lane that reads a word per column chunk has sixteen columns at once, more than it can load of the input row. The
row's columns are therefore permuted: a lane loads four at once, which meet its own weights (``order_columns``).
"""

from __future__ import annotations

import triton
import triton.language as tl

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
