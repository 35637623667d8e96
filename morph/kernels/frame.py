"""One frame in fused kernels: the buffers and, up to rounding, the arithmetic of ``frame.step.decode_frame``.

``PromptOps`` has the operations of a prefill between its linear layers.

Sums, norms, RoPE, softmax, the residual stream and the logits are float32; weights, activations between kernels and
the KV cache have the model's dtype.
"""

from dataclasses import replace

import torch
import triton
from torch.nn import functional

from ..decode.rows import ALIGNMENT
from ..frame.buffers import Buffers, LastPositions, PrefillBatch
from ..frame.sampling import GROUPS
from ..frame.step import probe_for, report_alignment
from ..frame.weights import Weights
from ..model import layers
from ..model.layers import KvTarget, LayerOps, LayerPass, LayerStack
from ..model.static_cache import FillView
from ..model.weights import Int8Weight
from .alignment import probe_alignment
from .attention.launch import AttentionInputs, attend, attend_prompt_alone, attends_alone
from .embed import embed_block, embed_frame, look_up
from .linear.launch import project
from .plan import Plan, launch
from .precompile import run
from .rows import RowKernels, rotate
from .sampling import sample_codes, sample_first
from .states import CacheSpan, Inputs, Projection, Residual


def decode_frame(weights: Weights, buffers: Buffers, seq_groups: int, window: int, plan: Plan | None = None) -> None:
    """As ``frame.step.decode_frame``."""
    plan = _plan_for(weights, buffers, plan)
    predict(weights, buffers, seq_groups, plan)
    step_talker(weights, buffers, window, plan)


def predict_codes(weights: Weights, buffers: Buffers, seq_groups: int, plan: Plan | None = None) -> None:
    """Run the first part of ``decode_frame``: all codes of every line's next frame, in its report."""
    predict(weights, buffers, seq_groups, _plan_for(weights, buffers, plan))
    buffers.state.report[:, 0].copy_(buffers.state.tokens)
    report_alignment(weights, buffers.state)


def advance(weights: Weights, buffers: Buffers, window: int, plan: Plan | None = None) -> None:
    """Run the second part of ``decode_frame``, after ``predict_codes``: sample group 0 of the frame after it."""
    step_talker(weights, buffers, window, _plan_for(weights, buffers, plan))


def _plan_for(weights: Weights, buffers: Buffers, plan: Plan | None) -> Plan:
    plan = replace(plan or Plan.of(weights.first_head.device), workspace=buffers.workspace)
    is_int8 = isinstance(weights.talker.layers[0].qkv, Int8Weight)
    return replace(plan, library_min_rows=None) if is_int8 else plan


def predict(weights: Weights, buffers: Buffers, seq_groups: int, plan: Plan) -> None:
    """Sample groups 1-15 into the report: ``seq_groups`` sequential passes of the predictor, then the crossbar."""
    state, stack = buffers.state, weights.predictor
    # The first pass has two positions: the talker's hidden state, and the embedding of group 0.
    inputs = Inputs(weights.first_table, state.tokens, hidden=state.hidden)
    for group in range(seq_groups):
        if group > 0:
            inputs = Inputs(weights.tables[group - 1], state.report[:, group])
        start, length = (group + 1, 1) if group else (0, 2)
        span = CacheSpan(buffers.frame_cache, buffers.frame_angles, length, start + length, start)
        residual = run_layers(stack, plan, _to_predictor(weights, plan, inputs), span)
        residual = residual.last(length, plan)
        sample_heads(weights, buffers, plan, residual, (group, group + 1))
    crossbar(weights, buffers, plan, residual, seq_groups)


def crossbar(weights: Weights, buffers: Buffers, plan: Plan, residual: Residual, seq_groups: int) -> None:
    """Sample groups ``seq_groups + 1`` to 15 together, from the predictor's last residual ``[B, H]``."""
    groups = len(weights.heads)
    if seq_groups in weights.tails:
        logits = _tail_logits(weights, buffers, plan, residual, seq_groups)
        sample(buffers, plan, logits, (seq_groups, groups))
    elif seq_groups < groups:
        sample_heads(weights, buffers, plan, residual, (seq_groups, groups))


