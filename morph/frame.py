"""One whole frame over static buffers: groups 1-15, the talker's step, the next group 0. Made to be captured.

Nothing here reads from the device, no shape depends on data, and what a frame leaves behind is written into the
buffers of ``slots.py`` in place. On the CPU the same functions are simply called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from .eager import MIN_NEW_TOKENS
from .layers import Decoder, run_layers
from .model import Model
from .noise import GROUPS, gumbel_noise
from .predictor import crossbar
from .slots import LineState, Slots
from .static_cache import Span, Step
from .static_sampling import draw_static
from .weights import stack


@dataclass(frozen=True)
class Weights:
    """All weights of a frame, as views of the model's parameters; see ``Decoder`` for how long to hold them.

    ``first_table`` and ``first_head`` are group 0's ``[V, H]``, ``tables`` ``[15, V, H]`` and ``heads``
    ``[15, V, H_predictor]`` the others'; ``projection`` is weight and bias from one width to the other, or None.
    """

    talker: Decoder
    predictor: Decoder
    first_table: torch.Tensor
    first_head: torch.Tensor
    tables: torch.Tensor
    heads: torch.Tensor
    projection: tuple[torch.Tensor, torch.Tensor] | None

    @classmethod
    def of(cls, model: Model) -> Weights:
        """Views of a model's weights where they are now; joins those that are not joined yet.

        Raises:
            ValueError: for a config that the graph engine does not compute.
        """
        talker, predictor = model.talker, model.talker.code_predictor
        return cls(
            talker=Decoder.of(talker.model),
            predictor=Decoder.of(predictor.model),
            first_table=talker.get_input_embeddings().weight.detach(),
            first_head=talker.codec_head.weight.detach(),
            tables=model.code_tables(),
            heads=stack(predictor.lm_head),
            projection=_view_projection(predictor.small_to_mtp_projection),
        )

    def addresses(self) -> tuple[int, ...]:
        """Where all of them live: a graph that was captured with other addresses must not be replayed."""
        tensors = [self.first_table, self.first_head, self.tables, self.heads, *(self.projection or ())]
        for decoder in (self.talker, self.predictor):
            tensors += [decoder.qk_norms, decoder.norm]
            tensors += [value for layer in decoder.layers for value in vars(layer).values()]
        return tuple(tensor.data_ptr() for tensor in tensors)


def _view_projection(module: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    if isinstance(module, torch.nn.Identity):
        return None
    return module.weight.detach(), module.bias.detach()


def prefill(weights: Weights, slots: Slots, first: int, embeds: torch.Tensor, lengths: torch.Tensor) -> None:
    """Run the prompts of lines ``first ..`` and draw group 0 of their first frame.

    Args:
        weights: the model's.
        slots: their lines have been ``put``.
        first: the first line's row.
        embeds: ``[N, T, H]``; a shorter prompt is padded on the right, where no causal pass looks.
        lengths: int64 ``[N]``, each prompt's length.
    """
    count, length = embeds.shape[:2]
    rows = slice(first, first + count)
    state = slots.state.lines(rows)
    view = Span(slots.cache.lines(rows), 0, length)
    head_norms = weights.talker.head_norms()
    states = run_layers(weights.talker, embeds, slots.angles.span(0, length), head_norms, view)
    state.positions.copy_(lengths)
    last = (lengths - 1)[:, None, None].expand(-1, 1, states.shape[2])
    counters = (state.steps * GROUPS)[:, None]
    noise = gumbel_noise(state.keys, counters, len(weights.first_head))[:, 0]
    _start_frame(weights, slots, state, states.gather(1, last)[:, 0], noise)


def decode_frame(weights: Weights, slots: Slots, seq_groups: int, window: int) -> None:
    """Make every line's next frame, report it, and draw group 0 of the one after.

    ``window`` is how many positions of the cache are looked at; a line that has run beyond it (one that has ended)
    writes to its last position over and over, and touches no other line.
    """
    state = slots.state
    noise = _frame_noise(weights, state)
    codes = predict(weights, slots, seq_groups, noise[:, 1:, : slots.codebook])
    state.report[:, :GROUPS].copy_(codes)
    hidden = _step_talker(weights, slots, codes, window)
    state.positions.add_(1)
    state.steps.add_(1)
    _start_frame(weights, slots, state, hidden, noise[:, 0, : len(weights.first_head)])


def _frame_noise(weights: Weights, state: LineState) -> torch.Tensor:
    """The frame's noise in one go, ``[B, 16, V]``: the next frame's group 0, then this frame's groups 1-15."""
    groups = torch.arange(GROUPS, device=state.steps.device)
    frames = state.steps[:, None] + (groups == 0)
    width = max(len(weights.first_head), weights.heads.shape[1])
    return gumbel_noise(state.keys, frames * GROUPS + groups, width)


