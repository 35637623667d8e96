"""Tiles of the codec's kernels, and the library's convolutions beside them: microseconds and TFLOP/s a layer.

    python -m lab.benchmarks.codec_tiles            # on the GPU, a row of 1152 frames; 3 minutes, mostly compiling
    python -m lab.benchmarks.codec_tiles --channels 96,192

For choosing ``TILES`` in ``morph/kernels/codec.py``: nothing is kept. A residual unit is
SnakeBeta, a convolution of 7 taps, SnakeBeta, one of 1 tap, and the sum; its dilation here is 3.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from itertools import product

import torch
from qwen3_tts_morph.morph.codec.forward import causal_conv
from qwen3_tts_morph.morph.codec.weights import Snake, Unit
from qwen3_tts_morph.morph.kernels.codec.conv import Tile, conv_snake, last_conv, residual_unit
from qwen3_tts_morph.morph.kernels.codec.snake import activate

PER_FRAME = {768: 32, 384: 160, 192: 640, 96: 1920}  # positions of a frame by channels, as published
TAPS = 7
RUNS = 20


def unit_tiles(channels: int) -> Iterator[Tile]:
    """Candidates for a whole unit in one kernel."""
    steps = (32,) if channels == 96 else (32, 64)
    for rows, step, warps, stages in product((64, 128), steps, (4, 8), (2, 3, 4)):
        if rows * channels // (32 * warps) in (48, 96, 192):  # accumulators a thread
            yield Tile(rows, channels, step, warps, stages)


def conv_tiles() -> Iterator[Tile]:
    """Candidates for a wide convolution."""
    for (rows, columns), warps, stages in product(((128, 128), (128, 256), (256, 128)), (4, 8), (3, 4)):
        if rows * columns // (32 * warps) in (64, 128):
            yield Tile(rows, columns, 64, warps, stages)


def random_unit(channels: int) -> Unit:
    def snake() -> Snake:
        turns, scale, bias = (0.1 * torch.randn(3, channels, device="cuda")).unbind()
        return Snake(turns.exp() / torch.pi, scale.exp(), bias)

    def weight(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, device="cuda") / (TAPS * channels) ** 0.5).bfloat16()

    return Unit(snake(), weight(channels, TAPS, channels), 3, snake(), weight(channels, channels))


def microseconds(function: Callable[[], object]) -> float:
    """The median time of a call on the device, each behind a write that empties the second-level cache."""
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
    """Print a line; a tile that does not fit the device says why."""
    try:
        time = microseconds(function)
    except Exception as error:  # Triton's own types, by version
        print(f"{name:60} {type(error).__name__}: {str(error).splitlines()[0][:80]}", flush=True)
        return
    print(f"{name:60} {time:9.1f} us {2e-6 * products / time:7.0f} TFLOP/s", flush=True)


@torch.inference_mode()
def measure(channels: int, frames: int) -> None:
    """All ways of a residual unit's parts at a width."""
    length = frames * PER_FRAME[channels]
    unit, keep = random_unit(channels), torch.ones(frames, dtype=torch.bool, device="cuda")
    x, active = torch.randn(2, length, channels, device="cuda").bfloat16().unbind()
    conv, point = length * TAPS * channels**2, length * channels**2
    after = unit.first

    def library() -> None:
        hidden = causal_conv(active, unit.conv, unit.dilation)
        x.addmm_(activate(hidden, unit.second, keep, hidden), unit.point.t())
        activate(x, after, keep, active)

    def searched() -> None:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            causal_conv(active, unit.conv, unit.dilation)

    name = f"{channels}, {length} positions"
    report(f"unit, {name}: cuDNN, cuBLAS, SnakeBeta twice", library, conv + point)
    report(f"conv, {name}: cuDNN", lambda: causal_conv(active, unit.conv, unit.dilation), conv)
    report(f"conv, {name}: cuDNN after a search", searched, conv)
    report(f"point, {name}: cuBLAS", lambda: x.addmm_(active, unit.point.t()), point)
    report(f"snake, {name}", lambda: activate(x, after, keep, active), 0)
    if channels == 96:
        weight, bias = torch.randn(TAPS, channels, device="cuda"), torch.zeros(1, device="cuda")
        report(f"last, {name}", lambda: last_conv(active, weight, bias), TAPS * length * channels)
    if channels <= 192:
        for tile in unit_tiles(channels):
            report(
                f"unit, {name}: {tile.rows}x{tile.step}, {tile.warps} warps, {tile.stages} stages",
                lambda tile=tile: residual_unit(x, active, unit, after, keep, tile, False),
                conv + point,
            )
        return
    for tile in conv_tiles():
        report(
            f"conv, {name}: {tile.rows}x{tile.columns}x{tile.step}, {tile.warps} warps, {tile.stages} stages",
            lambda tile=tile: conv_snake(active, unit, tile),
            conv,
        )


def main() -> None:
    """Read the command line and print the lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--channels", default=",".join(map(str, PER_FRAME)))
    parser.add_argument("--frames", type=int, default=1152)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device: tiles are chosen on one")
    for channels in map(int, options.channels.split(",")):
        measure(channels, options.frames)


if __name__ == "__main__":
    main()
