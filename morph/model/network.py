"""The networks of a checkpoint's own file: talker, code predictor and, in a Base checkpoint, the speaker encoder.

They have upstream's parameter names and arithmetic, bit for bit. Modules may be built on torch's meta device; the
checkpoint's tensors are assigned afterwards. The eager engine runs talker and predictor, the graph engine only reads
their weights (``layers.py``). The speaker encoder is an ECAPA-TDNN.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SHARES_KEYS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5)  # SDPA has ``enable_gqa``
# Of the speaker encoder's spectrogram.
SAMPLE_RATE, FFT, HOP, TOP_HZ = 24000, 1024, 256, 12000.0
FLOOR = 1e-5  # of the spectrogram, before its logarithm
# Slaney's mel scale: linear up to 1 kHz, then logarithmic.
MEL_HZ, LOG_HZ, LOG_STEP = 200.0 / 3, 1000.0, np.log(6.4) / 27.0

# Cosines and sines, ``[T, head_dim]`` each.
Rotation = tuple[torch.Tensor, torch.Tensor]


def head_dim_of(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def inverse_frequencies(config: Any, device: torch.device | str | None = None) -> torch.Tensor:
    """Return ``theta ** (-2i / head_dim)``, float32 ``[head_dim / 2]``, as transformers' default RoPE computes it.

    Not a model's ``inv_freq`` buffer: transformers 5 can leave it zeroed after loading.
    """
    # transformers 5 has ``rope_parameters`` instead of ``rope_theta``.
    base = getattr(config, "rope_theta", None)
    if base is None:
        base = config.rope_parameters["rope_theta"]
    head_dim = head_dim_of(config)
    steps = torch.arange(0, head_dim, 2, dtype=torch.int64).to(device=device, dtype=torch.float32)
    return 1.0 / (base ** (steps / head_dim))


def require_default_rope(config: Any) -> None:
    """Raise ValueError for a config with scaled RoPE: these tables would be wrong for it."""
    scaling = getattr(config, "rope_scaling", None) or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise ValueError(f"the checkpoint's config has RoPE of type {kind!r}: only 'default' is supported")


def rope_table(config: Any, length: int, device: torch.device, dtype: torch.dtype) -> Rotation:
    """Return the rotation of positions 0 .. ``length`` - 1, bit-equal to upstream's ``rotary_emb``.

    It is the paper's morph cache.
    """
    # On the CPU, as upstream does when it loads a model, then moved.
    require_default_rope(config)
    frequencies = inverse_frequencies(config, "cpu").to(device)
    angles = torch.arange(length, device=device).float()[:, None] * frequencies[None, :]
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


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
            rotation = rope_table(self.config, states.shape[1], states.device, states.dtype)
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


def convolution(channels: int, out: int, kernel: int = 1, dilation: int = 1) -> nn.Conv1d:
    return nn.Conv1d(channels, out, kernel, dilation=dilation, padding="same", padding_mode="reflect")


class TDNN(nn.Module):
    def __init__(self, channels: int, out: int, kernel: int = 1, dilation: int = 1):
        super().__init__()
        self.conv = convolution(channels, out, kernel, dilation)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.conv(states))


class Res2Net(nn.Module):
    def __init__(self, channels: int, scale: int, kernel: int, dilation: int):
        super().__init__()
        width = channels // scale
        self.scale = scale
        self.blocks = nn.ModuleList(TDNN(width, width, kernel, dilation) for _ in range(scale - 1))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        first, *rest = states.chunk(self.scale, dim=1)
        parts = [first]
        for index, (block, part) in enumerate(zip(self.blocks, rest, strict=True)):
            parts.append(block(part if index == 0 else part + parts[-1]))
        return torch.cat(parts, dim=1)


class SqueezeExcitation(nn.Module):
    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.conv1 = convolution(channels, squeezed)
        self.conv2 = convolution(squeezed, channels)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        mean = states.mean(dim=2, keepdim=True)
        return states * torch.sigmoid(self.conv2(functional.relu(self.conv1(mean))))


class SERes2Block(nn.Module):
    def __init__(self, config: Any, index: int):
        super().__init__()
        channels, out = config.enc_channels[index - 1 : index + 1]
        self.tdnn1 = TDNN(channels, out)
        self.res2net_block = Res2Net(
            out, config.enc_res2net_scale, config.enc_kernel_sizes[index], config.enc_dilations[index]
        )
        self.tdnn2 = TDNN(out, out)
        self.se_block = SqueezeExcitation(out, config.enc_se_channels)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.se_block(self.tdnn2(self.res2net_block(self.tdnn1(states)))) + states


class Pooling(nn.Module):
    """Attentive statistics pooling: ``[B, C, T]`` to weighted means and deviations ``[B, 2 C, 1]``."""

    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.tdnn = TDNN(channels * 3, inner)
        self.conv = convolution(inner, channels)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        ones = states.new_ones(len(states), 1, states.shape[2])
        mean, deviation = (
            one.unsqueeze(2).expand_as(states) for one in statistics(states, ones / ones.sum(dim=2, keepdim=True))
        )
        scores = self.conv(torch.tanh(self.tdnn(torch.cat((states, mean, deviation), dim=1))))
        return torch.cat(statistics(states, scores.softmax(dim=2)), dim=1).unsqueeze(2)


def statistics(states: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean = (weights * states).sum(2)
    variance = (weights * (states - mean.unsqueeze(2)).pow(2)).sum(2)
    return mean, variance.clamp(1e-12).sqrt()


class SpeakerEncoder(nn.Module):
    def __init__(self, config: Any):
        super().__init__()
        self.bands: int = config.mel_dim
        channels, kernels, dilations = config.enc_channels, config.enc_kernel_sizes, config.enc_dilations
        if not len(channels) == len(kernels) == len(dilations):
            raise ValueError("enc_channels, enc_kernel_sizes and enc_dilations in config.json differ in length")
        last = channels[-1]
        self.blocks = nn.ModuleList([TDNN(self.bands, channels[0], kernels[0], dilations[0])])
        self.blocks.extend(SERes2Block(config, index) for index in range(1, len(channels) - 1))
        self.mfa = TDNN(last, last, kernels[-1], dilations[-1])
        self.asp = Pooling(last, config.enc_attention_channels)
        self.fc = convolution(last * 2, config.enc_dim)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        """Return embeddings ``[B, H]`` of log mel spectrograms ``[B, mel_dim, T]``."""
        outs = [mel]
        for block in self.blocks:
            outs.append(block(outs[-1]))
        return self.fc(self.asp(self.mfa(torch.cat(outs[2:], dim=1)))).squeeze(-1)

    @torch.inference_mode()
    def embed(self, waveform: np.ndarray) -> torch.Tensor:
        """Return the embedding ``[H]`` of a mono waveform, float32 ``[T]`` at 24 kHz."""
        mel = log_mel(torch.from_numpy(waveform), self.bands)
        return self(mel[None].to(self.fc.weight.device, self.fc.weight.dtype))[0]


def log_mel(waveform: torch.Tensor, bands: int) -> torch.Tensor:
    """Return the log mel spectrogram ``[bands, T]`` of a waveform ``[samples]`` at 24 kHz."""
    around = (FFT - HOP) // 2
    padded = functional.pad(waveform[None], (around, around), mode="reflect")
    spectrum = torch.stft(padded, FFT, HOP, window=torch.hann_window(FFT), center=False, return_complex=True)[0]
    power = spectrum.real.square() + spectrum.imag.square()
    return torch.log((torch.from_numpy(mel_filters(bands)) @ (power + 1e-9).sqrt()).clamp(min=FLOOR))


def mel_filters(bands: int) -> np.ndarray:
    """Return librosa's mel filters, float32 ``[bands, FFT / 2 + 1]``, from 0 to TOP_HZ."""
    top = LOG_HZ / MEL_HZ + np.log(TOP_HZ / LOG_HZ) / LOG_STEP
    mels = np.linspace(0.0, top, bands + 2)
    log = LOG_HZ * np.exp(LOG_STEP * (mels - LOG_HZ / MEL_HZ))
    edges = np.where(mels >= LOG_HZ / MEL_HZ, log, MEL_HZ * mels)
    ramps = edges[:, None] - np.fft.rfftfreq(FFT, 1.0 / SAMPLE_RATE)[None]
    steps = np.diff(edges)[:, None]
    filters = np.maximum(0, np.minimum(-ramps[:-2] / steps[:-1], ramps[2:] / steps[1:])).astype(np.float32)
    filters *= (2.0 / (edges[2:] - edges[:-2]))[:, None]
    return filters


class Network(nn.Module):
    """All weights of a checkpoint's own file: the talker and, in a Base checkpoint, the speaker encoder."""

    def __init__(self, config: Any):
        super().__init__()
        self.talker = Talker(config.talker_config)
        is_base = config.tts_model_type == "base"
        self.speaker_encoder = SpeakerEncoder(config.speaker_encoder_config) if is_base else None
