"""Talker and code predictor as plain modules for training: the same functions as upstream's, batched and compilable.

Upstream's classes are made for generation (caches, masks, one module per head). Here a frame's 15 groups run in one
causal pass, the 15 tables and the 15 heads are one tensor each, and every text token is projected once per step.
``published.py`` maps the weights to upstream's names; the tests compare both.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .config import GROUPS, PREDICTED, Layers, Shape

EPSILON = 1e-6
LONGEST = 2048  # positions of the RoPE tables
WEIGHT_SCALE = 0.02
TABLE_SCALE = 0.05
SPARE_ROWS = 512


class Attention(nn.Module):
    """Causal grouped-query attention with normed queries and keys."""

    def __init__(self, layers: Layers):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = layers.heads, layers.kv_heads, layers.head_dim
        self.q_proj = nn.Linear(layers.hidden, layers.heads * layers.head_dim, bias=False)
        self.k_proj = nn.Linear(layers.hidden, layers.kv_heads * layers.head_dim, bias=False)
        self.v_proj = nn.Linear(layers.hidden, layers.kv_heads * layers.head_dim, bias=False)
        self.o_proj = nn.Linear(layers.heads * layers.head_dim, layers.hidden, bias=False)
        self.q_norm = nn.RMSNorm(layers.head_dim, eps=EPSILON)
        self.k_norm = nn.RMSNorm(layers.head_dim, eps=EPSILON)

    def forward(self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = states.shape
        query = self.q_proj(states).view(batch, length, self.heads, self.head_dim)
        key = self.k_proj(states).view(batch, length, self.kv_heads, self.head_dim)
        value = self.v_proj(states).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        query = rotate(self.q_norm(query).transpose(1, 2), cos, sin).to(value.dtype)
        key = rotate(self.k_norm(key).transpose(1, 2), cos, sin).to(value.dtype)
        # Padding is on the right, where the causal mask hides it from all real positions.
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


def rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply rotary position embeddings to ``[B, heads, T, D]``, with tables ``[T, D]``."""
    low, high = states.chunk(2, dim=-1)
    return states * cos + torch.cat((-high, low), dim=-1) * sin


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, layers: Layers):
        super().__init__()
        self.gate_proj = nn.Linear(layers.hidden, layers.inner, bias=False)
        self.up_proj = nn.Linear(layers.hidden, layers.inner, bias=False)
        self.down_proj = nn.Linear(layers.inner, layers.hidden, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))


