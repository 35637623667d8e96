"""Training examples for a tail, from recorded frames: states, and the exact distributions of the groups to predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS
from qwen3_tts_morph.morph.study.sweep import embed_inputs, sampled_distribution

from .record import Recording

CHUNK = 512  # frames per pass: 512 x 15 x 2048 float32 is 63 MB


@dataclass(frozen=True)
class Examples:
    """M frames. K is the sub-talker's top_k, or the size of the codebook without top_k.

    Args:
        seq_groups: the n SEQ_GROUPS whose states are stored.
        states: ``[M, n, H]``, the predictor's states that groups S were sampled from.
        codes: ``[M, 16]`` int64.
        probabilities: float32 ``[M, 15, K]``, the exact distribution of each group after the sub-talker's filters,
            given the groups before it; descending.
        tokens: ``[M, 15, K]`` int32, the tokens that they belong to.
    """

    seq_groups: tuple[int, ...]
    states: torch.Tensor
    codes: torch.Tensor
    probabilities: torch.Tensor
    tokens: torch.Tensor

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: torch.Tensor | slice) -> Examples:
        return self._of(self.states[rows], self.codes[rows], self.probabilities[rows], self.tokens[rows])

    def last_states(self, seq_groups: int) -> torch.Tensor:
        """Return the inputs of the tail of a SEQ_GROUPS, ``[M, H]``; raises ValueError if they are not stored."""
        return self.states[:, self.seq_groups.index(seq_groups)]

    def _of(self, *tensors: torch.Tensor) -> Examples:
        return Examples(self.seq_groups, *tensors)


@torch.no_grad()
def make_examples(model: Model, recording: Recording, takes: int, seed: int, seq_groups: Sequence[int]) -> Examples:
    """Return examples of recorded frames as spoken, and of ``takes - 1`` further samples of groups 1-15.

    The exact predictor samples groups 1-15 again, given the talker's state and group 0. A tail must learn the mean over
    such samples, and they need no pass of the talker.
    """
    predictor, sampling = Predictor(model.talker.code_predictor), model.sampling.subtalker
    random = torch.Generator(model.device).manual_seed(seed)
    parts = []
    for take in range(takes):
        for start in range(0, len(recording.codes), CHUNK):
            rows = slice(start, start + CHUNK)
            hidden = recording.hidden[rows, None].to(model.device)
            codes = recording.codes[rows].to(model.device)
            if take > 0:
                first = model.talker.model.codec_embedding(codes[:, :1])
                sampled = predictor.decode_frame(hidden, first, PREDICTED_GROUPS, sampling, random)
                codes = torch.cat((codes[:, :1], sampled), dim=1)
            parts.append(_examine(model, predictor, hidden, codes, seq_groups))
    return Examples(tuple(seq_groups), *(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _examine(
    model: Model,
    predictor: Predictor,
    hidden: torch.Tensor,
    codes: torch.Tensor,
    seq_groups: Sequence[int],
) -> tuple[torch.Tensor, ...]:
    """Return the tensors of ``Examples`` for some frames."""
    sampling = model.sampling.subtalker
    states = predictor.teacher_force(hidden, embed_inputs(model, codes))
    exact = sampled_distribution(torch.einsum("gvh,bgh->bgv", predictor.heads, states), sampling)
    kept = min(sampling.top_k, exact.shape[-1]) if sampling.do_sample and sampling.top_k else exact.shape[-1]
    probabilities, tokens = exact.topk(kept, dim=-1)
    return states[:, [one - 1 for one in seq_groups]], codes, probabilities, tokens.int()
