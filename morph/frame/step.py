"""One complete frame over static buffers: groups 1-15, the talker's step, the next group 0.

For capture: no host sync, no data-dependent shape, every result in place. On the CPU it is called directly.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch.nn import functional

from ..decode.rows import ALIGNMENT
from ..model.layers import TORCH_OPS, AlignmentProbe, LayerOps, LayerPass, run_layers
from ..model.static_cache import FillView, SpanView, StepView
from ..model.weights import linear
from .buffers import SPAN, Buffers, LastPositions, LineState, PrefillBatch, SamplerSettings
from .sampling import GROUPS, gumbel_noise, sample_static
from .weights import Weights

Start: TypeAlias = Callable[[Weights, Buffers, torch.Tensor], None]


def prefill(weights: Weights, buffers: Buffers, arrivals: PrefillBatch, ops: LayerOps = TORCH_OPS) -> None:
    """Run the prompts of arriving lines and sample group 0 of their first frames; other lines do not change."""
    rows, lengths, minimums, keys, spans = arrivals.numbers.split((1, 1, 1, 2, SPAN), dim=1)
    rows = rows[:, 0]
    fresh = LineState.allocate(buffers.config, len(rows), arrivals.embeds)
    hidden = _run_prompts(weights, buffers, arrivals, fresh.aligned, ops)
    fresh.spans.copy_(spans)
    fresh.positions.copy_(lengths[:, 0])
    fresh.minimums.copy_(minimums[:, 0])
    fresh.keys.copy_(keys)
    noise = gumbel_noise(keys, fresh.steps[:, None], len(weights.first_head))[:, 0]
    _start_frame(weights, buffers, fresh, buffers.settings.take(rows), hidden, noise)
    buffers.state.copy_rows(rows, fresh)


def prefill_all(
    weights: Weights,
    buffers: Buffers,
    arrivals: PrefillBatch,
    ops: LayerOps = TORCH_OPS,
    start: Start | None = None,
) -> None:
    """As ``prefill``, for lines that fill all rows in their order; ``start`` replaces ``start_lines``."""
    hidden = _run_prompts(weights, buffers, arrivals, buffers.state.aligned, ops)
    buffers.state.reset(arrivals.numbers[:, 1:])
    buffers.state.positions.sub_(1)  # ``start`` counts the last position
    (start or start_lines)(weights, buffers, hidden)


def _run_prompts(
    weights: Weights, buffers: Buffers, arrivals: PrefillBatch, aligned: torch.Tensor, ops: LayerOps
) -> torch.Tensor:
    """Fill the cache; return the talker's last states ``[N, H]``, and in ``aligned`` the head's ``[N, 3]``."""
    rows, last = arrivals.numbers[:, 0].contiguous(), arrivals.numbers[:, 1] - 1
    probe = probe_for(weights, arrivals.numbers[:, -SPAN:], last, aligned)
    angles = buffers.angles.span(0, arrivals.embeds.shape[1])
    layer_pass = LayerPass(angles, weights.talker.head_norms(), FillView(buffers.cache, rows), probe)
    states = run_layers(weights.talker, arrivals.embeds, partial(ops.attend, weights.talker, layer_pass), ops)
    return states.gather(1, last[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]


def probe_for(
    weights: Weights, spans: torch.Tensor, positions: torch.Tensor, out: torch.Tensor
) -> AlignmentProbe | None:
    """Return the ``AlignmentProbe`` of a pass, or None if the checkpoint has no alignment head."""
    return None if weights.alignment is None else AlignmentProbe(weights.alignment, spans, positions, out)


def prefill_prefix(weights: Weights, buffers: Buffers, embeds: torch.Tensor, ops: LayerOps = TORCH_OPS) -> None:
    """Write keys and values of the beginning of a prompt, ``embeds`` ``[1, P, H]``, to the cache's first row."""
    view = FillView(buffers.cache, torch.zeros(1, dtype=torch.int64, device=embeds.device))
    angles = buffers.angles.span(0, embeds.shape[1])
    layer_pass = LayerPass(angles, weights.talker.head_norms(), view)
    run_layers(weights.talker, embeds, partial(ops.attend, weights.talker, layer_pass), ops)


def begin_lines(weights: Weights, buffers: Buffers, last: LastPositions, window: int) -> None:
    """Run the last position of every line's prompt, and sample group 0 of the first frames. It can be repeated."""
    state = buffers.state
    state.reset(last.numbers)
    hidden = _talk(weights, buffers, last.embeds[:, None], window)
    start_lines(weights, buffers, hidden)


def start_lines(weights: Weights, buffers: Buffers, hidden: torch.Tensor) -> None:
    """Count the position whose state is ``hidden`` ``[B, H]``, and sample group 0 of every line's next frame."""
    state = buffers.state
    state.positions.add_(1)
    state.steps.add_(1)
    noise = gumbel_noise(state.keys, state.steps[:, None] * GROUPS, len(weights.first_head))[:, 0]
    _start_frame(weights, buffers, state, buffers.settings, hidden, noise)


