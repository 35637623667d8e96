"""A pass over a stack of layers: one new position per line, or two for the predictor's first.

A layer is four launches for one line of the predictor, five for the talker: RMSNorm + qkv, attention (+ output
projection), RMSNorm + gate and up + SwiGLU, down + residual. With many lines it is eight, as cuBLAS's products and
what joins them are launches of their own.
"""

from __future__ import annotations

import torch

from ..model.layers import LayerStack
from .alignment import ask_head
from .attention.launch import AttentionInputs, attend
from .embed import look_up
from .linear.launch import project
from .linear.projection import Projection
from .plan import Plan
from .states import CacheSpan, Inputs, Residual


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
    project(
        plan, inputs or residual, qkv, Projection(layer.qkv, layer.input_norm, stack.eps, input_copy=copy)
    )
    # One line's attention leaves partials: gate and up add them to the residual as they read it, and so does down.
    partials = attend(plan, AttentionInputs(stack, index, qkv, span), residual)
    ask_head(plan, AttentionInputs(stack, index, qkv, span))
    active = plan.empty("active", (rows, layer.down.shape[1]), like)
    gate_up = Projection(layer.gate_up, layer.post_norm, stack.eps, gated=True, partials=partials)
    project(plan, residual, active, gate_up)
    down = Projection(
        layer.down, eps=stack.eps, partials=partials, residual=residual, next_norm=_norm_after(stack, index)
    )
    project(plan, Inputs(active), residual.values, down)


def _norm_after(stack: LayerStack, index: int) -> torch.Tensor:
    last = index + 1 == len(stack.layers)
    return stack.norm if last else stack.layers[index + 1].input_norm
