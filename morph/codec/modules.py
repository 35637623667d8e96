"""The codec's modules. Those of its decoder only hold weights: ``stream`` and ``forward`` compute with them."""

import math
from typing import Any

import torch
from torch import nn

from ..model.network.modules import MLP, RMSNorm
from .encoder import MimiEncoder
from .layers import CausalConv, NamedParameters, Snake, TransposedConv, attention_projections


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