def decode_frame(weights: Weights, buffers: Buffers, seq_groups: int, window: int) -> None:
    """Decode every line's next frame, report it, and sample group 0 of the frame after."""
    # A row beyond ``window``, without a line, keeps overwriting the window's last position; no line is affected.
    predict_codes(weights, buffers, seq_groups)
    advance(weights, buffers, window)


def predict_codes(weights: Weights, buffers: Buffers, seq_groups: int) -> None:
    """Run the first part of ``decode_frame``: all codes of every line's next frame, in its report."""
    state, decoder = buffers.state, weights.predictor
    groups = torch.arange(1, GROUPS, device=state.steps.device)
    noise = gumbel_noise(state.keys, state.steps[:, None] * GROUPS + groups, buffers.codebook)
    head_norms = decoder.head_norms()
    codes = [state.tokens]
    first = functional.embedding(state.tokens, weights.first_table)
    inputs = torch.stack((state.hidden, first), dim=1)
    for group in range(seq_groups):
        if group > 0:
            inputs = functional.embedding(codes[-1], weights.tables[group - 1])[:, None]
        start, end = group + 1 if group else 0, group + 2
        view, angles = SpanView(buffers.frame_cache, start, end), buffers.frame_angles.span(start, end)
        attend = partial(TORCH_OPS.attend, decoder, LayerPass(angles, head_norms, view))
        inputs = inputs if weights.projection is None else functional.linear(inputs, *weights.projection)
        last = run_layers(decoder, inputs, attend)[:, -1]
        logits = linear(last, weights.heads[group])
        codes.append(_sample_subtalker(buffers, logits, noise[:, group]))
    frame = torch.stack(codes, dim=1)
    if seq_groups < len(weights.heads):
        logits = weights.crossbar_logits(seq_groups, last, codes[-1])
        frame = torch.cat((frame, _sample_subtalker(buffers, logits, noise[:, seq_groups:])), dim=1)
    state.report[:, :GROUPS].copy_(frame)
    report_alignment(weights, state)


def report_alignment(weights: Weights, state: LineState) -> None:
    if weights.alignment is not None:
        state.report[:, ALIGNMENT:].copy_(state.aligned)


def advance(weights: Weights, buffers: Buffers, window: int) -> None:
    """Run the second part of ``decode_frame``, after ``predict_codes``: group 0 of the frame after it."""
    state = buffers.state
    codes = state.report[:, :GROUPS]
    groups = torch.arange(GROUPS - 1, device=codes.device)
    first = functional.embedding(codes[:, :1], weights.first_table)
    embedded = torch.cat((first, weights.tables[groups, codes[:, 1:]]), dim=1).sum(1)
    step = state.steps.clamp(max=buffers.context - 1)[:, None, None]
    text = buffers.text.gather(1, step.expand(-1, 1, buffers.text.shape[2]))
    start_lines(weights, buffers, _talk(weights, buffers, embedded[:, None] + text, window))


def _sample_subtalker(buffers: Buffers, logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    _note_not_finite(buffers.state, logits)
    return sample_static(logits.float(), buffers.settings.subtalker, noise)


def _talk(weights: Weights, buffers: Buffers, inputs: torch.Tensor, window: int) -> torch.Tensor:
    """Run the talker over one new position of every line ``[B, 1, H]``; return its state ``[B, H]``."""
    positions = buffers.state.positions.clamp(max=window - 1)
    view = StepView(buffers.cache.window(window), positions)
    probe = probe_for(weights, buffers.state.spans, positions, buffers.state.aligned)
    layer_pass = LayerPass(buffers.angles.at(positions), weights.talker.head_norms(), view, probe)
    return run_layers(weights.talker, inputs, partial(TORCH_OPS.attend, weights.talker, layer_pass))[:, 0]


def _start_frame(
    weights: Weights,
    buffers: Buffers,
    state: LineState,
    settings: SamplerSettings,
    hidden: torch.Tensor,
    noise: torch.Tensor,
) -> None:
    """Sample group 0 of the lines' next frame from the talker's state ``[N, H]``, and store both in ``state``.

    ``state`` and ``settings`` are parameters because a prefill passes those of its N lines.
    """
    logits = functional.linear(hidden, weights.first_head)
    _note_not_finite(state, logits)
    scores, penalties = logits.float(), settings.penalties[:, None]
    penalized = torch.where(scores < 0, scores * penalties, scores / penalties)
    early = (state.steps < state.minimums)[:, None] & buffers.is_eos
    scores = torch.where(state.seen, penalized, scores).masked_fill(buffers.suppressed | early, -torch.inf)
    tokens = sample_static(scores, settings.talker, noise)
    state.seen.scatter_(1, tokens[:, None], True)
    state.tokens.copy_(tokens)
    state.hidden.copy_(hidden)


def _note_not_finite(state: LineState, logits: torch.Tensor) -> None:
    """Mark lines with a logit that is NaN or +inf in their report, as ``decode.sampling.check_finite`` does."""
    largest = logits.flatten(1).amax(1)
    state.report[:, GROUPS] |= largest - largest != 0  # NaN for both
