"""The codec's operations in Triton kernels, where they are faster than torch's."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from ...codec.forward import TorchOps, causal_conv
from ...codec.weights import BlockWeights, Pair, SnakeWeights, Unit
from ...model.layers import Angles, KvTarget
from ..plan import is_hopper
from ..precompile import Launch, compile_in_parallel, compile_only, run
from ..rows import RowKernels, rotate
from .conv import MOST_TAPS, ConvTile, convolve, last_conv, residual_unit, split_channels, sum_taps
from .snake import activate

# By channels; the fastest of lab/benchmarks/codec_tiles.py on an H200. A unit's program holds all channels of a tile.
# Those of a wide unit would not fit in registers, so its convolution is a separate kernel.
TILES = {
    96: ConvTile(rows=64, step=32, warps=4, stages=4),
    192: ConvTile(rows=64, step=64, warps=4, stages=3),
    384: ConvTile(rows=128, step=64, warps=8, stages=3, columns=128),
    768: ConvTile(rows=128, step=64, warps=8, stages=4, columns=256),
}
# Of residual units with the tensor copy engine. With fewer positions, larger tiles would leave multiprocessors idle.
TMA_TILES = {
    96: ConvTile(rows=128, step=32, warps=4, stages=3, tma=True),
    192: ConvTile(rows=64, step=64, warps=4, stages=3, tma=True),
}
FEWEST_TMA_ROWS = 1 << 16  # positions
WIDEST_UNIT = 192  # channels
# Programs of a wide convolution. With fewer, in a step of a line or two, cuDNN is faster: it also splits the sum.
FEWEST_TILES = 32
SHARED_BYTES = 99 * 1024  # that a program has on every GPU from capability 8.0 on


@dataclass(eq=False)
class TritonOps(RowKernels, TorchOps):
    """The codec's operations in Triton: element-wise work fused, and in 16 bits residual units as well."""

    units: bool = True  # unit kernels for the channels in ``tiles`` (of wide units, the convolution)
    tiles: Mapping[int, ConvTile] = field(default_factory=lambda: TILES)
    long_tiles: Mapping[int, ConvTile] = field(default_factory=dict)  # of units of FEWEST_TMA_ROWS positions or more
    launch: Launch = run

    @classmethod
    def of(cls, device: torch.device) -> TritonOps:
        # Before compute capability 8.0, a unit's accumulators do not stay in registers.
        units = torch.cuda.get_device_capability(device) >= (8, 0)
        return cls(units, long_tiles=TMA_TILES if has_tma(device) else {})

    def compile_ahead(self, *rows: Callable[[TorchOps], None]) -> None:
        ops = replace(self, launch=compile_only)
        compile_in_parallel(*(partial(row, ops) for row in rows))

    def rotate_into(self, qkv: torch.Tensor, angles: Angles, rings: KvTarget) -> torch.Tensor:
        return rotate(self.launch, qkv, angles, rings)

    def activate(
        self, x: torch.Tensor, snake: SnakeWeights, keep: torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        return activate(x, snake, keep, out, self.launch)

    def residuals(self, x: torch.Tensor, block: BlockWeights, keep: torch.Tensor) -> torch.Tensor:
        return self._run_units(x, block, keep, None)

    def end(self, x: torch.Tensor, block: BlockWeights, keep: torch.Tensor, finish: Pair) -> torch.Tensor:
        weight, bias = finish
        if len(weight) > MOST_TAPS.value or not self._fuses(x):
            return super().end(x, block, keep, finish)
        return sum_taps(self._run_units(x, block, keep, weight), bias, len(weight), self.launch)

    def _run_units(
        self, x: torch.Tensor, block: BlockWeights, keep: torch.Tensor, taps: torch.Tensor | None
    ) -> torch.Tensor:
        following = [unit.first for unit in block.units[1:]] + [block.after]
        active = self.activate(x, block.units[0].first, keep)
        for index, (unit, after) in enumerate(zip(block.units, following, strict=True)):
            if self._fuses(x):
                last, tile = index == len(block.units) - 1, self.tiles[x.shape[1]]
                if len(x) >= FEWEST_TMA_ROWS:
                    tile = self.long_tiles.get(x.shape[1], tile)
                end = taps if last else None
                active = residual_unit(x, active, unit, after, keep, tile, last, self.launch, end)
            else:
                x.addmm_(self._convolve(active, unit, keep), unit.point.t())
                active = self.activate(x, after, keep, active)
        return active

    def finish(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return last_conv(x, weight, bias, self.launch)

    def _fuses(self, x: torch.Tensor) -> bool:
        channels = x.shape[1]
        return channels <= WIDEST_UNIT and split_channels(channels) is not None and self._has_tile(x)

    def _has_tile(self, x: torch.Tensor) -> bool:
        return self.units and x.shape[1] in self.tiles and x.element_size() == 2

    def _convolve(self, active: torch.Tensor, unit: Unit, keep: torch.Tensor) -> torch.Tensor:
        length, channels = active.shape
        if self._has_tile(active):
            tile = self.tiles[channels]
            programs = length // tile.rows * (channels // tile.columns)
            if programs >= FEWEST_TILES and fits(tile, active.device):
                return convolve(active, unit, keep, tile, self.launch)
        hidden = causal_conv(active, unit.conv, unit.dilation)
        return self.activate(hidden, unit.second, keep, hidden)


def has_tma(device: torch.device) -> bool:
    """Return whether TMA_TILES run on a device: measured at capability 9.0 only, and old Tritons lack TMA."""
    return is_hopper(device) and importlib.util.find_spec("triton.tools.tensor_descriptor") is not None


def fits(tile: ConvTile, device: torch.device) -> bool:
    if tile.shared_bytes <= SHARED_BYTES or device.type != "cuda":
        return True
    return torch.cuda.get_device_capability(device)[0] in (9, 10)  # 227 KB, unlike all others
