"""The decoder layers of talker and predictor, as functions over views of the modules' weights.

The arithmetic is that of ``network.py`` with fewer launches: one GEMM for q, k and v, one for gate and up; norm
and RoPE on queries and keys together, in float32. There is no host sync and no data-dependent shape, so a pass over
static buffers can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.nn import functional

from ..runtime.threads import SharedSetting
from ..words.alignment import NO_TOKEN, SCALE
from ..words.head import AlignmentHead
from .network import SHARES_KEYS, repeat_heads, rope_table
from .static_cache import FillView, SpanView, StepView
from .weights import Weight, join, linear, view_weight

View: TypeAlias = "FillView | SpanView | StepView"
# Attends with a layer's index and its queries, keys and values side by side.
Attend: TypeAlias = "Callable[[int, torch.Tensor], torch.Tensor]"


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
class Layers:
    """A stack of layers, as views of the model's parameters: release them before the model leaves the device."""

    layers: tuple[Layer, ...]
    norm: torch.Tensor  # the last norm's [H]
    eps: float  # of all norms
    heads: int
    kv_heads: int


@dataclass(frozen=True)
class LayerStack(Layers):
    """The layers of the talker or the predictor."""

    qk_norms: torch.Tensor  # [layers, 2, head_dim]
    head_dim: int

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
        cos, sin = rope_table(config, length, device, torch.float32)
        half = sin.shape[-1] // 2
        return cls(cos, torch.cat((-sin[:, :half], sin[:, half:]), dim=-1))

    def span(self, start: int, end: int) -> Angles:
        """Return the angles of a span of positions, shared by all lines: ``[1, T, 1, head_dim]``."""
        return Angles(self.cos[None, start:end, None], self.sin[None, start:end, None])

    def at(self, positions: torch.Tensor) -> Angles:
        """Return the angles of one position per line (int64 ``[B]``): ``[B, 1, 1, head_dim]``."""
        return Angles(self.cos[positions][:, None, None], self.sin[positions][:, None, None])


@dataclass(frozen=True)
class KvTarget:
    """The cache that gets one layer's new keys and values, and their places in it."""

    keys: torch.Tensor  # ``[B, kv_heads, T, D]``
    values: torch.Tensor  # ``[B, kv_heads, T, D]``
    lines: torch.Tensor | None = None  # int64, each line's index in B; None: its number
    slots: torch.Tensor | None = None  # int64 ``[B, N]``, each row's index in T; None: its position


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


