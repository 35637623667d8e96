"""The codec's encoder, Mimi: a waveform to codes. transformers' ``MimiModel.encode`` in its operations and names."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ..model.network.modules import rotate
from ..model.rope import RopeTable, head_dim_of
from .layers import (
    CODEBOOK_EPSILON,
    CausalConv,
    NamedParameters,
    attend,
    attention_projections,
    project_heads,
)


class MimiEncoder(nn.Module):
    """Convolutions, a transformer, a convolution that halves the rate, and codebooks, ``groups`` of which are used."""

    def __init__(self, config: Any, groups: int):
        super().__init__()
        self.config, self.groups = config, groups
        width = config.hidden_size
        self.encoder: Any = nn.ModuleDict({"layers": nn.ModuleList(_convolutions(config))})
        layers = [EncoderLayer(config) for _ in range(config.num_hidden_layers)]
        self.encoder_transformer: Any = nn.ModuleDict({"layers": nn.ModuleList(layers)})
        self.downsample = CausalConv(width, width, 4, 2, bias=False, padding_mode="replicate")
        semantic = config.num_semantic_quantizers
        counts = {"semantic": semantic, "acoustic": config.num_quantizers - semantic}
        books = {f"{name}_residual_vector_quantizer": EncoderCodebooks(config, n) for name, n in counts.items()}
        self.quantizer: Any = nn.ModuleDict(books)

    def encode(self, waveform: torch.Tensor) -> torch.Tensor:
        """Encode samples ``[T]`` to codes ``[frames, groups]``, int64."""
        states = waveform[None, None]
        for layer in self.encoder.layers:
            states = pad_and_convolve(layer, states) if isinstance(layer, CausalConv) else layer(states)
        states = self._transform(states.transpose(1, 2)).transpose(1, 2)
        states = pad_and_convolve(self.downsample, states)
        semantic, acoustic = self.quantizer.values()
        first = semantic.encode(states, len(semantic.layers))
        return torch.stack([*first, *acoustic.encode(states, self.groups - len(first))], dim=1)

    def _transform(self, states: torch.Tensor) -> torch.Tensor:
        length = states.shape[1]
        rope = RopeTable.build(self.config, length, states.device, states.dtype)
        seen = torch.ones(length, length, dtype=torch.bool, device=states.device).tril()
        for layer in self.encoder_transformer.layers:
            states = layer(states, rope, seen)
        return states


class ResidualBlock(nn.Module):
    """A residual block of the convolutions."""

    def __init__(self, config: Any, width: int, dilation: int):
        super().__init__()
        inner = width // config.compress
        wide = CausalConv(width, inner, config.residual_kernel_size, dilation=dilation)
        self.block: Any = nn.ModuleList([nn.ELU(), wide, nn.ELU(), CausalConv(inner, width, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, wide, second, point = self.block
        return x + point.conv(second(pad_and_convolve(wide, first(x))))


class EncoderLayer(nn.Module):
    """A layer of the transformer."""

    def __init__(self, config: Any):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.self_attn: Any = attention_projections(config)
        self.mlp: Any = nn.ModuleDict(
            {"fc1": nn.Linear(width, inner, bias=False), "fc2": nn.Linear(inner, width, bias=False)}
        )
        self.input_layernorm = nn.LayerNorm(width, eps=config.norm_eps)
        self.post_attention_layernorm = nn.LayerNorm(width, eps=config.norm_eps)
        self.self_attn_layer_scale: Any = NamedParameters(scale=(width,))
        self.mlp_layer_scale: Any = NamedParameters(scale=(width,))
        self.head_dim = head_dim_of(config)

    def forward(self, states: torch.Tensor, rope: RopeTable, seen: torch.Tensor) -> torch.Tensor:
        queries, keys, values = project_heads(self.self_attn, self.input_layernorm(states), self.head_dim)
        queries, keys = (rotate(one, rope.cos, rope.sin) for one in (queries, keys))
        attended = self.self_attn.o_proj(attend(queries, keys, values, seen))
        states = states + self.self_attn_layer_scale.scale * attended
        hidden = functional.gelu(self.mlp.fc1(self.post_attention_layernorm(states)))
        return states + self.mlp_layer_scale.scale * self.mlp.fc2(hidden)


class EncoderCodebooks(nn.Module):
    """Codebooks of which each encodes what the ones before leave."""

    def __init__(self, config: Any, count: int):
        super().__init__()
        inner, outer = config.vector_quantization_hidden_dimension, config.hidden_size
        self.layers: Any = nn.ModuleList(nn.ModuleDict({"codebook": Codebook(config)}) for _ in range(count))
        self.input_proj = nn.Conv1d(outer, inner, 1, bias=False)
        self.output_proj = nn.Conv1d(inner, outer, 1, bias=False)  # unused, but in the files

    def encode(self, states: torch.Tensor, count: int) -> list[torch.Tensor]:
        """Return the codes ``[frames]`` of the first ``count`` codebooks for ``[1, H, frames]``."""
        left, codes = self.input_proj(states)[0].t(), []
        for layer in self.layers[:count]:
            vectors = layer.codebook.vectors()
            codes.append(torch.cdist(left[None].float(), vectors[None].float(), p=2)[0].argmin(dim=-1))
            left = left - functional.embedding(codes[-1], vectors)
        return codes


class Codebook(nn.Module):
    cluster_usage: torch.Tensor
    embed_sum: torch.Tensor

    def __init__(self, config: Any):
        super().__init__()
        self.register_buffer("initialized", torch.empty(1))  # unused, but in the files
        self.register_buffer("cluster_usage", torch.empty(config.codebook_size))
        self.register_buffer("embed_sum", torch.empty(config.codebook_size, config.codebook_dim))

    def vectors(self) -> torch.Tensor:
        return self.embed_sum / self.cluster_usage.clamp(min=CODEBOOK_EPSILON)[:, None]


def pad_and_convolve(module: CausalConv, x: torch.Tensor) -> torch.Tensor:
    """Convolve ``[B, C, T]``, padded on the left, and on the right to a multiple of the stride."""
    conv = module.conv
    mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
    padded = functional.pad(x, (module.padding, -x.shape[-1] % conv.stride[0]), mode)
    return functional.conv1d(padded, conv.weight, conv.bias, conv.stride, 0, conv.dilation)


def _convolutions(config: Any) -> list[nn.Module]:
    width = config.num_filters
    layers: list[nn.Module] = [CausalConv(config.audio_channels, width, config.kernel_size)]
    for ratio in reversed(config.upsampling_ratios):
        layers += [
            ResidualBlock(config, width, config.dilation_growth_rate**at) for at in range(config.num_residual_layers)
        ]
        layers += [nn.ELU(), CausalConv(width, 2 * width, 2 * ratio, ratio)]
        width *= 2
    return [*layers, nn.ELU(), CausalConv(width, config.hidden_size, config.last_kernel_size)]
