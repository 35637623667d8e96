"""The training loss: group 0 and the end for the talker, groups 1-15 for the code predictor, teacher forced."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from .examples import NOTHING, Batch


def losses(
    talker: Any, batch: Batch, frames: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean losses of group 0 with the end, and of groups 1-15.

    Args:
        talker: the model's.
        batch: lines.
        frames: indices into the batch's frames, those that the code predictor learns; None: all.
    """
    hidden = talker.model(batch.inputs)
    first = cross_entropy(
        talker.codec_head(hidden).flatten(0, 1).float(), batch.targets.flatten(), ignore_index=NOTHING
    )
    codes, places = (
        (batch.codes, batch.places) if frames is None else (batch.codes[frames], batch.places[frames])
    )
    logits = predict_groups(talker, hidden.flatten(0, 1)[places], codes)
    return first, cross_entropy(logits.flatten(0, 1).float(), codes[:, 1:].flatten())


def predict_groups(talker: Any, hidden: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Return the predictor's logits ``[K, 15, V]`` for the talker's states ``[K, H]`` before frames ``[K, 16]``.

    As upstream's ``forward_sub_talker_finetune``, whose loss compares each group with the one after it.
    """
    predictor = talker.code_predictor
    tables = [talker.model.codec_embedding, *predictor.model.codec_embedding]
    known = [table(codes[:, group]) for group, table in enumerate(tables[:-1])]
    states = predictor.model(predictor.small_to_mtp_projection(torch.stack((hidden, *known), dim=1)))
    return torch.stack([head(states[:, group]) for group, head in enumerate(predictor.lm_head, 1)], dim=1)
