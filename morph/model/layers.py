"""The decoder layers of talker and predictor, as functions over views of the modules' weights.

The arithmetic is that of ``network.py`` with fewer launches: one GEMM for q, k and v, one for gate and up; norm
and RoPE on queries and keys together, in float32. There is no host sync and no data-dependent shape, so a pass over
static buffers can be captured in a CUDA graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.nn import functional

from .alignment import AlignmentProbe
from .network import SHARES_KEYS, RopeTable, repeat_heads
from .static_cache import FillView, SpanView, StepView
from .weights import Weight, join, linear, view_weight

View: TypeAlias = "FillView | SpanView | StepView"
# Attends from a layer's index, the layer and its normed inputs.
Attend: TypeAlias = "Callable[[int, Layer, torch.Tensor], torch.Tensor]"


@dataclass(frozen=True)
class Layer:
    """One layer's weights: ``qkv`` is ``[(heads + 2 kv_heads) head_dim, H]``, ``gate_up`` ``[2 I, H]``."""

    input_norm: torch.Tensor
    qkv: Weight
    out: Weight
    post_norm: torch.Tensor
    gate_up: Weight
    down: Weight
    out_scale: torch.Tensor | None = None  # [H], of what is added to the residual stream, as ``down_scale``
    down_scale: torch.Tensor | None = None

    @classmethod
    def of(cls, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        return cls(
            input_norm=layer.input_layernorm.weight.detach(),
            qkv=view_weight([attention.q_proj, attention.k_proj, attention.v_proj]),
            out=view_weight([attention.o_proj]),
            post_norm=layer.post_attention_layernorm.weight.detach(),
            gate_up=view_weight([mlp.gate_proj, mlp.up_proj]),
            down=view_weight([mlp.down_proj]),
        )


@dataclass(frozen=True)
class LayerStack:
    """A stack of layers, as views of the model's parameters: release them before the model leaves the device."""

    layers: tuple[Layer, ...]
    qk_norms: torch.Tensor  # [layers, 2, head_dim]
    norm: torch.Tensor  # the last norm's [H]
    heads: int
    kv_heads: int
    head_dim: int
    eps: float

    @classmethod
    def of(cls, module: Any) -> LayerStack:
        """View the weights of the talker's or the predictor's decoder, joining them if necessary."""
        config = module.config
        attentions = [layer.self_attn for layer in module.layers]
        norms = join([norm for one in attentions for norm in (one.q_norm, one.k_norm)])
        head_dim = attentions[0].head_dim
        return cls(
            layers=tuple(map(Layer.of, module.layers)),
            qk_norms=norms.view(len(attentions), 2, head_dim),
            norm=module.norm.weight.detach(),
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim,
            eps=config.rms_norm_eps,
        )

    def head_norms(self) -> torch.Tensor:
        """Return the norm weights of every query and key head: float32 ``[layers, heads + kv_heads, D]``."""
        queries = self.qk_norms[:, :1].expand(-1, self.heads, -1)
        keys = self.qk_norms[:, 1:].expand(-1, self.kv_heads, -1)
        return torch.cat((queries, keys), dim=1).float()


@dataclass(frozen=True)
class Angles:
    """Cosines and sines, float32 ``[..., head_dim]``; the first half of the sines is negated (see ``rotate``)."""

    cos: torch.Tensor
    sin: torch.Tensor

    @classmethod
    def table(cls, config: Any, length: int, device: torch.device) -> Angles:
        table = RopeTable.build(config, length, device, torch.float32)
        half = table.sin.shape[-1] // 2
        return cls(table.cos, torch.cat((-table.sin[:, :half], table.sin[:, half:]), dim=-1))

    def span(self, start: int, end: int) -> Angles:
        """Return the angles of a span of positions, shared by all lines: ``[1, T, 1, head_dim]``."""
        return Angles(self.cos[None, start:end, None], self.sin[None, start:end, None])

    def at(self, positions: torch.Tensor) -> Angles:
        """Return the angles of one position per line (int64 ``[B]``): ``[B, 1, 1, head_dim]``."""
        return Angles(self.cos[positions][:, None, None], self.sin[positions][:, None, None])


def norm(states: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """Apply RMSNorm over the last dimension, in float32."""
    return functional.rms_norm(states, states.shape[-1:], weight, eps)


def rotate(states: torch.Tensor, angles: Angles) -> torch.Tensor:
    """Apply RoPE: ``x cos + rotate_half(x) sin``, with a roll that swaps the halves; the sines carry the sign."""
    return torch.addcmul(states * angles.cos, states.roll(states.shape[-1] // 2, dims=-1), angles.sin)


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Compute attention of ``[B, heads, T, D]`` over ``[B, kv_heads, N, D]``, causal (T = N) or for one position."""
    # For one position, query heads that share a key head go to SDPA as that head's positions: keys are read once.
    batch, heads, length, head_dim = queries.shape
    group = heads // keys.shape[1]
    # Only with FlashAttention does SDPA read shared keys without copying them.
    if length > 1 and group > 1 and queries.is_cuda and queries.element_size() == 2 and SHARES_KEYS:
        return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
    if length > 1:
        keys, values = repeat_heads(keys, values, heads)
        return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    grouped = queries.view(batch, -1, group, head_dim)
    out = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
    return out.reshape(batch, heads, 1, head_dim)


class CudnnExclusion:
    """A reference count of the callers that exclude cuDNN's attention, in all threads of this process.

    torch keeps that setting per process, not per thread, and its own ``sdpa_kernel`` restores the setting it found. If
    the ``with`` of two threads overlap, the first to end would allow cuDNN for the other, and the last would leave it
    excluded.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._before = True

    @contextmanager
    def block(self) -> Iterator[None]:
        """Exclude it until the last ``with`` ends, then restore the setting found by the first."""
        with self._lock:
            if not self._wanted:
                self._before = torch.backends.cuda.cudnn_sdp_enabled()
                torch.backends.cuda.enable_cudnn_sdp(False)
            self._wanted += 1
        try:
            yield
        finally:
            with self._lock:
                self._wanted -= 1
                if not self._wanted:
                    torch.backends.cuda.enable_cudnn_sdp(self._before)


# cuDNN makes a plan per shape: captures would keep them all, elsewhere each costs 24 ms (H200, torch 2.11).
without_cudnn = CudnnExclusion().block


@dataclass(frozen=True)
class LayerPass:
    """The settings of a pass over all layers."""

    angles: Angles
    head_norms: torch.Tensor  # ``LayerStack.head_norms()``, computed once per frame
    view: View  # writes keys and values to the cache and returns those to attend to
    probe: AlignmentProbe | None = None

    def probe_of(self, index: int) -> AlignmentProbe | None:
        return self.probe if self.probe is not None and self.probe.head.layer == index else None


class RowOps:
    """The operations on rows between a layer's GEMMs, in torch; ``kernels/rows.py`` has them in Triton."""

    def gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        """SwiGLU: ``[..., 2 I]`` to ``[..., I]``."""
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate) * up

    def add_norm(
        self,
        states: torch.Tensor,
        added: torch.Tensor,
        gain: torch.Tensor,
        eps: float,
        scale: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``states + scale * added`` of ``[..., H]``, and its RMSNorm with weight ``gain`` ``[H]``."""
        states = states + added if scale is None else torch.addcmul(states, added, scale)
        return states, norm(states, gain, eps)


class LayerOps(RowOps):
    """All operations between a layer's GEMMs, in torch; ``kernels/frame.py`` has them in Triton for prompts."""

    def attend(self, decoder: LayerStack, index: int, qkv: torch.Tensor, layer_pass: LayerPass) -> torch.Tensor:
        """Compute attention of layer ``index``: ``qkv`` ``[B, T, heads + 2 kv_heads, D]`` to ``[B, T, heads * D]``."""
        normed = decoder.heads + decoder.kv_heads
        heads = functional.rms_norm(qkv[:, :, :normed].float(), (decoder.head_dim,), None, decoder.eps)
        wide = heads * layer_pass.head_norms[index]
        rotated = rotate(wide, layer_pass.angles).to(qkv.dtype).transpose(1, 2)
        queries, keys = rotated[:, : decoder.heads], rotated[:, decoder.heads :]
        keys, values = layer_pass.view.update(index, keys, qkv[:, :, normed:].transpose(1, 2))
        if (probe := layer_pass.probe_of(index)) is not None:
            probe.measure(queries, keys)
        return attend(queries, keys, values, layer_pass.view.mask).transpose(1, 2).flatten(2)


TORCH_OPS = LayerOps()


def run_layers(
    decoder: LayerStack, states: torch.Tensor, layer_pass: LayerPass, ops: LayerOps = TORCH_OPS
) -> torch.Tensor:
    """Run all layers and the last norm over ``states`` ``[B, T, H]``."""

    def attend(index: int, layer: Layer, normed: torch.Tensor) -> torch.Tensor:
        qkv = linear(normed, layer.qkv).unflatten(-1, (-1, decoder.head_dim))
        return ops.attend(decoder, index, qkv, layer_pass)

    return chain_layers(decoder.layers, (decoder.norm, decoder.eps), states, attend, ops)


def chain_layers(
    layers: Sequence[Layer], last: tuple[torch.Tensor, float], states: torch.Tensor, attend: Attend, ops: RowOps
) -> torch.Tensor:
    """Run layers over ``[..., H]``, and the ``last`` norm (weight and epsilon), whose epsilon is that of all norms."""
    norms, eps = [layer.input_norm for layer in layers[1:]] + [last[0]], last[1]
    normed = norm(states, layers[0].input_norm, eps)
    for index, (layer, after) in enumerate(zip(layers, norms, strict=True)):
        attended = linear(attend(index, layer, normed), layer.out)
        states, normed = ops.add_norm(states, attended, layer.post_norm, eps, layer.out_scale)
        gated = ops.gate(linear(normed, layer.gate_up))
        states, normed = ops.add_norm(states, linear(gated, layer.down), after, eps, layer.down_scale)
    return normed
