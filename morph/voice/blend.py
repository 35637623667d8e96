"""Blend voices: the weighted mean of their speaker embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..model.model import SIZE_NAMES
from .voice import Voice


def blend_voices(voices: Sequence[Voice], weights: Sequence[float]) -> Voice:
    """Return an x-vector voice whose speaker embedding is the weighted mean of the voices' embeddings.

    Args:
        voices: two or more cloned voices of one model size; of ICL voices only the embedding is used.
        weights: one per voice, none below 0 and at least one above; they are divided by their sum.

    Raises:
        ValueError: for voices or weights that cannot be blended.
    """
    _check_weights(voices, weights)
    embeddings = _embeddings_of(voices)
    shares = torch.tensor([weight / sum(weights) for weight in weights])
    mixed = (torch.stack([one.float() for one in embeddings]) * shares[:, None]).sum(0)
    name = " + ".join(
        f"{share:.0%} {voice.name}" for share, voice in zip(shares.tolist(), voices, strict=True)
    )
    return Voice("x_vector", voices[0].model_size, name, speaker_embedding=mixed.to(embeddings[0].dtype))


def _check_weights(voices: Sequence[Voice], weights: Sequence[float]) -> None:
    if len(voices) < 2 or len(voices) != len(weights):
        raise ValueError(
            f"{len(voices)} voices and {len(weights)} weights: give two or more voices and a weight for each"
        )
    if any(not math.isfinite(weight) or weight < 0 for weight in weights) or not 0 < sum(weights) < math.inf:
        raise ValueError(f"weights are {list(weights)}: choose 0 or more, and at least one above 0")


def _embeddings_of(voices: Sequence[Voice]) -> list[torch.Tensor]:
    """Return the voices' speaker embeddings, all of one model size and width."""
    sizes = sorted({voice.model_size for voice in voices})
    if len(sizes) > 1:
        shown = ", ".join(SIZE_NAMES.get(size, size) for size in sizes)
        raise ValueError(
            f"voices of different model sizes ({shown}) cannot be blended: clone them with one model"
        )
    embeddings = []
    for voice in voices:
        if voice.speaker_embedding is None:
            raise ValueError(
                f"voice {voice.name!r} ({voice.kind}) has no speaker embedding: blend cloned voices"
            )
        embeddings.append(voice.speaker_embedding)
    widths = sorted({len(embedding) for embedding in embeddings})
    if len(widths) > 1:
        raise ValueError(
            f"voices whose embeddings have {' and '.join(map(str, widths))} numbers cannot be blended: "
            "clone them with one model"
        )
    return embeddings
