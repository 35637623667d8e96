"""Losses of a decoded crop: spectra at several resolutions, and the phones that group 0 should encode."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from transformers.audio_utils import mel_filter_bank

from ..branches import IN_ORDER, Branches
from .config import SAMPLE_RATE, Losses

FLOOR = 1e-5  # of magnitudes and mels before the logarithm: about the noise level of 16 bits


def mel_filters(n_fft: int, bins: int) -> torch.Tensor:
    """Return Slaney's mel filters ``[n_fft // 2 + 1, bins]``, each with sum 1: a filter averages magnitudes."""
    filters = mel_filter_bank(
        num_frequency_bins=n_fft // 2 + 1,
        num_mel_filters=bins,
        min_frequency=0.0,
        max_frequency=SAMPLE_RATE / 2,
        sampling_rate=SAMPLE_RATE,
        norm="slaney",
        mel_scale="slaney",
    )
    return torch.from_numpy(filters).float() * (SAMPLE_RATE / n_fft)


def magnitude(wave: torch.Tensor, n_fft: int, window: torch.Tensor) -> torch.Tensor:
    """Return magnitudes of ``[B, T]`` as ``[B, frames, bins]``; a full-scale sine has magnitude 1."""
    spectrum = torch.stft(wave, n_fft, n_fft // 4, window=window, return_complex=True)
    power = torch.view_as_real(spectrum).square().sum(-1)
    return (power + 1e-10).sqrt().transpose(1, 2) * (2 / window.sum())


class SpectralLoss(nn.Module):
    """Distances of magnitudes, log magnitudes and log mels, each a mean over resolutions."""

    def __init__(self, options: Losses):
        super().__init__()
        self.resolutions = options.resolutions
        for n_fft, bins in self.resolutions:
            self.register_buffer(f"window_{n_fft}", torch.hann_window(n_fft), persistent=False)
            self.register_buffer(f"mel_{n_fft}", mel_filters(n_fft, bins), persistent=False)

    def forward(
        self, made: torch.Tensor, wanted: torch.Tensor, branches: Branches = IN_ORDER
    ) -> dict[str, torch.Tensor]:
        """Return the distances of two float32 batches ``[B, T]``: two in nepers, the last relative to ``wanted``."""
        with torch.autocast(made.device.type, enabled=False):
            each = branches.run(
                [partial(self._compare, n_fft, made, wanted) for n_fft, _ in self.resolutions]
            )
        names = ("mel", "log_magnitude", "magnitude")
        return {name: torch.stack(values).mean() for name, *values in zip(names, *each, strict=True)}

    def _compare(self, n_fft: int, made: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the three distances at one resolution."""
        window, filters = getattr(self, f"window_{n_fft}"), getattr(self, f"mel_{n_fft}")
        ours = magnitude(made, n_fft, window)
        with torch.no_grad():
            theirs = magnitude(wanted, n_fft, window)
        return (
            (log(ours @ filters) - log(theirs @ filters)).abs().mean(),
            (log(ours) - log(theirs)).abs().mean(),
            (ours - theirs).abs().sum() / theirs.sum().clamp(min=FLOOR),
        )


def log(magnitude: torch.Tensor) -> torch.Tensor:
    """Return the natural logarithm, with a floor."""
    return magnitude.clamp(min=FLOOR).log()


def phone_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy of logits ``[..., P]`` with labels ``[..., cells]``, several per prediction; -1 is unknown."""
    each = logits.float().log_softmax(-1).gather(-1, labels.clamp(min=0))
    known = labels >= 0
    return -(each * known).sum() / known.sum().clamp(min=1)


def phone_accuracy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Share of cells whose label has the highest logit."""
    known = labels >= 0
    return ((logits.argmax(-1, keepdim=True) == labels) & known).sum() / known.sum().clamp(min=1)


class Opinion(NamedTuple):
    """A discriminator's losses: its own, and the codec's from its scores and from its feature maps."""

    telling: torch.Tensor
    fooling: torch.Tensor
    features: torch.Tensor


def discriminator_loss(real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """Least squares: scores should be 1 for recordings and 0 for decoded speech."""
    return (1 - real.float()).square().mean() + fake.float().square().mean()


def generator_loss(fake: torch.Tensor) -> torch.Tensor:
    """Least squares: scores of decoded speech should be 1."""
    return (1 - fake.float()).square().mean()


def feature_loss(real: list[torch.Tensor], fake: list[torch.Tensor]) -> torch.Tensor:
    """Mean distance of a discriminator's feature maps from those of recordings, relative to their size."""
    terms = []
    for r, f in zip(real, fake, strict=True):
        wanted = r.detach().float()
        terms.append(functional.l1_loss(f.float(), wanted) / wanted.abs().mean().clamp(min=FLOOR))
    return torch.stack(terms).mean()