def predict(weights: Weights, slots: Slots, seq_groups: int, noise: torch.Tensor) -> torch.Tensor:
    """A frame's 16 codes ``[B, 16]``: ``seq_groups`` passes of the predictor, the crossbar for the rest.

    ``noise`` is ``[B, 15, V]``.
    """
    state, decoder = slots.state, weights.predictor
    head_norms = decoder.head_norms()
    codes = [state.tokens]
    first = functional.embedding(state.tokens, weights.first_table)
    inputs = torch.stack((state.hidden, first), dim=1)
    for group in range(seq_groups):
        if group > 0:
            inputs = functional.embedding(codes[-1], weights.tables[group - 1])[:, None]
        start, end = group + 1 if group else 0, group + 2
        view = Span(slots.frame_cache, start, end)
        angles = slots.frame_angles.span(start, end)
        last = run_layers(decoder, _project(weights, inputs), angles, head_norms, view)[:, -1]
        codes.append(_draw_rest(state, functional.linear(last, weights.heads[group]), noise[:, group]))
    sequential = torch.stack(codes, dim=1)
    if seq_groups == len(weights.heads):
        return sequential
    logits = crossbar(weights.heads[seq_groups:], last)
    return torch.cat((sequential, _draw_rest(state, logits, noise[:, seq_groups:])), dim=1)


def _project(weights: Weights, inputs: torch.Tensor) -> torch.Tensor:
    """From the talker's width to the predictor's."""
    return inputs if weights.projection is None else functional.linear(inputs, *weights.projection)


def _draw_rest(state: LineState, logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    _note_overflow(state, logits)
    return draw_static(logits.float(), state.subtalker, noise)


def _step_talker(weights: Weights, slots: Slots, codes: torch.Tensor, window: int) -> torch.Tensor:
    """The talker's state ``[B, H]`` after a frame's codes ``[B, 16]``."""
    state = slots.state
    groups = torch.arange(GROUPS - 1, device=codes.device)
    first = functional.embedding(codes[:, :1], weights.first_table)
    embedded = torch.cat((first, weights.tables[groups, codes[:, 1:]]), dim=1).sum(1)
    step = state.steps.clamp(max=state.text.shape[1] - 1)[:, None, None]
    text = state.text.gather(1, step.expand(-1, 1, state.text.shape[2]))
    positions = state.positions.clamp(max=window - 1)
    view = Step(slots.cache.window(window), positions)
    angles, head_norms = slots.angles.at(positions), weights.talker.head_norms()
    return run_layers(weights.talker, embedded[:, None] + text, angles, head_norms, view)[:, 0]


def _start_frame(
    weights: Weights, slots: Slots, state: LineState, hidden: torch.Tensor, noise: torch.Tensor
) -> None:
    """Draw group 0 of the lines' next frame from the talker's state ``[N, H]``, and note both."""
    logits = functional.linear(hidden, weights.first_head)
    _note_overflow(state, logits)
    scores, penalties = logits.float(), state.penalties[:, None]
    penalized = torch.where(scores < 0, scores * penalties, scores / penalties)
    early = (state.steps < MIN_NEW_TOKENS)[:, None] & slots.is_eos
    scores = torch.where(state.seen, penalized, scores).masked_fill(slots.suppressed | early, -torch.inf)
    tokens = draw_static(scores, state.talker, noise)
    state.seen.scatter_(1, tokens[:, None], True)
    state.tokens.copy_(tokens)
    state.hidden.copy_(hidden)


def _note_overflow(state: LineState, logits: torch.Tensor) -> None:
    """Remember lines whose numbers fp16 has overflowed; the host raises when it reads their report."""
    if logits.dtype == torch.float16:
        state.report[:, GROUPS] |= ~logits.isfinite().flatten(1).all(1)