def sample_heads(weights: Weights, buffers: Buffers, plan: Plan, residual: Residual, heads: tuple[int, int]) -> None:
    """Sample groups ``first + 1 .. end`` of every line through the ``heads`` ``(first, end)``, in one GEMM."""
    first, end = heads
    shape = (len(residual.values), (end - first) * buffers.codebook)
    logits = plan.empty("logits", shape, residual.values, plan.product_dtype(shape[0], weights.heads.dtype))
    weight = weights.heads[first:end].flatten(0, 1)
    project(plan, residual, logits, Projection(weight, weights.predictor.norm, weights.predictor.eps))
    sample(buffers, plan, logits, heads)


def sample(buffers: Buffers, plan: Plan, logits: torch.Tensor, heads: tuple[int, int]) -> None:
    """Sample groups ``first + 1 .. end`` from the logits of ``heads`` ``(first, end)``: ``[B, (end - first) V]``."""
    first, end = heads
    state, settings, vocab = buffers.state, buffers.settings.subtalker, buffers.codebook
    padded, grid = triton.next_power_of_2(vocab), (len(logits), end - first)
    launch(
        sample_codes, grid, plan, plan.sampling_warps(padded, grid[0] * grid[1]), logits=logits,
        line_keys=state.keys, steps=state.steps, report=state.report, first=first + 1, V=vocab, CODES=GROUPS,
        PADDED=padded, **vars(settings),
    )  # fmt: skip


def _to_predictor(weights: Weights, plan: Plan, inputs: Inputs) -> Inputs | Residual:
    if weights.projection is None:
        return inputs
    weight, bias = weights.projection
    norm = weights.predictor.layers[0].input_norm
    residual = Residual.empty(plan, inputs.rows, norm)
    start = Projection(weight, eps=weights.predictor.eps, bias=bias, starts=residual, next_norm=norm)
    project(plan, inputs, residual.values, start)
    return residual


def _tail_logits(weights: Weights, buffers: Buffers, plan: Plan, residual: Residual, seq_groups: int) -> torch.Tensor:
    stack, dtype = weights.predictor, weights.heads.dtype
    values = residual.values
    normed = functional.rms_norm(values, values.shape[-1:], stack.norm.float(), stack.eps)
    logits = weights.crossbar_logits(seq_groups, normed.to(dtype), buffers.state.report[:, seq_groups]).flatten(1)
    return plan.empty("logits", logits.shape, logits, torch.float32).copy_(logits)


def begin_lines(weights: Weights, buffers: Buffers, last: LastPositions, window: int, plan: Plan | None = None) -> None:
    """As ``frame.step.begin_lines``, for at most ``gemv_max_rows`` lines; raise ValueError for more."""
    plan = _plan_for(weights, buffers, plan)
    residual = Residual.empty(plan, len(last.embeds), weights.talker.norm)
    if residual.scaled is not None:
        raise ValueError(f"{len(last.embeds)} lines are too many to begin together: prefill them")
    buffers.state.reset(last.numbers)
    # Not a copy: of float32 that is a memory copy, and the layers' first kernel may only overlap with a kernel.
    torch.mul(last.embeds, 1, out=residual.values)
    talk(weights, buffers, window, plan, residual)


def run_prompt(weights: Weights, buffers: Buffers, arrivals: PrefillBatch, plan: Plan | None = None) -> None:
    """Run a single line's prompt, padded to 16, 32 or 64 positions; see ``frame.step.prefill_all``."""
    plan = _plan_for(weights, buffers, plan)
    state, stack = buffers.state, weights.talker
    state.reset(arrivals.numbers[:, 1:])
    state.positions.sub_(1)  # sampling counts it
    length = arrivals.embeds.shape[1]
    # Not a dependent launch, as it is the first of the pass.
    inputs = look_up(replace(plan, pdl=False), Inputs(arrivals.embeds[0]), stack.layers[0].input_norm, stack.eps)
    probe = probe_for(weights, state.spans, state.positions, state.aligned)
    residual = run_layers(stack, plan, inputs, CacheSpan(buffers.cache, buffers.angles, length, length, probe=probe))
    last = Residual.empty(plan, 1, stack.norm)
    torch.index_select(residual.values, 0, state.positions, out=last.values)
    sample_next(weights, buffers, plan, last)


