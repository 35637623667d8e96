"""The talker and its code predictor: upstream's parameter names and arithmetic, bit for bit.

Modules may be built on torch's meta device; the checkpoint's tensors are assigned afterwards. The eager engine runs
them, the graph engine only reads their weights (``model/layers.py``).
"""

from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from ..rope import RopeTable, head_dim_of
from .speaker_encoder import SpeakerEncoder

SHARES_KEYS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5)  # SDPA has ``enable_gqa``
# Cosines and sines, ``[T, head_dim]`` each.
Rotation = tuple[torch.Tensor, torch.Tensor]


class KeysAndValues(Protocol):
    """A cache that appends a layer's new keys and values and returns all."""

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]: ...


def embedding(rows: int, width: int) -> nn.Embedding:
    # Its own initialisation on the meta device imports torch._dynamo and sympy, which takes a second.
    return nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        wide = states.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(states.dtype)


class Attention(nn.Module):
    def __init__(self, config: Any, layer: int):
        super().__init__()
        self.config, self.layer = config, layer
        width, heads, kv_heads = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
        self.head_dim = head_dim_of(config)
        self.q_proj = nn.Linear(width, heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(heads * self.head_dim, width, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)

    def project(self, states: torch.Tensor, rotation: Rotation) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys and values ``[B, heads, T, head_dim]`` of ``[B, T, H]``."""
        shape = (*states.shape[:-1], -1, self.head_dim)
        queries = self.q_norm(self.q_proj(states).view(shape)).transpose(1, 2)
        keys = self.k_norm(self.k_proj(states).view(shape)).transpose(1, 2)
        values = self.v_proj(states).view(shape).transpose(1, 2)
        return rotate(queries, *rotation), rotate(keys, *rotation), values

    def forward(self, states: torch.Tensor, rotation: Rotation, cache: KeysAndValues | None) -> torch.Tensor:
        queries, keys, values = self.project(states, rotation)
        if cache is not None:
            keys, values = cache.update(keys, values, self.layer)
        attended = attend(self.config.attention, queries, keys, values)
        return self.o_proj(attended.reshape(*states.shape[:-1], -1))


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply RoPE to ``[..., T, head_dim]``."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin


def attend(kind: str, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the causal attention ``[B, T, heads, D]`` of ``[B, heads, T, D]`` over ``[B, kv_heads, N, D]``.

    ``kind`` is one of ``choose_attention``'s. T is N, or 1 for the last position.
    """
    causal = queries.shape[2] > 1
    if kind == "flash_attention_2":
        from flash_attn import flash_attn_func

        attended = flash_attn_func(*(one.transpose(1, 2) for one in (queries, keys, values)), causal=True)
    elif kind == "sdpa" and SHARES_KEYS:
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=causal, enable_gqa=True
        ).transpose(1, 2)
    else:
        keys, values = repeat_heads(keys, values, queries.shape[1])
        if kind == "sdpa":
            attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
        else:
            attended = attention_weights(queries, keys) @ values
        attended = attended.transpose(1, 2)
    return attended


def repeat_heads(keys: torch.Tensor, values: torch.Tensor, heads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values ``[B, heads, N, D]`` of ``[B, kv_heads, N, D]``, one for each query head."""
    group = heads // keys.shape[1]
    if group == 1:
        return keys, values
    return keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)


def attention_weights(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return the causal attention weights ``[B, heads, T, N]`` of queries and keys ``[B, heads, ., D]``."""
    scores = queries @ keys.transpose(2, 3) * queries.shape[-1] ** -0.5
    if (length := queries.shape[2]) > 1:
        lowest = torch.finfo(scores.dtype).min
        scores = scores + scores.new_full((length, length), lowest).triu(1)
    return scores.softmax(dim=-1, dtype=torch.float32).to(queries.dtype)


class MLP(nn.Module):
    def __init__(self, config: Any):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))


class DecoderLayer(nn.Module):
    def __init__(self, config: Any, layer: int):
        super().__init__()
        self.self_attn = Attention(config, layer)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, states: torch.Tensor, rotation: Rotation, cache: KeysAndValues | None) -> torch.Tensor:
        states = states + self.self_attn(self.input_layernorm(states), rotation, cache)
        return states + self.mlp(self.post_attention_layernorm(states))


class DecoderStack(nn.Module):
    """A stack of decoder layers and its last norm."""

    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(DecoderLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, states: torch.Tensor, rotation: Rotation | None = None, cache: KeysAndValues | None = None
    ) -> torch.Tensor:
        """Return the states ``[B, T, H]`` after all layers and the norm; ``rotation`` None: positions 0 .. T - 1."""
        if rotation is None:
            table = RopeTable.build(self.config, states.shape[1], states.device, states.dtype)
            rotation = table.cos, table.sin
        for layer in self.layers:
            states = layer(states, rotation, cache)
        return self.norm(states)


class PredictorDecoder(DecoderStack):
    def __init__(self, config: Any, width: int):
        super().__init__(config)
        tables = config.num_code_groups - 1
        self.codec_embedding = nn.ModuleList(embedding(config.vocab_size, width) for _ in range(tables))


class CodePredictor(nn.Module):
    """Predicts groups 1-15 of a frame; ``width`` is the talker's."""

    def __init__(self, config: Any, width: int):
        super().__init__()
        self.config = config
        self.model = PredictorDecoder(config, width)
        self.lm_head = nn.ModuleList(
            nn.Linear(config.hidden_size, config.vocab_size, bias=False) for _ in range(config.num_code_groups - 1)
        )
        same = config.hidden_size == width
        self.small_to_mtp_projection = nn.Identity() if same else nn.Linear(width, config.hidden_size)


class TalkerDecoder(DecoderStack):
    def __init__(self, config: Any):
        super().__init__(config)
        self.codec_embedding = embedding(config.vocab_size, config.hidden_size)
        self.text_embedding = embedding(config.text_vocab_size, config.text_hidden_size)


class TextProjection(nn.Module):
    def __init__(self, width: int, out: int):
        super().__init__()
        self.linear_fc1 = nn.Linear(width, width)
        self.linear_fc2 = nn.Linear(width, out)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.linear_fc2(functional.silu(self.linear_fc1(states)))


class Talker(nn.Module):
    """Predicts group 0 of each frame from text and frames; has the code predictor."""

    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        self.model = TalkerDecoder(config)
        self.text_projection = TextProjection(config.text_hidden_size, config.hidden_size)
        self.codec_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.code_predictor = CodePredictor(config.code_predictor_config, config.hidden_size)


class Network(nn.Module):
    """All weights of a checkpoint's own file: the talker and, in a Base checkpoint, the speaker encoder."""

    def __init__(self, config: Any):
        super().__init__()
        self.talker = Talker(config.talker_config)
        is_base = config.tts_model_type == "base"
        self.speaker_encoder = SpeakerEncoder(config.speaker_encoder_config) if is_base else None
