"""A voice's embedding in a corpus: the mean of the speaker encoder's embeddings of some of its lines."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .codes import Codes

FRAMES = 320  # mel frames per line
LINES = 32  # maximum per voice


@torch.no_grad()
def embed_voices(
    codes: Codes, mels: torch.Tensor, embed: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return every voice's mean speaker embedding ``[S, H]`` over training lines; presets are made from these.

    Args:
        codes: the voices, in the order of ``codes.names``; one without training lines gets zeros.
        mels: ``codes.mels``, on the encoder's device.
        embed: packed mels uint8 ``[B, M, 128]`` to embeddings ``[B, H]``.

    Raises:
        ValueError: there are no training lines.
    """
    rows, starts = codes.first_takes("train"), codes.mel_starts
    if not len(rows):
        raise ValueError("these codes have no training line with mels: encode the corpus's train split")
    means: dict[int, torch.Tensor] = {}
    for voice in range(len(codes.names)):
        own = rows[codes.speakers[rows] == voice][:LINES]
        if len(own):
            begins, ends = torch.as_tensor(starts[own]), torch.as_tensor(starts[own + 1])
            index = begins[:, None] + torch.arange(FRAMES) % (ends - begins).clamp(min=1)[:, None]
            means[voice] = embed(mels[index.to(mels.device)]).mean(0)
    nobody = torch.zeros_like(next(iter(means.values())))
    return torch.stack([means.get(voice, nobody) for voice in range(len(codes.names))])
