"""Tiles of the codec's kernels, next to the library's convolutions: microseconds and TFLOP/s per unit.

    python -m lab.benchmarks.codec_tiles            # on the GPU, a row of 1152 frames; 3 minutes, mostly compiling

For choosing ``TILES`` in ``morph/kernels/codec/ops.py``; results are printed, not stored. A residual unit is SnakeBeta,
a convolution of 7 taps, SnakeBeta, a convolution of 1 tap, and the sum; its dilation here is 3. Of wide units only the
first convolution and the SnakeBeta after it are a kernel ("conv").
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import torch
from qwen3_tts_morph.morph.codec.forward import causal_conv
from qwen3_tts_morph.morph.codec.weights import SnakeWeights, Unit
from qwen3_tts_morph.morph.kernels.codec.conv import ConvTile, convolve, residual_unit
from qwen3_tts_morph.morph.kernels.codec.ops import WIDEST_UNIT
from qwen3_tts_morph.morph.kernels.codec.snake import activate

PER_FRAME = {768: 32, 384: 160, 192: 640, 96: 1920}  # positions per frame by channels, in the published model
TAPS = 7
RUNS = 20
SHARED_BYTES = 220_000  # of a program


def unit_tiles(channels: int) -> Iterator[ConvTile]:
    """Yield candidates for a complete unit in one kernel."""
    steps = (32,) if channels == 96 else (32, 64)
    for rows, step, warps, stages in product((64, 128), steps, (4, 8), (2, 3, 4)):
        if rows * channels // (32 * warps) in (48, 96, 192):  # accumulators per thread
            yield ConvTile(rows, step, warps, stages)


def conv_tiles(channels: int) -> Iterator[ConvTile]:
    """Yield candidates for a wide unit's convolution."""
    for rows, columns, warps, stages in product((64, 128, 256), (128, 256), (4, 8), (3, 4)):
        tile, accumulators = ConvTile(rows, 64, warps, stages, columns), rows * columns // (32 * warps)
        if channels % columns == 0 and accumulators in (64, 128) and tile.shared_bytes < SHARED_BYTES:
            yield tile


def random_unit(channels: int) -> Unit:
    """Return a residual unit with random weights and dilation 3."""

    def snake() -> SnakeWeights:
        turns, scale, bias = (0.1 * torch.randn(3, channels, device="cuda")).unbind()
        return SnakeWeights(turns.exp() / torch.pi, scale.exp(), bias)

    def weight(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, device="cuda") / (TAPS * channels) ** 0.5).bfloat16()

    return Unit(snake(), weight(channels, TAPS, channels), 3, snake(), weight(channels, channels))


def microseconds(function: Callable[[], object]) -> float:
    """Return the median time of a call on the device; before each, a large write flushes the L2 cache."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times = []
    for run in range(RUNS + 3):
        flush.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        end.synchronize()
        if run >= 3:
            times.append(1000 * start.elapsed_time(end))
    return statistics.median(times)


def report(name: str, function: Callable[[], object], products: int) -> None:
    """Print a line; for a tile that does not fit the device, the error."""
    try:
        time = microseconds(function)
    except Exception as error:  # Triton's own types, by version
        print(f"{name:60} {type(error).__name__}: {str(error).splitlines()[0][:80]}", flush=True)
        return
    print(f"{name:60} {time:9.1f} us {2e-6 * products / time:7.0f} TFLOP/s", flush=True)


@torch.inference_mode()
def measure(channels: int, frames: int) -> None:
    """Measure a residual unit at a width by the library's operations, and by every tile of the kernel."""
    length = frames * PER_FRAME[channels]
    unit, keep = random_unit(channels), torch.ones(frames, dtype=torch.bool, device="cuda")
    x, active = torch.randn(2, length, channels, device="cuda").bfloat16().unbind()
    conv, point = length * TAPS * channels**2, length * channels**2
    after = unit.first

    def unit_library() -> None:
        x.addmm_(conv_library(), unit.point.t())
        activate(x, after, keep, active)

    def conv_library() -> torch.Tensor:
        hidden = causal_conv(active, unit.conv, unit.dilation)
        return activate(hidden, unit.second, keep, hidden)

    name = f"{channels}, {length} positions"
    if channels > WIDEST_UNIT:
        report(f"conv, {name}: cuDNN, SnakeBeta", conv_library, conv)
        for tile in conv_tiles(channels):
            report(
                f"conv, {name}: {tile.rows}x{tile.columns}, {tile.warps} warps, {tile.stages} stages",
                partial(convolve, active, unit, keep, tile),
                conv,
            )
        return
    report(f"unit, {name}: cuDNN, cuBLAS, SnakeBeta twice", unit_library, conv + point)
    for tile in unit_tiles(channels):
        report(
            f"unit, {name}: {tile.rows}x{tile.step}, {tile.warps} warps, {tile.stages} stages",
            partial(residual_unit, x, active, unit, after, keep, tile, False),
            conv + point,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--channels", default=",".join(map(str, PER_FRAME)))
    parser.add_argument("--frames", type=int, default=1152)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device: run this on the GPU for which tiles are to be chosen")
    for channels in map(int, options.channels.split(",")):
        measure(channels, options.frames)


if __name__ == "__main__":
    main()
