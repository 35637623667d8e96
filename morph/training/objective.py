"""The training loss: group 0 and the end for the talker, groups 1-15 for the code predictor, teacher forced."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch.nn.functional import cross_entropy, kl_div

from .examples import NOTHING, Batch

# Of group 0 with the end, ``[P, V]``, and of groups 1-15, ``[K * 15, V]``, in float32.
Logits: TypeAlias = tuple[torch.Tensor, torch.Tensor]


def predict(talker: Any, batch: Batch, frames: torch.Tensor | None = None, shift: torch.Tensor | None = None) -> Logits:
    """Return a talker's logits for the batch's targets.

    Args:
        talker: the model's.
        batch: lines.
        frames: indices into the batch's frames, those that the code predictor learns; None: all.
        shift: is added to the speaker of x-vector clones.
    """
    hidden = talker.model(batch.inputs if shift is None else batch.shift_speakers(shift))
    first = talker.codec_head(hidden[batch.targets != NOTHING])
    codes, places = (batch.codes, batch.places) if frames is None else (batch.codes[frames], batch.places[frames])
    rest = predict_groups(talker, hidden.flatten(0, 1)[places], codes)
    return first.float(), rest.flatten(0, 1).float()


def losses(logits: Logits, batch: Batch, frames: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean losses of group 0 with the end, and of groups 1-15; ``frames`` as in ``predict``."""
    codes = batch.codes if frames is None else batch.codes[frames]
    first = cross_entropy(logits[0], batch.targets[batch.targets != NOTHING])
    return first, cross_entropy(logits[1], codes[:, 1:].flatten())


def divergence(logits: Logits, known: Logits) -> torch.Tensor:
    """Return the mean KL divergence from known probabilities, of group 0 and of groups 1-15 together."""
    first, rest = (
        kl_div(now.log_softmax(-1), before.log_softmax(-1), reduction="batchmean", log_target=True)
        for now, before in zip(logits, known, strict=True)
    )
    return first + rest


def predict_groups(talker: Any, hidden: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Return the predictor's logits ``[K, 15, V]`` for the talker's states ``[K, H]`` before frames ``[K, 16]``.

    As upstream's ``forward_sub_talker_finetune``, whose loss compares each group with the one after it.
    """
    predictor = talker.code_predictor
    tables = [talker.model.codec_embedding, *predictor.model.codec_embedding]
    known = [table(codes[:, group]) for group, table in enumerate(tables[:-1])]
    states = predictor.model(predictor.small_to_mtp_projection(torch.stack((hidden, *known), dim=1)))
    return torch.stack([head(states[:, group]) for group, head in enumerate(predictor.lm_head, 1)], dim=1)
