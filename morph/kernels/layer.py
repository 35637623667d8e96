"""A pass over a stack of layers: one position a line, or two for the predictor's first, with the fused kernels."""

from __future__ import annotations

from typing import Any

import torch
import triton

from ..model.layers import Layer, LayerStack
from ..model.linear import Weight, split_scales
from .attention.batch import attend_many
from .attention.one_line import attend_line, attend_project, join_project
from .attention.split import attend, combine
from .embed import look_up_states
from .linear.gemm import SHARE, join_parts, project_many
from .linear.gemv import project_few
from .plan import Plan, WideTile, launch
from .states import Inputs, Place, States

DOT_QUERIES = 16  # rows that the tensor cores multiply at the least
SHORT_CONTEXT = 32  # positions up to which one block of attention holds all
ATTEND_WARPS = 4
EMBED_BLOCK = 128
JOIN_BLOCK = 128  # an output a thread: the loads of all parts stay on their way together
# Arguments of project_many that say what is done to a product: for one in parts they are join_parts'.
BEHIND = ("bias", "residual", "out", "next_gain", "next_operand", "next_squares")


def as_words(values: torch.Tensor) -> torch.Tensor:
    """A weight as the kernels of few states read it: INT8 as words of four."""
    return values.view(torch.int32) if values.dtype == torch.int8 else values


