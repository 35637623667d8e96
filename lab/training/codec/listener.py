"""A small network that recognises the training voices; it compares a decoded voice with its recording.

It learns only from recordings, alongside the codec. It is not the judge: the speaker encoder that evaluates the voice
(``lab/judges/speaker.py``) is another network, made by others from other speech.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from .losses import FLOOR, log, magnitude, mel_filters

N_FFT, BINS = 1024, 64
WIDTH, EMBEDDING = 192, 128
DILATIONS = (1, 2, 3)
SCALE = 16.0  # factor of the cosines in the softmax over voices
SLOPE = 0.1


@dataclass(frozen=True)
class Heard:
    """Result for ``[B]`` crops: unit vectors ``[B, EMBEDDING]``, feature maps, scores of the voices ``[B, voices]``."""

    embedding: torch.Tensor
    features: list[torch.Tensor]
    scores: torch.Tensor


class Listener(nn.Module):
    """Convolutions over a log mel spectrum, then mean and standard deviation over time."""

    window: torch.Tensor
    filters: torch.Tensor

    def __init__(self, voices: int):
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)
        self.register_buffer("filters", mel_filters(N_FFT, BINS), persistent=False)
        self.first = nn.Conv1d(BINS, WIDTH, 5, padding=2)
        self.blocks = nn.ModuleList(
            nn.Conv1d(WIDTH, WIDTH, 3, padding=dilation, dilation=dilation) for dilation in DILATIONS
        )
        self.norms = nn.ModuleList(nn.GroupNorm(1, WIDTH) for _ in DILATIONS)
        self.last = nn.Linear(2 * WIDTH, EMBEDDING)
        self.voices = nn.Parameter(torch.randn(voices, EMBEDDING) / EMBEDDING**0.5)

    def forward(self, wave: torch.Tensor) -> Heard:
        """Embed crops ``[B, T]``."""
        with torch.autocast(wave.device.type, enabled=False):
            mels = log(magnitude(wave.float(), N_FFT, self.window) @ self.filters)
            # The level carries no information about the voice.
            mels = (mels - mels.mean(dim=(1, 2), keepdim=True)).transpose(1, 2)
        x = self.first(mels)
        features = []
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + functional.leaky_relu(block(norm(x)), SLOPE)
            features.append(x)
        x = x.float()
        found = torch.cat((x.mean(2), (x.var(2, correction=0) + 1e-5).sqrt()), dim=1)
        embedding = functional.normalize(self.last(found).float(), dim=1)
        return Heard(embedding, features, SCALE * embedding @ functional.normalize(self.voices, dim=1).T)


def speaker_loss(heard: Heard, voices: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the recognised voices with the true ones, ``[B]``."""
    return functional.cross_entropy(heard.scores, voices)


def voice_loss(made: Heard, wanted: Heard) -> torch.Tensor:
    """Distance of decoded voices from recorded ones: 1 minus the cosine, plus the feature maps' relative distance.

    A mean over crops, so that a crop's loss does not depend on the rest of the batch.
    """
    cosine = (made.embedding * wanted.embedding.detach()).sum(1)
    terms = [1 - cosine]
    for ours, theirs in zip(made.features, wanted.features, strict=True):
        aim = theirs.detach().float().flatten(1)
        distance = (ours.float().flatten(1) - aim).abs().mean(1)
        terms.append(distance / aim.abs().mean(1).clamp(min=FLOOR) / len(made.features))
    return torch.stack(terms).sum(0).mean()
