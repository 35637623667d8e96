"""The codec's operations on Triton kernels; what is left over runs on torch's."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...codec.forward import TorchOps, causal_conv
from ...codec.weights import Block, Snake, Unit
from ..precompile import Launch, compile_only, compile_side_by_side, run
from .conv import Tile, conv_snake, last_conv, residual_unit, split_channels
from .snake import activate

WIDEST_UNIT = 192  # channels of which one program can hold a tile whole
# By channels; chosen by arithmetic alone so far (see lab/benchmarks/codec_tiles.py). Other widths run on cuDNN.
TILES = {
    96: Tile(rows=128, step=32, warps=4, stages=4),
    192: Tile(rows=128, step=64, warps=8, stages=3),
    384: Tile(rows=128, columns=128, step=64, warps=8, stages=4),
    768: Tile(rows=256, columns=128, step=64, warps=8, stages=3),
}


class TritonOps(TorchOps):
    """SnakeBeta fused; and in 16 bits, where it is asked for, residual units and wide convolutions as well.

    Args:
        units: run the units of up to 192 channels as one kernel each.
        convs: run the wider convolutions on Triton, with SnakeBeta behind them, instead of on cuDNN.
        tiles: by channels, in place of ``TILES``'s.
        launch: what launches kernels, or ``compile_only``.
    """

    def __init__(
        self,
        units: bool = True,
        convs: bool = False,
        tiles: dict[int, Tile] | None = None,
        launch: Launch = run,
    ):
        self.units = units
        self.convs = convs
        self.tiles = {**TILES, **(tiles or {})}
        self.launch = launch

    def compile_ahead(self, row: Callable[[TorchOps], None]) -> None:
        """As ``TorchOps.compile_ahead``."""
        ops = TritonOps(self.units, self.convs, self.tiles, compile_only)
        compile_side_by_side(lambda: row(ops))

    def activate(
        self, x: torch.Tensor, snake: Snake, keep: torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As ``TorchOps.activate``."""
        return activate(x, snake, keep, out, self.launch)

    def residuals(self, x: torch.Tensor, block: Block, keep: torch.Tensor) -> torch.Tensor:
        """As ``TorchOps.residuals``; a unit activates what the next one reads."""
        following = [unit.first for unit in block.units[1:]] + [block.after]
        active = self.activate(x, block.units[0].first, keep)
        for index, (unit, after) in enumerate(zip(block.units, following, strict=True)):
            if self._fits(x):
                last = index == len(block.units) - 1
                tile = self.tiles[x.shape[1]]
                active = residual_unit(x, active, unit, after, keep, tile, last, self.launch)
            else:
                x.addmm_(self._convolve(active, unit, keep), unit.point.t())
                active = self.activate(x, after, keep, active)
        return active

    def finish(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """As ``TorchOps.finish``, in float32 from the products on."""
        return last_conv(x, weight, bias, self.launch)

    def _fits(self, x: torch.Tensor) -> bool:
        """Whether the units of this width run as one kernel each."""
        channels = x.shape[1]
        whole = channels <= WIDEST_UNIT and split_channels(channels) is not None
        return self.units and whole and channels in self.tiles and x.element_size() == 2

    def _convolve(self, active: torch.Tensor, unit: Unit, keep: torch.Tensor) -> torch.Tensor:
        """The unit's convolution and its second SnakeBeta."""
        tile = self.tiles.get(active.shape[1])
        if self.convs and tile is not None and active.element_size() == 2:
            return conv_snake(active, unit, tile, self.launch)
        hidden = causal_conv(active, unit.conv, unit.dilation)
        return self.activate(hidden, unit.second, keep, hidden)