def look_up(plan: Plan, inputs: Inputs, gain: torch.Tensor) -> States:
    """Many states from where they are, for a first product behind the norm of weight ``gain``."""
    states = States.empty(plan, inputs.rows, gain)
    x, tokens = inputs.source()
    launch(
        look_up_states, (inputs.rows, -(-len(gain) // EMBED_BLOCK)), plan, 4, dependent=inputs.before is None, x=x,
        before=inputs.before, tokens=tokens, token_stride=0 if tokens is None else tokens.stride(0),
        out=states.wide, gain=gain, operand=states.operand(plan), squares=states.squares, H=len(gain),
        BLOCK=EMBED_BLOCK,
    )  # fmt: skip
    return states


def project(
    plan: Plan,
    inputs: States | Inputs,
    weight: Weight,
    out: torch.Tensor,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
    bias: torch.Tensor | None = None,
    gated: bool = False,
    partials: torch.Tensor | None = None,
    residual: States | None = None,
    kept: torch.Tensor | None = None,
    normed: torch.Tensor | None = None,
    result: States | None = None,
    next_norm: torch.Tensor | None = None,
) -> None:
    """``project_few`` or ``project_many``, by the number of states; arguments as there. ``residual`` is added to.

    Many states before a norm come multiplied by its weight; ``next_norm`` is the one by which those that the product
    leaves in ``residual``, or without one in ``result``, are to be.
    """
    rows, outputs = out.shape
    values, scales = split_scales(weight)
    width = values.shape[1]
    common: dict[str, Any] = {
        "gain": norm, "eps": eps, "weight": values, "scales": scales, "bias": bias, "out": out, "normed": normed,
        "K": width, "N": outputs, "GATED": gated, "residual": None if residual is None else residual.wide,
    }  # fmt: skip
    if rows > plan.few:
        left = residual or result
        common |= {
            "x": inputs.operand(plan), "states": rows, "next_gain": next_norm,
            "squares": inputs.squares if isinstance(inputs, States) and norm is not None else None,
            "next_operand": None if left is None else left.operand(plan),
            "next_squares": None if left is None else left.squares,
            "wide": None if normed is None else inputs.source()[0],
        }  # fmt: skip
        _project_many(plan, common)
        return
    sums_parts = partials is not None and residual is None
    warps = plan.gated_warps if sums_parts else 0
    tile = plan.tile(outputs, width, values.element_size(), 2 if gated else 1, warps=warps)
    x, tokens = inputs.source()
    before = inputs.before if isinstance(inputs, Inputs) else None
    launch(
        project_few, (-(-outputs // tile.outputs),), plan, tile.warps, plan.registers, before is None, x=x,
        before=before, tokens=tokens, token_stride=0 if tokens is None else tokens.stride(0), partials=partials,
        kept=kept, STATES=rows, PARTS=0 if partials is None else len(partials), WARPS=tile.warps, ROWS=tile.rows,
        CHUNKS=tile.chunks, CHUNK=tile.chunk, EVICT=plan.evict, **common | {"weight": as_words(values)},
    )  # fmt: skip


def _project_many(plan: Plan, arguments: dict[str, Any]) -> None:
    """A product of many states, ``project_many``'s arguments up to the tile's sizes: in one launch, or in parts."""
    rows, outputs = arguments["states"], arguments["N"]
    itemsize = arguments["x"].element_size()  # INT8 weights are multiplied as wide as the states
    split = arguments["normed"] is None
    holds = split and arguments["scales"] is None
    wide = plan.wide_tile(rows, outputs, arguments["K"], itemsize, arguments["GATED"], holds, split)
    if wide.parts == 1:
        _multiply(plan, wide, arguments)
        return
    parts = plan.empty("product parts", (wide.parts, rows, outputs), arguments["x"], torch.float32)
    _multiply(plan, wide, arguments | dict.fromkeys(BEHIND) | {"out": parts})
    launch(
        join_parts, (rows, -(-outputs // JOIN_BLOCK)), plan, 4, parts=parts, states=rows, N=outputs,
        PARTS=wide.parts, COLUMNS=JOIN_BLOCK, **{name: arguments[name] for name in BEHIND},
    )  # fmt: skip


def _multiply(plan: Plan, wide: WideTile, arguments: dict[str, Any]) -> None:
    """Launch ``project_many``, ``project_held`` or ``project_folded``."""
    rows, outputs, width = arguments["states"], arguments["N"], arguments["K"]
    grid = (-(-outputs // wide.columns), -(-rows // wide.padded), wide.parts)
    sizes: dict[str, Any] = {
        "PADDED": wide.padded, "COLUMNS": wide.columns, "SEGMENT": wide.segment,
        "SHARES": triton.next_power_of_2(-(-width // int(SHARE))),
    }  # fmt: skip
    if wide.held:  # in Gluon, which not every Triton has
        unused = ("gain", "normed", "wide", "scales")
        arguments = {key: value for key, value in arguments.items() if key not in unused}
        if wide.folds:
            from .linear.gemm_folded import project_folded

            launch(project_folded, grid, plan, wide.warps, FOLDS=wide.folds, **arguments, **sizes)
            return
        from .linear.gemm_held import project_held

        sizes |= {"STAGES": wide.stages, "PARTS": wide.parts}
        launch(project_held, grid, plan, wide.warps, **arguments, **sizes)
        return
    sizes |= {"STAGES": wide.stages, "PARTS": wide.parts}
    row_bytes = width // wide.parts * arguments["weight"].element_size()
    sizes["PREFETCH"] = plan.prefetches(wide, outputs, row_bytes)
    sizes["NORMED"] = max(16, triton.next_power_of_2(-(-width // grid[0])))
    launch(project_many, grid, plan, wide.warps, **arguments, **sizes)


def run_layers(decoder: LayerStack, plan: Plan, inputs: Inputs | States, place: Place) -> States:
    """Run all layers over the states of each line's new positions; the last norm is left to who multiplies by it."""
    states, first = _begin(decoder, plan, inputs)
    for index, layer in enumerate(decoder.layers):
        run_layer(decoder, layer, index, plan, states, place, first if index == 0 else None)
    return states


def _norm_after(decoder: LayerStack, index: int) -> torch.Tensor:
    """The weight of the norm behind a layer."""
    last = index + 1 == len(decoder.layers)
    return decoder.norm if last else decoder.layers[index + 1].input_norm


def run_layer(
    decoder: LayerStack,
    layer: Layer,
    index: int,
    plan: Plan,
    states: States,
    place: Place,
    inputs: Inputs | None = None,
) -> None:
    """Run one layer in place; ``inputs`` is where the first layer of few states finds them."""
    like = layer.input_norm
    rows = len(states.wide)
    qkv = plan.empty("qkv", (rows, len(layer.qkv)), like, torch.float32)
    kept = None if inputs is None else states.wide
    project(plan, inputs or states, layer.qkv, qkv, layer.input_norm, decoder.eps, kept=kept)
    partials = _attention(decoder, layer, index, plan, states, qkv, place)
    active = plan.empty("active", (rows, layer.down.shape[1]), like)
    project(plan, states, layer.gate_up, active, layer.post_norm, decoder.eps, gated=True, partials=partials)
    after = _norm_after(decoder, index)
    project(
        plan, Inputs(active), layer.down, states.wide, partials=partials, residual=states, next_norm=after
    )


def _begin(decoder: LayerStack, plan: Plan, inputs: Inputs | States) -> tuple[States, Inputs | None]:
    """The buffers of the residual stream, and what the first kernel is to fill them from, unless they are full."""
    if isinstance(inputs, States):
        return inputs, None
    if inputs.rows <= plan.few:
        return States.empty(plan, inputs.rows, decoder.norm), inputs
    return look_up(plan, inputs, decoder.layers[0].input_norm), None


def _attention(
    decoder: LayerStack, layer: Layer, index: int, plan: Plan, states: States, qkv: torch.Tensor, place: Place
) -> torch.Tensor | None:
    """Attention and its projection: added to many states, or given in parts ``[parts, R, H]`` for one line."""
    rows = len(qkv)
    lines = rows // place.length
    if lines == 1 and rows <= plan.few:
        if place.positions is None and place.window <= SHORT_CONTEXT:
            return _attend_short(decoder, layer, index, plan, qkv, place)
        split = None if place.positions is None else plan.split_line(place.window)
        if split is not None:
            return _attend_line(decoder, layer, index, plan, qkv, place, split)
    mean = Inputs(_attend_lines(decoder, index, plan, qkv, place).view(rows, -1))
    project(plan, mean, layer.out, states.wide, residual=states, next_norm=layer.post_norm)
    return None


def _attend_short(
    decoder: LayerStack, layer: Layer, index: int, plan: Plan, qkv: torch.Tensor, place: Place
) -> torch.Tensor:
    """One line's attention over a frame's positions, projected: ``[kv_heads, R, H]``."""
    partials = plan.empty("partials", (decoder.kv_heads, len(qkv), len(layer.out)), decoder.norm)
    grid, product = _product(decoder, layer, plan, partials)
    block = max(16, 2 * product["WARPS"], triton.next_power_of_2(place.window))
    launch(
        attend_project, grid, plan, product["WARPS"], T=place.length, BLOCK=block, KV_HEADS=decoder.kv_heads,
        start=place.start, **_source(decoder, index, qkv, place), **product,
    )  # fmt: skip
    return partials


def _attend_line(
    decoder: LayerStack,
    layer: Layer,
    index: int,
    plan: Plan,
    qkv: torch.Tensor,
    place: Place,
    split: tuple[int, int, int],
) -> torch.Tensor:
    """One line's attention over a long context, split as ``Plan.split_line`` says, projected: ``[parts, 1, H]``."""
    splits, warps, positions = split
    means = plan.empty("means", (splits, decoder.heads, decoder.head_dim), qkv)
    sums = plan.empty("log sums", (splits, decoder.heads), qkv)
    launch(
        attend_line, (decoder.kv_heads, splits), plan, warps, positions=place.positions, window=place.window,
        means=means, log_sums=sums, HEADS=decoder.heads, KV_HEADS=decoder.kv_heads, D=decoder.head_dim,
        SPLITS=splits, WARPS=warps, ROWS=positions, **_source(decoder, index, qkv, place),
    )  # fmt: skip
    parts = plan.product_parts(decoder.heads, decoder.head_dim)
    partials = plan.empty("partials", (parts, 1, len(layer.out)), decoder.norm)
    grid, product = _product(decoder, layer, plan, partials)
    launch(
        join_project, grid, plan, product["WARPS"], means=means, log_sums=sums, SPLITS=splits, PARTS=parts,
        **product,
    )  # fmt: skip
    return partials


def _product(
    decoder: LayerStack, layer: Layer, plan: Plan, partials: torch.Tensor
) -> tuple[tuple[int, int], dict[str, Any]]:
    """Grid and arguments of a projection that leaves its product in ``partials`` ``[parts, R, H]``."""
    parts, outputs = len(partials), len(layer.out)
    values, scales = split_scales(layer.out)
    width = values.shape[1] // parts
    tile = plan.tile(outputs, width, values.element_size(), grids=parts, warps=plan.product_warps)
    return (parts, -(-outputs // tile.outputs)), {
        "weight": as_words(values), "scales": scales, "out": partials, "HEADS": decoder.heads, "D": decoder.head_dim,
        "N": outputs, "WARPS": tile.warps, "ROWS": tile.rows, "CHUNKS": tile.chunks, "CHUNK": tile.chunk,
        "EVICT": plan.evict,
    }  # fmt: skip


def _source(decoder: LayerStack, index: int, qkv: torch.Tensor, place: Place) -> dict[str, Any]:
    """What a layer's attention reads."""
    keys, values = place.cache.keys[index], place.cache.values[index]
    return {
        "qkv": qkv, "gains": decoder.qk_norms[index], "eps": decoder.eps, "cos": place.angles.cos,
        "sin": place.angles.sin, "cache_keys": keys, "cache_values": values, "head_stride": keys.stride(1),
    }  # fmt: skip


def _attend(
    decoder: LayerStack, index: int, plan: Plan, qkv: torch.Tensor, place: Place, splits: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention before its projection, ``[splits, R, heads, D]``; with more than one split their log-sums too."""
    rows, like, lines = len(qkv), decoder.norm, len(qkv) // place.length
    shape = (splits, rows, decoder.heads, decoder.head_dim)
    mean = plan.empty("mean", shape, like, torch.float32 if splits > 1 else like.dtype)
    sums = plan.empty("log sums", shape[:3], like, torch.float32) if splits > 1 else None
    dot = like.dtype != torch.float32  # whose digits the tensor cores would cut
    queries = place.length * decoder.heads // decoder.kv_heads
    block = max(16, triton.next_power_of_2(min(plan.split_block, place.window)))
    launch(
        attend, (lines, decoder.kv_heads, splits), plan, ATTEND_WARPS, positions=place.positions, start=place.start,
        window=place.window, line_stride=place.cache.keys.stride(1), out=mean, log_sums=sums, SPLITS=splits,
        EARLY=place.positions is not None, HEADS=decoder.heads, KV_HEADS=decoder.kv_heads, D=decoder.head_dim,
        T=place.length, QUERIES=max(queries, DOT_QUERIES) if dot else queries, BLOCK=block, DOT=dot,
        **_source(decoder, index, qkv, place),
    )  # fmt: skip
    return mean, sums


def _attend_lines(
    decoder: LayerStack, index: int, plan: Plan, qkv: torch.Tensor, place: Place
) -> torch.Tensor:
    """Attention of several lines or positions before its projection, ``[R, heads, D]``."""
    lines = len(qkv) // place.length
    splits = plan.split(lines, decoder.kv_heads, place.window)
    if plan.attend_many and place.length == 1 and splits == 1:
        return _attend_many(decoder, index, plan, qkv, place)
    mean, sums = _attend(decoder, index, plan, qkv, place, splits)
    return mean[0] if sums is None else _combine(decoder, plan, mean, sums)


def _attend_many(
    decoder: LayerStack, index: int, plan: Plan, qkv: torch.Tensor, place: Place
) -> torch.Tensor:
    """The same for one position a line, whose context is not split."""
    keys = place.cache.keys
    out = plan.empty("mean", (len(qkv), decoder.heads, decoder.head_dim), decoder.norm)
    programs = len(qkv) * decoder.kv_heads
    warps, rows, copies = plan.share_line(programs, place.window, decoder.head_dim * keys.element_size())
    launch(
        attend_many, (len(qkv), decoder.kv_heads), plan, warps, positions=place.positions, start=place.start,
        window=place.window, line_stride=keys.stride(1), out=out, HEADS=decoder.heads, KV_HEADS=decoder.kv_heads,
        D=decoder.head_dim, WARPS=warps, ROWS=rows, COPIES=copies, **_source(decoder, index, qkv, place),
    )  # fmt: skip
    return out


def _combine(decoder: LayerStack, plan: Plan, mean: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """Join the parts of many rows' attention."""
    joined = plan.empty("joined", mean.shape[1:], decoder.norm)
    launch(
        combine, (len(joined), decoder.kv_heads), plan, ATTEND_WARPS, parts=mean, log_sums=sums, out=joined,
        HEADS=decoder.heads, KV_HEADS=decoder.kv_heads, D=decoder.head_dim, SPLITS=len(mean),
    )  # fmt: skip
    return joined
