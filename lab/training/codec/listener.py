"""A small network that tells the training's voices apart: a decoded voice is held against its recording by it.

It learns from recordings alone, beside the codec. It is no judge: the speaker encoder that judges a voice in the end
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
SCALE = 16.0  # of a cosine, for the softmax over voices
SLOPE = 0.1


@dataclass(frozen=True)
class Heard:
    """Of ``[B]`` crops: unit vectors ``[B, EMBEDDING]``, inner maps, and a score for each voice ``[B, voices]``."""

    embedding: torch.Tensor
    features: list[torch.Tensor]
    scores: torch.Tensor


class Listener(nn.Module):
    """Convolutions over a log mel spectrum, and the mean and spread of what they find."""

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
        """Hear ``[B, T]``."""
        with torch.autocast(wave.device.type, enabled=False):
            mels = log(magnitude(wave.float(), N_FFT, self.window) @ self.filters)
            # The level says nothing about a voice.
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


def telling_loss(heard: Heard, voices: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the voices ``[B]`` that were heard."""
    return functional.cross_entropy(heard.scores, voices)


def voice_loss(made: Heard, wanted: Heard) -> torch.Tensor:
    """How far decoded voices are from recorded ones: 1 less the cosine, and the inner maps' relative distance.

    A mean over crops, so that the batch's other crops do not matter.
    """
    cosine = (made.embedding * wanted.embedding.detach()).sum(1)
    terms = [1 - cosine]
    for ours, theirs in zip(made.features, wanted.features, strict=True):
        aim = theirs.detach().float().flatten(1)
        distance = (ours.float().flatten(1) - aim).abs().mean(1)
        terms.append(distance / aim.abs().mean(1).clamp(min=FLOOR) / len(made.features))
    return torch.stack(terms).sum(0).mean()
