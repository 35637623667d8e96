"""SnakeBeta in one pass over memory, and as a function for other kernels' epilogues.

``x + sin(e^alpha x)^2 / (e^beta + 1e-9)`` (upstream's ``SnakeBeta``), float32 inside. Triton's own sine has a slow
path for huge arguments that costs registers and branches. A squared sine has period pi, so full periods are
subtracted and a polynomial evaluated: the error is below 3e-7 for arguments below a few hundred.
"""

# mypy: disable-error-code="no-untyped-def"
import torch
import triton
import triton.language as tl

from ...codec.weights import SnakeWeights
from ..precompile import Launch, run

ELEMENTS = 4096  # per program: 32 per thread
COLUMNS = 256


@triton.jit
def sine_squared(turns):
    """Return ``sin(pi turns)^2``: Chebyshev interpolation of degree 5 in the square of the fractional turn."""
    part = turns - tl.floor(turns + 0.5)
    square = part * part
    value = -3.3561086654663086
    value = value * square + 13.049796104431152
    value = value * square - 30.10140037536621
    value = value * square + 42.72719192504883
    value = value * square - 32.469669342041016
    value = value * square + 9.869604110717773
    return value * square


@triton.jit
def snake(x, turns, scale, bias):
    """Return SnakeBeta of ``x + bias``, all float32."""
    x += bias
    return x + scale * sine_squared(x * turns)


@triton.jit(do_not_specialize=("keep_ptr",))  # a slab's mask may start at any address
def _activate(
    x_ptr, turns_ptr, scale_ptr, bias_ptr, keep_ptr, out_ptr, length, PER_FRAME: tl.constexpr, CHANNELS:
    tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    real = columns < CHANNELS
    turns = tl.load(turns_ptr + columns, mask=real, other=0.0)
    scale = tl.load(scale_ptr + columns, mask=real, other=0.0)
    bias = tl.load(bias_ptr + columns, mask=real, other=0.0)
    inside = rows < length
    keep = tl.load(keep_ptr + rows // PER_FRAME, mask=inside, other=0) != 0
    offsets = rows[:, None] * CHANNELS + columns[None, :]
    both = inside[:, None] & real[None, :]
    x = tl.load(x_ptr + offsets, mask=both, other=0.0).to(tl.float32)
    y = tl.where(keep[:, None], snake(x, turns[None, :], scale[None, :], bias[None, :]), 0.0)
    tl.store(out_ptr + offsets, y.to(out_ptr.dtype.element_ty), mask=both)


def activate(
    x: torch.Tensor, snake: SnakeWeights, keep: torch.Tensor, out: torch.Tensor | None = None, launch: Launch = run
) -> torch.Tensor:
    """Return SnakeBeta of rows ``[T, C]``, zero in frames whose ``keep`` is false; ``out`` may be ``x``."""
    length, channels = x.shape
    out = torch.empty_like(x) if out is None else out
    if not (x.is_contiguous() and out.is_contiguous()):
        raise ValueError(
            f"rows with strides {x.stride()} and {out.stride()}: channels must be innermost, call contiguous()"
        )
    columns = min(COLUMNS, triton.next_power_of_2(channels))
    rows = ELEMENTS // columns
    launch(
        _activate, (triton.cdiv(length, rows), triton.cdiv(channels, columns)), x, snake.turns, snake.scale,
        snake.bias, keep.view(torch.uint8), out, length, PER_FRAME=length // len(keep), CHANNELS=channels,
        ROWS=rows, COLUMNS=columns,
    )  # fmt: skip
    return out
