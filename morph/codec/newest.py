"""The convolutions for the newest frames of many lines; their older frames are only context.

Samples depend on ten past frames, but the last blocks, which are most of the work, need one. So each block runs over
only the frames that it and the later layers depend on.
"""

from __future__ import annotations

import torch

from .forward import TorchOps, enter_blocks, run_block, run_last, zero_gaps
from .weights import Block, CodecWeights

# New frames of all lines of a slab. The blocks after the first one run slab by slab: their activations take 1.4 MB per
# frame in bf16. 64 lines took 14.9 ms in slabs of 48 frames, 14.1 in slabs of 192 and 14.0 in one, on an H100.
SLAB_FRAMES = 192


def convolve_newest(
    weights: CodecWeights, x: torch.Tensor, keep: torch.Tensor, ops: TorchOps, new: int
) -> torch.Tensor:
    """Run the convolutions for each line's last ``new`` frames: float32 ``[B, new * 1920]``.

    Lines are side by side in one row. What a line's first positions read of the line before it reaches none of its new
    frames. ``x`` are the transformer's outputs ``[B, context + new, latent]``, with ``weights.context`` past frames or
    more; ``keep`` is bool ``[B, context + new]``, false if a line has no frame there.
    """
    row = zero_gaps(x.flatten(0, 1), keep.flatten())
    x = enter_blocks(weights, row, keep.flatten(), ops).view(*keep.shape, -1)
    (first, reach), *later = zip(weights.blocks[:-1], weights.reaches[:-1], strict=True)
    x, keep = _run_newest(first, x, keep, ops, reach + new)
    size, waves = max(1, SLAB_FRAMES // new), []
    for part, kept in zip(x.split(size), keep.split(size), strict=True):
        for block, reach in later:
            part, kept = _run_newest(block, part, kept, ops, reach + new)
        part, kept = _newest(part, kept, weights.reaches[-1] + new)
        wave = run_last(weights, part.reshape(-1, weights.blocks[-1].now.shape[1]), kept.flatten(), ops)
        waves.append(wave.view(len(part), -1)[:, -new * weights.samples_per_frame :])
    return torch.cat(waves)


def _run_newest(
    block: Block, x: torch.Tensor, keep: torch.Tensor, ops: TorchOps, frames: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a block over each line's last ``frames`` frames of ``[B, F, C]``; return them and their ``keep``."""
    x, keep = _newest(x, keep, frames)
    row = run_block(block, x.reshape(-1, block.now.shape[1]), keep.flatten(), ops)
    return row.view(*keep.shape, -1), keep


def _newest(x: torch.Tensor, keep: torch.Tensor, frames: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:, -frames:], keep[:, -frames:].contiguous()
