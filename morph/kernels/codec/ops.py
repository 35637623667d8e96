"""The codec's operations on Triton kernels; the rest runs on torch's."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...codec.forward import Norm, Rings, TorchOps, causal_conv
from ...codec.weights import Block, Snake, Unit
from ...model.layers import Angles
from ..precompile import Launch, compile_in_parallel, compile_only, run
from ..rows import add_norm, gate
from .conv import ConvTile, last_conv, residual_unit, split_channels
from .ring import turn_into
from .snake import activate

# By channels; the fastest of lab/benchmarks/codec_tiles.py on an H200. Wider units run on cuDNN: the tile of all
# channels that a program holds would not fit in registers.
TILES = {
    96: ConvTile(rows=64, step=32, warps=4, stages=4),
    192: ConvTile(rows=64, step=64, warps=4, stages=3),
}


class TritonOps(TorchOps):
    """SnakeBeta and what is between the transformer's GEMMs fused, and in 16 bits residual units as well.

    Args:
        units: run the units of the channels in ``tiles`` as one kernel each.
        tiles: by channels.
        launch: what launches kernels, or ``compile_only``.
    """

    def __init__(self, units: bool = True, tiles: dict[int, ConvTile] | None = None, launch: Launch = run):
        self.units = units
        self.tiles = TILES if tiles is None else tiles
        self.launch = launch

    def compile_ahead(self, row: Callable[[TorchOps], None]) -> None:
        """As ``TorchOps.compile_ahead``."""
        ops = TritonOps(self.units, self.tiles, compile_only)
        compile_in_parallel(lambda: row(ops))

    def add_norm(
        self, states: torch.Tensor, added: torch.Tensor, scale: torch.Tensor, norm_after: Norm
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As ``TorchOps.add_norm``."""
        return add_norm(states, added, *norm_after, scale, self.launch)

    def gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        """As ``TorchOps.gate``."""
        return gate(gate_up, self.launch)

    def turn_into(self, qkv: torch.Tensor, angles: Angles, rings: Rings) -> torch.Tensor:
        """As ``TorchOps.turn_into``."""
        return turn_into(qkv, angles, rings, self.launch)

    def activate(
        self, x: torch.Tensor, snake: Snake, keep: torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As ``TorchOps.activate``."""
        return activate(x, snake, keep, out, self.launch)

    def residuals(self, x: torch.Tensor, block: Block, keep: torch.Tensor) -> torch.Tensor:
        """As ``TorchOps.residuals``; each unit activates what the next one reads."""
        following = [unit.first for unit in block.units[1:]] + [block.after]
        active = self.activate(x, block.units[0].first, keep)
        for index, (unit, after) in enumerate(zip(block.units, following, strict=True)):
            if self._fuses(x):
                last = index == len(block.units) - 1
                tile = self.tiles[x.shape[1]]
                active = residual_unit(x, active, unit, after, keep, tile, last, self.launch)
            else:
                x.addmm_(self._convolve(active, unit, keep), unit.point.t())
                active = self.activate(x, after, keep, active)
        return active

    def finish(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """As ``TorchOps.finish``; float32 from the products on."""
        return last_conv(x, weight, bias, self.launch)

    def _fuses(self, x: torch.Tensor) -> bool:
        """Return whether units of this width run as one kernel each."""
        channels = x.shape[1]
        fits = channels in self.tiles and split_channels(channels) is not None
        return self.units and fits and x.element_size() == 2

    def _convolve(self, active: torch.Tensor, unit: Unit, keep: torch.Tensor) -> torch.Tensor:
        """Return the unit's convolution (cuDNN) and its second SnakeBeta."""
        hidden = causal_conv(active, unit.conv, unit.dilation)
        return self.activate(hidden, unit.second, keep, hidden)
