"""The operations of a prefill between its linear layers: norm, RoPE and the cache write in one kernel (``rotate``).

Torch's operations write queries and keys to memory five times in float32: of the 28 ms that 64 prompts of 88
positions took (0.6B, H200), the linear layers were 7.
"""

from __future__ import annotations

import torch

from ..model.layers import LayerOps, LayerPass, LayerStack, attend
from ..model.static_cache import FillView
from .alignment import probe_alignment
from .attention.launch import AttentionInputs, attend_prompt_alone, attends_alone
from .plan import Plan
from .precompile import run
from .rotate import Target, rotate
from .rows import RowKernels
from .states import CacheSpan


class PromptOps(RowKernels, LayerOps):
    """``LayerOps`` of passes whose lines are all at the same positions (``Angles.span``), as prompts are."""

    def attend(self, decoder: LayerStack, index: int, qkv: torch.Tensor, layer_pass: LayerPass) -> torch.Tensor:
        """As ``LayerOps.attend``, for a ``FillView`` of the cache: raise TypeError for another."""
        view = layer_pass.view
        if not isinstance(view, FillView):
            raise TypeError(f"prompts fill the cache, and this view of it is a {type(view).__name__}")
        lines, length = qkv.shape[:2]
        if attends_alone(max(lines, view.cache.lines), length):
            span = CacheSpan(view.cache, layer_pass.angles, length, length, probe=layer_pass.probe)
            inputs = AttentionInputs(decoder, index, qkv.contiguous().view(length, -1), span)
            out = attend_prompt_alone(Plan(), inputs).view(1, length, -1)
            probe_alignment(Plan(), inputs)
            return out
        target = Target(view.cache.keys[index], view.cache.values[index], lines=view.rows)
        norm = layer_pass.head_norms[index], decoder.eps
        rotated = rotate(run, qkv, layer_pass.angles, target, norm).transpose(1, 2)
        queries, keys = rotated[:, : decoder.heads], rotated[:, decoder.heads :]
        values = qkv[:, :, decoder.heads + decoder.kv_heads :].transpose(1, 2)
        if (probe := layer_pass.probe_of(index)) is not None:
            probe.measure(queries, keys)
        return attend(queries, keys, values, None).transpose(1, 2).flatten(2)
