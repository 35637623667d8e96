"""The speaker encoder of Base checkpoints, an ECAPA-TDNN: upstream's parameter names and arithmetic, bit for bit."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SAMPLE_RATE, FFT, HOP, TOP_HZ = 24000, 1024, 256, 12000.0
FLOOR = 1e-5  # of the spectrogram, before its logarithm
# Slaney's mel scale: linear up to 1 kHz, then logarithmic.
MEL_HZ, LOG_HZ, LOG_STEP = 200.0 / 3, 1000.0, np.log(6.4) / 27.0


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
