"""Small discriminators of waveforms: by period (HiFi-GAN), of complex spectra (EnCodec, DAC) and of magnitudes.

Those of magnitudes do not hear phase. Where the codes do not tell a harmonic's phase, features that depend on it can
only be matched on average, and that average has no harmonic.
"""

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


def _spectrum_stack(planes: int, channels: int) -> tuple[nn.ModuleList, nn.Module]:
    layers: list[nn.Module] = [AlignedConv2d(planes, channels, (3, 9), padding=(1, 4))]
    for dilation in (1, 2, 4):
        layers.append(
            nn.Conv2d(channels, channels, (3, 9), (1, 2), dilation=(dilation, 1), padding=(dilation, 4))
        )
    return _stack(layers, nn.Conv2d(channels, 1, (3, 3), padding=(1, 1)))


def _complex_planes(wave: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    """Return the spectrum ``[B, 2, frames, bins]`` of ``[B, T]``, in float32."""
    size = len(window)
    spectrum = torch.stft(wave.float(), size, size // 4, window=window, return_complex=True)
    return torch.view_as_real(spectrum).permute(0, 3, 2, 1)


class SpectrumDiscriminator(nn.Module):
    """Convolves over a compressed complex spectrum."""

    window: torch.Tensor

    def __init__(self, n_fft: int, channels: int):
        super().__init__()
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        self.layers, self.last = _spectrum_stack(2, channels)

    def forward(self, wave: torch.Tensor) -> Judged:
        """Judge ``[B, T]``."""
        with torch.autocast(wave.device.type, enabled=False):
            planes = _complex_planes(wave, self.window)
            # Magnitudes to the power of 0.3, so that quiet high frequencies count too.
            planes = planes * (planes.square().sum(1, keepdim=True) + 1e-6).pow(-0.35)
        return _judge(planes, self.layers, self.last)


class MagnitudeDiscriminator(nn.Module):
    """Convolves over compressed magnitudes, each band with its own weights (DAC)."""

    window: torch.Tensor

    def __init__(self, n_fft: int, channels: int, bands: tuple[float, ...]):
        super().__init__()
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        bins = n_fft // 2 + 1
        self.cuts = [(round(low * bins), round(high * bins)) for low, high in pairwise(bands)]
        stacks = [_spectrum_stack(1, channels) for _ in self.cuts]
        self.stacks = nn.ModuleList(layers for layers, _ in stacks)
        self.lasts = nn.ModuleList(last for _, last in stacks)

    def forward(self, wave: torch.Tensor) -> Judged:
        """Judge ``[B, T]``; the scores of all bands are side by side."""
        with torch.autocast(wave.device.type, enabled=False):
            power = _complex_planes(wave, self.window).square().sum(1, keepdim=True)
            planes = (power + 1e-6).pow(0.15)
        scores, features = [], []
        for (low, high), layers, last in zip(self.cuts, self.stacks, self.lasts, strict=True):
            score, maps = _judge(planes[..., low:high], layers, last)
            scores.append(score)
            features += maps
        return torch.cat(scores, dim=-1), features


def _judge(x: torch.Tensor, layers: nn.Module, last: nn.Module) -> Judged:
    # Channels last: with few channels the GPU's GEMMs are several times faster.
    x = x.contiguous(memory_format=torch.channels_last)
    features = []
    for layer in layers.children():
        x = functional.leaky_relu(layer(x), SLOPE)
        features.append(x)
    return last(x), features


class Discriminators(nn.Module):
    """All discriminators."""

    def __init__(self, options: Adversarial):
        super().__init__()
        periods = [PeriodDiscriminator(period, options.period_channels) for period in options.periods]
        spectra = [SpectrumDiscriminator(size, options.stft_channels) for size in options.stft_sizes]
        magnitudes = [
            MagnitudeDiscriminator(size, options.stft_channels, options.bands)
            for size in options.magnitude_sizes
        ]
        self.members = nn.ModuleList([*periods, *spectra, *magnitudes])
        self.unmatched = 0 if options.phase_features else len(periods) + len(spectra)

    def forward(self, wanted: torch.Tensor, made: torch.Tensor, branches: Branches) -> Opinion:
        """Compare recordings with decoded speech, both ``[B, T]``; return the discriminators' mean losses.

        The features' mean is over the members whose features are matched.
        """
        with parametrize.cached():  # normalise the weights once for both
            each = branches.run([partial(_compare, member, wanted, made) for member in self.members])
        telling, fooling, features = zip(*each, strict=True)
        matched = features[self.unmatched :]
        return Opinion(*(torch.stack(losses).mean() for losses in (telling, fooling, matched)))


def _compare(member: nn.Module, wanted: torch.Tensor, made: torch.Tensor) -> Opinion:
    (real, real_maps), (fake, fake_maps) = member(wanted), member(made)
    return Opinion(discriminator_loss(real, fake), generator_loss(fake), feature_loss(real_maps, fake_maps))
