"""One whole frame over static buffers: groups 1-15, the talker's step, the next group 0. Made to be captured.

Nothing here reads from the device, no shape depends on data, and what a frame leaves behind is written into the
buffers of ``slots.py`` in place. On the CPU the same functions are simply called.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from ..model.layers import TORCH_OPS, LayerOps, run_layers
from ..model.linear import linear
from ..model.static_cache import FillView, SpanView, StepView
from .buffers import Buffers, LineState, PrefillBatch, Settings
from .noise import GROUPS, gumbel_noise
from .sampling import sample_static
from .weights import Weights


def prefill(weights: Weights, slots: Buffers, arrivals: PrefillBatch, ops: LayerOps = TORCH_OPS) -> None:
    """Run the prompts of lines that arrive, and draw group 0 of their first frames; other lines are not touched."""
    lines, length = arrivals.embeds.shape[:2]
    rows, lengths, minimums, keys = arrivals.numbers.split((1, 1, 1, 2), dim=1)
    rows, lengths = rows[:, 0], lengths[:, 0]
    head_norms, angles = weights.talker.head_norms(), slots.angles.span(0, length)
    states = run_layers(weights.talker, arrivals.embeds, angles, head_norms, FillView(slots.cache, rows), ops)
    last = (lengths - 1)[:, None, None].expand(-1, 1, states.shape[2])
    fresh = LineState.allocate(slots.config, lines, states)
    fresh.positions.copy_(lengths)
    fresh.minimums.copy_(minimums[:, 0])
    fresh.keys.copy_(keys)
    noise = gumbel_noise(keys, fresh.steps[:, None], len(weights.first_head))[:, 0]
    settings = slots.settings.take(rows)
    _start_frame(weights, slots, fresh, settings, states.gather(1, last)[:, 0], noise)
    slots.state.copy_rows(rows, fresh)


def decode_frame(weights: Weights, slots: Buffers, seq_groups: int, window: int) -> None:
    """Make every line's next frame, report it, and draw group 0 of the one after.

    ``window`` is how many positions of the cache are looked at; a line that has run beyond it (one that has ended,
    or a row that has none) writes to its last position over and over, and touches no other line.
    """
    state = slots.state
    noise = _frame_noise(weights, state)
    codes = predict(weights, slots, seq_groups, noise[:, 1:, : slots.codebook])
    state.report[:, :GROUPS].copy_(codes)
    hidden = _step_talker(weights, slots, codes, window)
    state.positions.add_(1)
    state.steps.add_(1)
    _start_frame(weights, slots, state, slots.settings, hidden, noise[:, 0, : len(weights.first_head)])


def _frame_noise(weights: Weights, state: LineState) -> torch.Tensor:
    """The frame's noise in one go, ``[B, 16, V]``: the next frame's group 0, then this frame's groups 1-15."""
    groups = torch.arange(GROUPS, device=state.steps.device)
    frames = state.steps[:, None] + (groups == 0)
    width = max(len(weights.first_head), weights.heads.shape[1])
    return gumbel_noise(state.keys, frames * GROUPS + groups, width)


def predict(weights: Weights, slots: Buffers, seq_groups: int, noise: torch.Tensor) -> torch.Tensor:
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
        view = SpanView(slots.frame_cache, start, end)
        angles = slots.frame_angles.span(start, end)
        last = run_layers(decoder, _project(weights, inputs), angles, head_norms, view)[:, -1]
        logits = linear(last, weights.heads[group])
        codes.append(_draw_rest(slots, logits, noise[:, group]))
    sequential = torch.stack(codes, dim=1)
    if seq_groups == len(weights.heads):
        return sequential
    logits = weights.crossbar_logits(seq_groups, last, codes[-1])
    return torch.cat((sequential, _draw_rest(slots, logits, noise[:, seq_groups:])), dim=1)


def _project(weights: Weights, inputs: torch.Tensor) -> torch.Tensor:
    """From the talker's width to the predictor's."""
    return inputs if weights.projection is None else functional.linear(inputs, *weights.projection)


def _draw_rest(slots: Buffers, logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    _note_not_finite(slots.state, logits)
    return sample_static(logits.float(), slots.settings.subtalker, noise)


def _step_talker(weights: Weights, slots: Buffers, codes: torch.Tensor, window: int) -> torch.Tensor:
    """The talker's state ``[B, H]`` after a frame's codes ``[B, 16]``."""
    state = slots.state
    groups = torch.arange(GROUPS - 1, device=codes.device)
    first = functional.embedding(codes[:, :1], weights.first_table)
    embedded = torch.cat((first, weights.tables[groups, codes[:, 1:]]), dim=1).sum(1)
    step = state.steps.clamp(max=slots.context - 1)[:, None, None]
    text = slots.text.gather(1, step.expand(-1, 1, slots.text.shape[2]))
    positions = state.positions.clamp(max=window - 1)
    view = StepView(slots.cache.window(window), positions)
    angles, head_norms = slots.angles.at(positions), weights.talker.head_norms()
    return run_layers(weights.talker, embedded[:, None] + text, angles, head_norms, view)[:, 0]


def _start_frame(
    weights: Weights,
    slots: Buffers,
    state: LineState,
    settings: Settings,
    hidden: torch.Tensor,
    noise: torch.Tensor,
) -> None:
    """Draw group 0 of the lines' next frame from the talker's state ``[N, H]``, and note both."""
    logits = functional.linear(hidden, weights.first_head)
    _note_not_finite(state, logits)
    scores, penalties = logits.float(), settings.penalties[:, None]
    penalized = torch.where(scores < 0, scores * penalties, scores / penalties)
    early = (state.steps < state.minimums)[:, None] & slots.is_eos
    scores = torch.where(state.seen, penalized, scores).masked_fill(slots.suppressed | early, -torch.inf)
    tokens = sample_static(scores, settings.talker, noise)
    state.seen.scatter_(1, tokens[:, None], True)
    state.tokens.copy_(tokens)
    state.hidden.copy_(hidden)


def _note_not_finite(state: LineState, logits: torch.Tensor) -> None:
    """Remember lines with a logit that is NaN or +inf, as ``sampling.check_finite`` does; the host raises when it reads
    their report.
    """
    largest = logits.flatten(1).amax(1)
    state.report[:, GROUPS] |= largest - largest != 0  # NaN for both
