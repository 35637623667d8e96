"""From recorded frames to what a tail learns from: states, and the exact distributions of the groups to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS
from qwen3_tts_morph.morph.study.sweep import embed_inputs, sampled_distribution

from .record import Recording

CHUNK = 512  # frames at once: 512 x 15 x 2048 float32 is 63 MB


@dataclass(frozen=True)
class Examples:
    """M frames. K is the sub-talker's top_k, or the whole codebook without one.

    Args:
        seq_groups: the n SEQ_GROUPS whose states are kept.
        states: ``[M, n, H]``, the predictor's states that groups S were drawn from.
        codes: ``[M, 16]`` int64.
        chances: float32 ``[M, 15, K]``, the exact distribution of each group as the sub-talker filters it, given the
            groups before it; the likeliest first.
        tokens: ``[M, 15, K]`` int32, whose chances they are.
    """

    seq_groups: tuple[int, ...]
    states: torch.Tensor
    codes: torch.Tensor
    chances: torch.Tensor
    tokens: torch.Tensor

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: torch.Tensor | slice) -> Examples:
        """Some of the frames."""
        return self._of(self.states[rows], self.codes[rows], self.chances[rows], self.tokens[rows])

    def last_states(self, seq_groups: int) -> torch.Tensor:
        """What the tail of a SEQ_GROUPS is given: ``[M, H]``; ValueError when it was not kept."""
        return self.states[:, self.seq_groups.index(seq_groups)]

    def _of(self, *tensors: torch.Tensor) -> Examples:
        return Examples(self.seq_groups, *tensors)


@torch.no_grad()
def make_examples(
    model: Model, recording: Recording, takes: int, seed: int, seq_groups: Sequence[int]
) -> Examples:
    """Examples of recorded frames as they were spoken, and of ``takes - 1`` further draws of groups 1-15.

    Given the talker's state and group 0, groups 1-15 are drawn anew by the exact predictor: what the tail has to
    know is the mean over such draws, and they cost no talker.
    """
    predictor, draw = Predictor(model.talker.code_predictor), model.sampling.subtalker
    random = torch.Generator(model.device).manual_seed(seed)
    parts = []
    for take in range(takes):
        for start in range(0, len(recording.codes), CHUNK):
            rows = slice(start, start + CHUNK)
            hidden = recording.hidden[rows, None].to(model.device)
            codes = recording.codes[rows].to(model.device)
            if take > 0:
                first = model.talker.get_input_embeddings()(codes[:, :1])
                drawn = predictor.decode_frame(hidden, first, PREDICTED_GROUPS, draw, random)
                codes = torch.cat((codes[:, :1], drawn), dim=1)
            parts.append(_examine(model, predictor, hidden, codes, seq_groups))
    return Examples(tuple(seq_groups), *(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _examine(
    model: Model,
    predictor: Predictor,
    hidden: torch.Tensor,
    codes: torch.Tensor,
    seq_groups: Sequence[int],
) -> tuple[torch.Tensor, ...]:
    """The tensors of ``Examples`` for some frames."""
    draw = model.sampling.subtalker
    states = predictor.teacher_force(hidden, embed_inputs(model, codes))
    exact = sampled_distribution(torch.einsum("gvh,bgh->bgv", predictor.heads, states), draw)
    kept = min(draw.top_k, exact.shape[-1]) if draw.do_sample and draw.top_k else exact.shape[-1]
    chances, tokens = exact.topk(kept, dim=-1)
    return states[:, [one - 1 for one in seq_groups]], codes, chances, tokens.int()