@dataclass(frozen=True)
class AlignmentProbe:
    """A reading of the alignment head in a pass over N lines."""

    head: AlignmentHead
    spans: torch.Tensor  # int64 [N, 2]: first text token's position, number of text tokens
    positions: torch.Tensor  # int64 [N], contiguous: query positions; each attends to those up to it
    out: torch.Tensor  # int64 [N, 3], the result, see ``words.alignment``
    before: torch.Tensor | None = None  # [N, 3], gets the old ``out`` (kernels only)

    def measure(self, queries: torch.Tensor, keys: torch.Tensor) -> None:
        """Compute ``out`` from queries ``[N, heads, T, D]`` and keys ``[N, kv_heads, S, D]`` of the head's layer.

        Both are after norm and RoPE. T is 1, or the queries are those of positions 0 .. T - 1.
        """
        group = queries.shape[1] // keys.shape[1]
        own, length = queries[:, self.head.head], queries.shape[2]
        if length > 1:
            index = self.positions.clamp(max=length - 1)[:, None, None]
            own = own.gather(1, index.expand(-1, 1, own.shape[2]))
        seen = torch.arange(keys.shape[2], device=keys.device)[None] <= self.positions[:, None]
        answers = token_on(own[:, 0], keys[:, self.head.head // group], self.spans, seen)
        self.out.copy_(answers)


def token_on(queries: torch.Tensor, keys: torch.Tensor, spans: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return one head's result, int64 ``[N, 3]``, for queries ``[N, D]`` and keys ``[N, S, D]`` after norm and RoPE."""
    scores = (keys.float() * queries[:, None].float()).sum(2) * keys.shape[2] ** -0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=1)
    first, count = spans[:, :1], spans[:, 1:]
    index = torch.arange(keys.shape[1], device=keys.device)[None]
    is_text = seen & (index >= first) & (index < first + count)
    best, place = weights.masked_fill(~is_text, -1.0).max(dim=1, keepdim=True)
    token = torch.where(best < 0, NO_TOKEN, place - first + 1)
    mass = weights.masked_fill(~is_text, 0.0).sum(1, keepdim=True)
    shares = torch.cat((best.clamp(min=0), mass), dim=1)
    return torch.cat((token, (shares * SCALE).round().long()), dim=1)


def _exclude_cudnn() -> Callable[[], None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    return partial(torch.backends.cuda.enable_cudnn_sdp, before)


# cuDNN makes a plan per shape: captures would keep them all, elsewhere each costs 24 ms (H200, torch 2.11).
# torch keeps that setting per process, not per thread, and its own ``sdpa_kernel`` restores what it found.
without_cudnn = SharedSetting(_exclude_cudnn).block


@dataclass(frozen=True)
class LayerPass:
    """The settings of a pass over all layers."""

    angles: Angles
    head_norms: torch.Tensor  # ``LayerStack.head_norms()``, computed once per frame
    view: View  # writes keys and values to the cache and returns those to attend to
    probe: AlignmentProbe | None = None


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
        return states, functional.rms_norm(states, states.shape[-1:], gain, eps)


class LayerOps(RowOps):
    """All operations between a layer's GEMMs, in torch; ``kernels/frame.py`` has them in Triton for prompts."""

    def attend(self, decoder: LayerStack, layer_pass: LayerPass, index: int, qkv: torch.Tensor) -> torch.Tensor:
        """Compute attention of layer ``index``: ``[B, T, (heads + 2 kv_heads) D]`` to ``[B, T, heads * D]``."""
        qkv = qkv.unflatten(-1, (-1, decoder.head_dim))
        normed = decoder.heads + decoder.kv_heads
        heads = functional.rms_norm(qkv[:, :, :normed].float(), (decoder.head_dim,), None, decoder.eps)
        wide = heads * layer_pass.head_norms[index]
        rotated = rotate(wide, layer_pass.angles).to(qkv.dtype).transpose(1, 2)
        queries, keys = rotated[:, : decoder.heads], rotated[:, decoder.heads :]
        keys, values = layer_pass.view.update(index, keys, qkv[:, :, normed:].transpose(1, 2))
        if (probe := layer_pass.probe) is not None and probe.head.layer == index:
            probe.measure(queries, keys)
        return attend(queries, keys, values, layer_pass.view.mask).transpose(1, 2).flatten(2)


TORCH_OPS = LayerOps()


def run_layers(stack: Layers, states: torch.Tensor, attend: Attend, ops: RowOps = TORCH_OPS) -> torch.Tensor:
    """Run all layers and the last norm over ``[..., H]``; ``attend``: ``LayerOps.attend`` with its first arguments."""
    layers, eps = stack.layers, stack.eps
    norms = [layer.input_norm for layer in layers[1:]] + [stack.norm]
    normed = functional.rms_norm(states, states.shape[-1:], layers[0].input_norm, eps)
    for index, (layer, after) in enumerate(zip(layers, norms, strict=True)):
        attended = linear(attend(index, linear(normed, layer.qkv)), layer.out)
        states, normed = ops.add_norm(states, attended, layer.post_norm, eps, layer.out_scale)
        gated = ops.gate(linear(normed, layer.gate_up))
        states, normed = ops.add_norm(states, linear(gated, layer.down), after, eps, layer.down_scale)
    return normed
