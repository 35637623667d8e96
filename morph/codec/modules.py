"""The codec's modules, with the names of the published files.

Those of its encoder, Mimi, are transformers' ``MimiModel.encode`` in its operations. Those of its decoder only hold
weights: ``stream`` and ``forward`` compute with them.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..model.finite import not_finite
from ..model.network import MLP, RMSNorm, Rotation, head_dim_of, repeat_heads, rope_table, rotate

CODEBOOK_EPSILON = 1e-5  # least usage of a codebook's vector


class Codec(nn.Module):
    """Both halves of a speech tokenizer; ``config`` is that of its folder. Its weights are not initialised."""

    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        self.encoder = MimiEncoder(config.encoder_config, config.encoder_valid_num_quantizers)
        self.decoder = CodecDecoder(config.decoder_config)

    @property
    def device(self) -> torch.device:
        return self.decoder.pre_conv.conv.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.decoder.pre_conv.conv.weight.dtype


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
    parts = {"q_proj": (width, queries), "k_proj": (width, keys), "v_proj": (width, keys), "o_proj": (queries, width)}
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
        rope = rope_table(self.config, length, states.device, states.dtype)
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

    def forward(self, states: torch.Tensor, rope: Rotation, seen: torch.Tensor) -> torch.Tensor:
        queries, keys, values = project_heads(self.self_attn, self.input_layernorm(states), self.head_dim)
        queries, keys = (rotate(one, *rope) for one in (queries, keys))
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


class CodecDecoder(nn.Module):
    """Codes to samples: codebooks, a transformer, two stages of upsampling, and blocks of convolutions."""

    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        latent, width = config.latent_dim, config.decoder_dim
        self.total_upsample = math.prod((*config.upsample_rates, *config.upsampling_ratios))
        self.quantizer = Quantizer(config)
        self.pre_conv = CausalConv(config.codebook_dim, latent, 3)
        self.pre_transformer = Transformer(config)
        stages = [(TransposedConv(latent, latent, by, by), ConvNeXt(latent)) for by in config.upsampling_ratios]
        self.upsample = nn.ModuleList(nn.ModuleList(stage) for stage in stages)
        blocks = [Block(width >> index, rate) for index, rate in enumerate(config.upsample_rates)]
        last = width >> len(blocks)
        self.decoder = nn.ModuleList([CausalConv(latent, width, 7), *blocks, Snake(last), CausalConv(last, 1, 7)])


class Quantizer(nn.Module):
    n_q_semantic = 1

    def __init__(self, config: Any):
        super().__init__()
        self.rvq_first = Codebooks(config, self.n_q_semantic)
        self.rvq_rest = Codebooks(config, config.num_quantizers - self.n_q_semantic)


class Codebooks(nn.Module):
    """Codebooks whose vectors are added, and the projection of the sum."""

    def __init__(self, config: Any, count: int):
        super().__init__()
        size, inner, outer = config.codebook_size, config.codebook_dim // 2, config.codebook_dim
        books = [NamedParameters(cluster_usage=(size,), embedding_sum=(size, inner)) for _ in range(count)]
        self.vq = nn.ModuleDict({"layers": nn.ModuleList(nn.ModuleDict({"_codebook": book}) for book in books)})
        self.input_proj = nn.Conv1d(outer, inner, 1, bias=False)  # unused, but in the files
        self.output_proj = nn.Conv1d(inner, outer, 1, bias=False)


class Transformer(nn.Module):
    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        width, latent = config.hidden_size, config.latent_dim
        self.input_proj, self.output_proj = nn.Linear(latent, width), nn.Linear(width, latent)
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(width, config.rms_norm_eps)


class TransformerLayer(nn.Module):
    def __init__(self, config: Any):
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn, self.mlp = attention_projections(config), MLP(config)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width, eps), RMSNorm(width, eps)
        self.self_attn_layer_scale = NamedParameters(scale=(width,))
        self.mlp_layer_scale = NamedParameters(scale=(width,))


class ConvNeXt(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.dwconv = CausalConv(width, width, 7, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.empty(width))


class Block(nn.Module):
    """SnakeBeta, a transposed convolution that halves the channels, and residual units."""

    def __init__(self, width: int, rate: int):
        super().__init__()
        half = width // 2
        units = [ResidualUnit(half, dilation) for dilation in (1, 3, 9)]
        self.block = nn.ModuleList([Snake(width), TransposedConv(width, half, 2 * rate, rate), *units])


class ResidualUnit(nn.Module):
    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.act1, self.conv1 = Snake(width), CausalConv(width, width, 7, dilation=dilation)
        self.act2, self.conv2 = Snake(width), CausalConv(width, width, 1)


def check_samples(samples: np.ndarray, codec: Any) -> None:
    if not np.isfinite(samples.sum()):
        raise not_finite(codec.dtype)
