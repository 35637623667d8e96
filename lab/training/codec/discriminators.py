"""Small discriminators of waveforms: by period (HiFi-GAN) and of complex spectra (EnCodec, DAC)."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from ..branches import Branches
from .config import Adversarial
from .losses import Opinion, discriminator_loss, feature_loss, generator_loss

SLOPE = 0.1
ALIGNED = 8  # bf16 channels that tensor cores process together

Judged = tuple[torch.Tensor, list[torch.Tensor]]  # scores, and the feature maps of the layers before


def _stack(layers: list[nn.Module], last: nn.Module) -> tuple[nn.ModuleList, nn.Module]:
    return nn.ModuleList(weight_norm(layer) for layer in layers), weight_norm(last)


class AlignedConv2d(nn.Conv2d):
    """A convolution with few channels, padded with zeros: the same result from faster kernels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve ``[B, C, H, W]`` as ``nn.Conv2d`` does."""
        missing = (0, 0, 0, 0, 0, -self.in_channels % ALIGNED)
        x = functional.pad(x, missing).contiguous(memory_format=torch.channels_last)
        weight = functional.pad(self.weight, missing)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation)


class PeriodDiscriminator(nn.Module):
    """Convolves over samples that are ``period`` apart."""

    def __init__(self, period: int, channels: tuple[int, ...]):
        super().__init__()
        self.period = period
        widths = (1, *channels)
        layers: list[nn.Module] = [
            nn.Conv2d(before, after, (5, 1), (3, 1), padding=(2, 0)) for before, after in pairwise(widths)
        ]
        self.layers, self.last = _stack(layers, nn.Conv2d(channels[-1], 1, (3, 1), padding=(1, 0)))

    def forward(self, wave: torch.Tensor) -> Judged:
        """Judge ``[B, T]``."""
        wave = wave[:, : wave.shape[-1] // self.period * self.period]
        return _judge(wave.unflatten(1, (-1, self.period)).unsqueeze(1), self.layers, self.last)


class SpectrumDiscriminator(nn.Module):
    """Convolves over a compressed complex spectrum."""

    window: torch.Tensor

    def __init__(self, n_fft: int, channels: int):
        super().__init__()
        self.n_fft = n_fft
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        layers: list[nn.Module] = [AlignedConv2d(2, channels, (3, 9), padding=(1, 4))]
        for dilation in (1, 2, 4):
            layers.append(
                nn.Conv2d(channels, channels, (3, 9), (1, 2), dilation=(dilation, 1), padding=(dilation, 4))
            )
        self.layers, self.last = _stack(layers, nn.Conv2d(channels, 1, (3, 3), padding=(1, 1)))

    def forward(self, wave: torch.Tensor) -> Judged:
        """Judge ``[B, T]``."""
        with torch.autocast(wave.device.type, enabled=False):
            spectrum = torch.stft(
                wave.float(), self.n_fft, self.n_fft // 4, window=self.window, return_complex=True
            )
            planes = torch.view_as_real(spectrum).permute(0, 3, 2, 1)  # [B, 2, frames, bins]
            # Magnitudes to the power of 0.3, so that quiet high frequencies count too.
            planes = planes * (planes.square().sum(1, keepdim=True) + 1e-6).pow(-0.35)
        return _judge(planes, self.layers, self.last)


def _judge(x: torch.Tensor, layers: nn.ModuleList, last: nn.Module) -> Judged:
    # Channels last: with few channels the GPU's GEMMs are several times faster.
    x = x.contiguous(memory_format=torch.channels_last)
    features = []
    for layer in layers:
        x = functional.leaky_relu(layer(x), SLOPE)
        features.append(x)
    return last(x), features


class Discriminators(nn.Module):
    """All discriminators."""

    def __init__(self, options: Adversarial):
        super().__init__()
        periods = [PeriodDiscriminator(period, options.period_channels) for period in options.periods]
        spectra = [SpectrumDiscriminator(size, options.stft_channels) for size in options.stft_sizes]
        self.members = nn.ModuleList([*periods, *spectra])

    def forward(self, wanted: torch.Tensor, made: torch.Tensor, branches: Branches) -> Opinion:
        """Compare recordings with decoded speech, both ``[B, T]``; return the mean losses of all discriminators."""
        with parametrize.cached():  # normalise the weights once for both
            each = branches.run([partial(_compare, member, wanted, made) for member in self.members])
        return Opinion(*(torch.stack(losses).mean() for losses in zip(*each, strict=True)))


def _compare(member: nn.Module, wanted: torch.Tensor, made: torch.Tensor) -> Opinion:
    (real, real_maps), (fake, fake_maps) = member(wanted), member(made)
    return Opinion(discriminator_loss(real, fake), generator_loss(fake), feature_loss(real_maps, fake_maps))
