"""Layers of the codec: holders of weights with the names of the published files."""

from typing import Any

import torch
from torch import nn

from ..model.network.modules import repeat_heads
from ..model.rope import head_dim_of

CODEBOOK_EPSILON = 1e-5  # least usage of a codebook's vector


class NamedParameters(nn.Module):
    """Parameters by name, from their shapes."""

    def __init__(self, **shapes: tuple[int, ...]):
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))


class CausalConv(nn.Module):
    """A convolution that reads ``padding`` positions before its inputs."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1, **more: Any):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, stride, dilation=dilation, **more)
        self.dilation, self.padding = dilation, (kernel - 1) * dilation + 1 - stride


class TransposedConv(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int):
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, kernel, stride)


class Snake(NamedParameters):
    """SnakeBeta over ``[B, C, T]``: ``x + sin(x e^alpha)^2 / (e^beta + 1e-9)``."""

    alpha: torch.Tensor
    beta: torch.Tensor

    def __init__(self, channels: int):
        super().__init__(alpha=(channels,), beta=(channels,))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        alpha, beta = torch.exp(self.alpha[None, :, None]), torch.exp(self.beta[None, :, None])
        return x + (1.0 / (beta + 1e-9)) * torch.pow(torch.sin(x * alpha), 2)


def attention_projections(config: Any) -> nn.ModuleDict:
    """Return the projections of an attention layer without biases."""
    width, each = config.hidden_size, head_dim_of(config)
    queries, keys = config.num_attention_heads * each, config.num_key_value_heads * each
    parts = {
        "q_proj": (width, queries),
        "k_proj": (width, keys),
        "v_proj": (width, keys),
        "o_proj": (queries, width),
    }
    return nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in parts.items()})


def project_heads(attention: Any, states: torch.Tensor, head_dim: int) -> tuple[torch.Tensor, ...]:
    """Return queries, keys and values of ``[B, T, H]``: ``[B, heads, T, D]`` each."""
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    queries, keys, values = (one(states).unflatten(-1, (-1, head_dim)).transpose(1, 2) for one in projections)
    return queries, keys, values


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
    """Attend with a mask (bool ``[T, N]``, None: all is seen): ``[B, heads, T, D]`` to ``[B, T, heads D]``."""
    keys, values = repeat_heads(keys, values, queries.shape[1])
    mask = None if seen is None else seen[None, None]
    out = nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return out.transpose(1, 2).flatten(2)