def start_lines(weights: Weights, buffers: Buffers, hidden: torch.Tensor, plan: Plan | None = None) -> None:
    """As ``frame.step.start_lines``."""
    plan = _plan_for(weights, buffers, plan)
    buffers.state.hidden.copy_(hidden)
    shape = (len(hidden), len(weights.first_head))
    logits = plan.empty("logits", shape, weights.talker.norm, torch.float32)
    # Not a copy, as in ``begin_lines``: the sampling kernel may only overlap with a kernel.
    torch.mul(functional.linear(hidden, weights.first_head), 1, out=logits)
    _sample_first(buffers, plan, logits)


def step_talker(weights: Weights, buffers: Buffers, window: int, plan: Plan) -> None:
    state, stack = buffers.state, weights.talker
    lines, width = state.hidden.shape
    residual = Residual.empty(plan, lines, stack.norm)
    block = embed_block(residual)
    launch(
        embed_frame, (lines, -(-width // block)), plan, 4, line_tokens=state.tokens, report=state.report,
        first_table=weights.first_table, tables=weights.tables, text=buffers.text, steps=state.steps,
        out=residual.values, gain=stack.layers[0].input_norm, eps=stack.eps, scaled=residual.scaled,
        squares=residual.squares, text_length=buffers.context, V=weights.tables.shape[1], CODES=GROUPS, H=width,
        BLOCK=block,
    )  # fmt: skip
    talk(weights, buffers, window, plan, residual)


def talk(weights: Weights, buffers: Buffers, window: int, plan: Plan, residual: Residual) -> None:
    state, stack = buffers.state, weights.talker
    probe = probe_for(weights, state.spans, state.positions, state.aligned)
    if probe is not None:
        probe = replace(probe, before=state.report[:, ALIGNMENT:])
    span = CacheSpan(buffers.cache, buffers.angles, 1, window, positions=state.positions, probe=probe)
    sample_next(weights, buffers, plan, run_layers(stack, plan, residual, span))


def sample_next(weights: Weights, buffers: Buffers, plan: Plan, residual: Residual) -> None:
    """Sample group 0 of the next frame from the residual stream of the talker's last positions."""
    state, stack = buffers.state, weights.talker
    shape = (len(state.hidden), len(weights.first_head))
    logits = plan.empty("logits", shape, residual.values, plan.product_dtype(shape[0], state.hidden.dtype))
    # The normed state is the predictor's input of the next frame.
    head = Projection(weights.first_head, stack.norm, stack.eps, normed_copy=state.hidden)
    project(plan, residual, logits, head)
    _sample_first(buffers, plan, logits)


def _sample_first(buffers: Buffers, plan: Plan, logits: torch.Tensor) -> None:
    state, settings = buffers.state, buffers.settings.talker
    lines, vocab = logits.shape
    padded = triton.next_power_of_2(vocab)
    launch(
        sample_first, (lines,), plan, plan.sampling_warps(padded, lines), logits=logits, line_keys=state.keys,
        steps=state.steps, minimums=state.minimums, positions=state.positions, penalties=buffers.settings.penalties,
        seen=state.seen, suppressed=buffers.suppressed, is_eos=buffers.is_eos, line_tokens=state.tokens,
        report=state.report, V=vocab, CODES=GROUPS, PADDED=padded, **vars(settings),
    )  # fmt: skip


def run_layers(stack: LayerStack, plan: Plan, inputs: Inputs | Residual, span: CacheSpan) -> Residual:
    """Run all layers over each line's new positions; the last norm is left to the head's projection."""
    residual, first = _begin(stack, plan, inputs)
    for index in range(len(stack.layers)):
        _run_layer(stack, index, plan, (residual, first if index == 0 else None), span)
    return residual


def _begin(stack: LayerStack, plan: Plan, inputs: Inputs | Residual) -> tuple[Residual, Inputs | None]:
    """Return the residual stream, and the inputs that the first kernel must still copy into it, if any."""
    if isinstance(inputs, Residual):
        return inputs, None
    if inputs.rows <= plan.gemv_max_rows:
        return Residual.empty(plan, inputs.rows, stack.norm), inputs
    return look_up(plan, inputs, stack.layers[0].input_norm, stack.eps), None


def _run_layer(
    stack: LayerStack, index: int, plan: Plan, start: tuple[Residual, Inputs | None], span: CacheSpan
) -> None:
    residual, inputs = start
    layer = stack.layers[index]
    like, rows = layer.input_norm, len(residual.values)
    qkv = plan.empty("qkv", (rows, len(layer.qkv)), like, plan.product_dtype(rows, like.dtype))
    copy = None if inputs is None else residual.values
    project(plan, inputs or residual, qkv, Projection(layer.qkv, layer.input_norm, stack.eps, input_copy=copy))
    # One line's attention leaves partials: gate and up add them to the residual as they read it, and so does down.
    partials = attend(plan, AttentionInputs(stack, index, qkv, span), residual)
    probe_alignment(plan, AttentionInputs(stack, index, qkv, span))
    norms = [*(one.input_norm for one in stack.layers), stack.norm]
    active = plan.empty("active", (rows, layer.down.shape[1]), like)
    gate_up = Projection(layer.gate_up, layer.post_norm, stack.eps, gated=True, partials=partials)
    project(plan, residual, active, gate_up)
    down = Projection(layer.down, eps=stack.eps, partials=partials, residual=residual, next_norm=norms[index + 1])
    project(plan, Inputs(active), residual.values, down)


class PromptOps(RowKernels, LayerOps):
    """``LayerOps`` of passes whose lines are all at the same positions (``Angles.span``), as prompts are.

    Norm, RoPE and the cache write are one kernel (``rows.rotate``). Torch's operations write queries and keys to memory
    five times in float32: of the 28 ms that 64 prompts of 88 positions took (0.6B, H200), the linear layers were 7.
    """

    def attend(self, decoder: LayerStack, layer_pass: LayerPass, index: int, qkv: torch.Tensor) -> torch.Tensor:
        """As ``LayerOps.attend``, for a ``FillView`` of the cache: raise TypeError for another."""
        view = layer_pass.view
        if not isinstance(view, FillView):
            raise TypeError(f"prompts fill the cache, and this view of it is a {type(view).__name__}")
        lines, length = qkv.shape[:2]
        qkv = qkv.unflatten(-1, (-1, decoder.head_dim))
        if attends_alone(max(lines, view.cache.lines), length):
            span = CacheSpan(view.cache, layer_pass.angles, length, length, probe=layer_pass.probe)
            inputs = AttentionInputs(decoder, index, qkv.contiguous().view(length, -1), span)
            out = attend_prompt_alone(Plan(), inputs).view(1, length, -1)
            probe_alignment(Plan(), inputs)
            return out
        target = KvTarget(view.cache.keys[index], view.cache.values[index], lines=view.rows)
        norm = layer_pass.head_norms[index], decoder.eps
        rotated = rotate(run, qkv, layer_pass.angles, target, norm).transpose(1, 2)
        queries, keys = rotated[:, : decoder.heads], rotated[:, decoder.heads :]
        values = qkv[:, :, decoder.heads + decoder.kv_heads :].transpose(1, 2)
        if (probe := layer_pass.probe) is not None and probe.head.layer == index:
            probe.measure(queries, keys)
        return layers.attend(queries, keys, values, None).transpose(1, 2).flatten(2)