class Block(nn.Module):
    """One decoder layer."""

    def __init__(self, layers: Layers, dropout: float):
        super().__init__()
        self.self_attn = Attention(layers)
        self.mlp = FeedForward(layers)
        self.input_layernorm = nn.RMSNorm(layers.hidden, eps=EPSILON)
        self.post_attention_layernorm = nn.RMSNorm(layers.hidden, eps=EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        states = states + self.dropout(self.self_attn(self.input_layernorm(states), cos, sin))
        return states + self.dropout(self.mlp(self.post_attention_layernorm(states)))


class Decoder(nn.Module):
    """A stack of layers and its final norm."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, layers: Layers, theta: float, dropout: float):
        super().__init__()
        self.layers = nn.ModuleList(Block(layers, dropout) for _ in range(layers.depth))
        self.norm = nn.RMSNorm(layers.hidden, eps=EPSILON)
        steps = torch.arange(0, layers.head_dim, 2).float() / layers.head_dim
        angles = torch.arange(LONGEST).float()[:, None] * (1.0 / theta**steps)[None]
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(
                    weight, std=WEIGHT_SCALE / (2 * layers.depth) ** 0.5 if last else WEIGHT_SCALE
                )

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``[B, T, H]`` after the last layer and norm, and after two thirds of the layers without norm."""
        cos, sin = self.cos[: states.shape[1]], self.sin[: states.shape[1]]
        middle = states
        for index, layer in enumerate(self.layers):
            states = layer(states, cos, sin)
            if index == (2 * len(self.layers) - 1) // 3:
                middle = states
        return self.norm(states), middle


class Network(nn.Module):
    """Talker and code predictor.

    Args:
        shape: with ``codebook`` and ``text_vocab`` set.
        dropout: probabilities on the outputs of the sublayers of talker and predictor.
    """

    def __init__(self, shape: Shape, dropout: tuple[float, float] = (0.0, 0.0)):
        super().__init__()
        if not shape.codebook or not shape.text_vocab:
            raise ValueError(f"codebook {shape.codebook} and text_vocab {shape.text_vocab}: both must be set")
        self.shape = shape
        wide, narrow = shape.talker.hidden, shape.predictor.hidden
        self.talker = Decoder(shape.talker, shape.rope_theta, dropout[0])
        self.text_table = nn.Parameter(torch.randn(shape.text_vocab, shape.text_hidden))
        self.text_inner = nn.Linear(shape.text_hidden, shape.text_hidden)
        self.text_outer = nn.Linear(shape.text_hidden, wide)
        self.first_table = nn.Parameter(TABLE_SCALE * torch.randn(shape.first_vocab, wide))
        self.first_head = nn.Linear(wide, shape.first_vocab, bias=False)
        self.predictor = Decoder(shape.predictor, shape.rope_theta, dropout[1])
        self.tables = nn.Parameter(TABLE_SCALE * torch.randn(PREDICTED, shape.codebook, wide))
        self.heads = nn.Parameter(WEIGHT_SCALE * torch.randn(PREDICTED, shape.codebook, narrow))
        self.narrow = nn.Identity() if wide == narrow else nn.Linear(wide, narrow)
        nn.init.normal_(self.first_head.weight, std=WEIGHT_SCALE)

    def embed(
        self, text: torch.Tensor, codes: torch.Tensor, speaker_at: torch.Tensor, speakers: torch.Tensor
    ) -> torch.Tensor:
        """Return the talker's inputs, as ``morph/voice/prompt.py`` builds them.

        Args:
            text: text token ids ``[B, T]``.
            codes: ``[B, T, 16]``; group 0 also has special ids; -1 adds nothing.
            speaker_at: position of the speaker embedding ``[B]``.
            speakers: ``[B, H]``.

        Returns:
            ``[B, T, H]``.
        """
        projected = self.text_outer(functional.silu(self.text_inner(self.text_table)))
        rows = torch.cat((self.first_table, self.tables.flatten(0, 1)))
        none = len(rows)
        starts = torch.arange(GROUPS, device=codes.device) - 1
        starts = torch.where(starts < 0, 0, self.shape.first_vocab + starts * self.shape.codebook)
        # Many rows of zeros instead of one: the gradients of a row are summed serially, and a third of codes are -1.
        spare = torch.arange(codes.numel(), device=codes.device).view_as(codes) % SPARE_ROWS
        index = torch.where(codes < 0, none + spare, codes + starts)
        rows = torch.cat((rows, rows.new_zeros(SPARE_ROWS, rows.shape[1])))
        summed = functional.embedding_bag(index.flatten(0, 1), rows, mode="sum")
        states = functional.embedding(text, projected) + summed.view(*text.shape, -1)
        here = torch.arange(text.shape[1], device=text.device)[None] == speaker_at[:, None]
        return states + here[..., None] * speakers[:, None]

    def predict(self, hidden: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """Return logits of groups 1-15 of N frames, teacher-forced.

        Args:
            hidden: the talker's hidden state before each frame ``[N, H]``.
            codes: the frame's groups 0-14 ``[N, 15]``.

        Returns:
            ``[N, 15, V]``.
        """
        first = self.narrow(functional.embedding(codes[:, 0], self.first_table))
        # Project the tables' rows once instead of every frame's: the same values for a tenth of the work.
        tables = self.narrow(self.tables[:-1]).flatten(0, 1)
        starts = torch.arange(PREDICTED - 1, device=codes.device) * self.shape.codebook
        rest = functional.embedding(codes[:, 1:] + starts, tables)
        states = torch.cat((self.narrow(hidden)[:, None], first[:, None], rest), dim=1)
        states = self.predictor(states)[0][:, 1:]
        return torch.bmm(states.transpose(0, 1), self.heads.to(states.dtype).transpose(1, 2)).transpose(0, 1)
