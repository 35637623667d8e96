"""``morph/frame.decode_frame`` in fused kernels: the same buffers, the same arithmetic up to rounding.

Sums, norms, RoPE, softmax, the residual stream and the logits are float32; weights, activations between kernels and
the cache are of the model's dtype.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import triton
from torch.nn import functional

from ..frame.buffers import Buffers
from ..frame.noise import GROUPS
from ..frame.weights import Weights
from .embed import embed_frame
from .layer import EMBED_BLOCK, project, run_layers
from .plan import Plan, launch
from .sampling import draw_codes, draw_first
from .states import Inputs, Place, States


def decode_frame(
    weights: Weights, slots: Buffers, seq_groups: int, window: int, plan: Plan | None = None
) -> None:
    """``morph.frame.decode_frame``: make every line's next frame, report it, and draw group 0 of the one after."""
    plan = replace(plan or Plan.of(weights.first_head.device), workspace=slots.workspace)
    predict(weights, slots, seq_groups, plan)
    step_talker(weights, slots, window, plan)


def predict(weights: Weights, slots: Buffers, seq_groups: int, plan: Plan) -> None:
    """Draw groups 1-15 into the report: ``seq_groups`` passes of the predictor, the crossbar for the rest."""
    state, decoder = slots.state, weights.predictor
    inputs = Inputs(weights.first_table, state.tokens, before=state.hidden)
    for group in range(seq_groups):
        if group > 0:
            inputs = Inputs(weights.tables[group - 1], state.report[:, group])
        start, length = (group + 1, 1) if group else (0, 2)
        end = start + length
        place = Place(slots.frame_cache, slots.frame_angles, length, end, start)
        states = run_layers(decoder, plan, _projected(weights, plan, inputs), place)
        states = states.last(length, plan)
        _draw_groups(weights, slots, plan, states, group, group + 1)
    if seq_groups in weights.tails:
        _draw_tail(weights, slots, plan, states, seq_groups)
    elif seq_groups < len(weights.heads):
        _draw_groups(weights, slots, plan, states, seq_groups, len(weights.heads))


def _projected(weights: Weights, plan: Plan, inputs: Inputs) -> Inputs | States:
    """From the talker's width to the predictor's."""
    if weights.projection is None:
        return inputs
    weight, bias = weights.projection
    norm = weights.predictor.layers[0].input_norm
    states = States.empty(plan, inputs.rows, norm)
    project(plan, inputs, weight, states.wide, bias=bias, result=states, next_norm=norm)
    return states


def _draw_groups(weights: Weights, slots: Buffers, plan: Plan, states: States, first: int, end: int) -> None:
    """Draw groups ``first + 1 .. end`` of every line from the predictor's last state."""
    logits = plan.empty("logits", (len(states.wide), (end - first) * slots.codebook), states.wide)
    heads = weights.heads[first:end].flatten(0, 1)
    project(plan, states, heads, logits, weights.predictor.norm, weights.predictor.eps)
    _draw(weights, slots, plan, logits, first, end)


def _draw_tail(weights: Weights, slots: Buffers, plan: Plan, states: States, seq_groups: int) -> None:
    """Draw the groups above ``seq_groups`` through their trained tail, in torch operations."""
    decoder, dtype = weights.predictor, weights.heads.dtype
    normed = functional.rms_norm(states.wide, states.wide.shape[-1:], decoder.norm.float(), decoder.eps)
    logits = weights.crossbar_logits(seq_groups, normed.to(dtype), slots.state.report[:, seq_groups])
    rows = logits.flatten(1)
    rows = plan.empty("logits", rows.shape, rows, torch.float32).copy_(rows)
    _draw(weights, slots, plan, rows, seq_groups, len(weights.heads))


def _draw(weights: Weights, slots: Buffers, plan: Plan, logits: torch.Tensor, first: int, end: int) -> None:
    """Draw groups ``first + 1 .. end`` from logits, float32 ``[B, (end - first) V]``."""
    state, groups, vocab = slots.state, end - first, slots.codebook
    draws = slots.settings.subtalker
    padded = triton.next_power_of_2(vocab)
    launch(
        draw_codes, (len(logits), groups), plan, plan.draw_warps(padded), logits=logits, line_keys=state.keys,
        steps=state.steps, temperatures=draws.temperatures, places=draws.cutoffs, shares=draws.shares,
        scales=draws.scales, report=state.report, first=first + 1, V=vocab, CODES=GROUPS, PADDED=padded,
    )  # fmt: skip


def step_talker(weights: Weights, slots: Buffers, window: int, plan: Plan) -> None:
    """The talker's step after the frame's codes, and group 0 of the next frame."""
    state, decoder = slots.state, weights.talker
    lines, width = state.hidden.shape
    states = States.empty(plan, lines, decoder.norm)
    launch(
        embed_frame, (lines, -(-width // EMBED_BLOCK)), plan, 4, line_tokens=state.tokens, report=state.report,
        first_table=weights.first_table, tables=weights.tables, text=slots.text, steps=state.steps, out=states.wide,
        gain=decoder.layers[0].input_norm, operand=states.narrow, squares=states.squares,
        text_length=slots.context, V=weights.tables.shape[1], CODES=GROUPS, H=width, BLOCK=EMBED_BLOCK,
    )  # fmt: skip
    place = Place(slots.cache, slots.angles, 1, window, positions=state.positions)
    states = run_layers(decoder, plan, states, place)
    vocab = len(weights.first_head)
    logits = plan.empty("logits", (lines, vocab), states.wide)
    project(plan, states, weights.first_head, logits, decoder.norm, decoder.eps, normed=state.hidden)
    draws, padded = slots.settings.talker, triton.next_power_of_2(vocab)
    launch(
        draw_first, (lines,), plan, plan.draw_warps(padded), logits=logits, line_keys=state.keys, steps=state.steps,
        minimums=state.minimums, positions=state.positions, temperatures=draws.temperatures, places=draws.cutoffs,
        shares=draws.shares, scales=draws.scales, penalties=slots.settings.penalties, seen=state.seen,
        suppressed=slots.suppressed, is_eos=slots.is_eos, line_tokens=state.tokens, report=state.report, V=vocab,
        CODES=GROUPS, PADDED=padded,
    )  # fmt: skip
