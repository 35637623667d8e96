"""What a single line's short prompt costs: its pass, each of its kernels, and other tiles for its products.

    python -m lab.benchmarks.prompt_kernels --out prompt.json
    python -m lab.benchmarks.prompt_kernels --parts first --checkpoints /tmp/checkpoints

"pass": the pass of ``--positions`` as a captured graph, its error against float32, under the plans of PLANS; and for
two of them each kernel, replayed alone and in its chain, measured by leaving it out.
"frames": complete frames of ``--batches`` lines at S = 5 and 15 under ``--plans``: what is better for prompts must not
slow them down. For batches of many lines: ``--parts frames sweep --plans default "never cuBLAS" --batches 96 128 256``.
"sweep": the products of the talker's layers with ``--rows``, over all layers in turn (more weights than the L2 cache
holds), with every tile that ``candidates`` names, and cuBLAS's. Each is checked against float32. The five fastest are
printed with the default.
"first": from text to the first samples on the host, of a preset voice and 18 tokens, with and without streamed weights.
It writes and loads a random checkpoint, which takes longer than all other parts.

Kernels are compiled first, in ``--workers`` processes. Without CUDA the command runs in Triton's interpreter
(TRITON_INTERPRET=1, --shape tiny-1.7B --rows 16 --positions 16 --batches 4): a trial, not a measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import eq, ne
from pathlib import Path
from typing import Any

import torch
from qwen3_tts_morph.morph.frame.buffers import PrefillBatch
from qwen3_tts_morph.morph.kernels import frame as fused
from qwen3_tts_morph.morph.kernels.embed import look_up
from qwen3_tts_morph.morph.kernels.linear.launch import project
from qwen3_tts_morph.morph.kernels.linear.projection import Projection
from qwen3_tts_morph.morph.kernels.linear.tiles import GemmShape, GemmTile, gemm_tile
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.kernels.precompile import compile_only
from qwen3_tts_morph.morph.kernels.precompile import run as run_kernel
from qwen3_tts_morph.morph.kernels.states import CacheSpan, Inputs, Residual
from qwen3_tts_morph.morph.model.layers import Layer
from qwen3_tts_morph.morph.model.weights.linear import Weight

from . import stream
from .bench import Bench
from .common import load_muted, parser
from .kernels import check_pass, relative, widened
from .random_weights import SHAPES, unquantized
from .results import machine_name

HELD, DEFAULT, OURS = "held", "default", "never cuBLAS"
PLANS: dict[str, dict[str, Any]] = {
    HELD: {"stream_max_rows": 0},
    DEFAULT: {},
    OURS: {"library_min_rows": None},
    "108 KB": {"stream_shared_bytes": 108 * 1024},
    "all streamed": {"held_programs": 0},
    "all streamed, 72 KB": {"held_programs": 0, "stream_shared_bytes": 72 * 1024},
    "all streamed, 108 KB": {"held_programs": 0, "stream_shared_bytes": 108 * 1024},
    "no dependent launch": {"pdl": False},
}
COMPARED = (HELD, DEFAULT)
IN_FRAMES = (*COMPARED, "108 KB")
LIBRARY: dict[str, Any] = {"library_min_rows": 3}
MANY_ROWS = 65  # from here on the sweep has wider tiles of tl.dot, and cuBLAS's product with what joins it
DOT_PLANS: dict[str, dict[str, Any]] = {
    "tl.dot": {},
    "tl.dot, 64 outputs": {"gemm_block_n": 64, "gemm_programs": 1, "gemm_shared_bytes": 200_000},
}
WIDE = (  # BLOCK_M, outputs times gates, BLOCK_K, stages, warps
    (64, 64, 128, 4, 4), (64, 128, 64, 4, 4), (128, 64, 64, 4, 4), (128, 64, 64, 4, 8), (128, 64, 128, 3, 8),
    (128, 128, 64, 3, 4), (128, 128, 64, 4, 8), (128, 256, 64, 3, 8), (256, 64, 64, 4, 8), (256, 128, 64, 3, 8),
)  # fmt: skip
RINGS = ((128, 108), (64, 108), (64, 72), (64, 216))  # BLOCK_K, KB
LARGEST_RING = 220  # KB
PROGRAMS = (90, 260)  # that a candidate's grid may have
FOLDED_COLUMNS = 128  # activation rows times folds, at most: more of them wait for the tensor cores
LARGEST_ERROR = 0.006  # relative, of bf16
BEST = 5


@dataclass(frozen=True)
class Product:
    """A linear layer of the talker, as the pass launches it: a call of (layer, tile, plan), and how to check it.

    ``wanted`` returns the result of a layer in float32, ``made`` what a call has left; ``before`` clears that.
    """

    name: str
    shape: GemmShape
    size: int
    call: Callable[[Layer, GemmTile | None, Plan], None]
    wanted: Callable[[Layer], torch.Tensor]
    made: torch.Tensor
    torch_x: torch.Tensor

    def run_all(self, layers: Sequence[Layer], tile: GemmTile | None, plan: Plan) -> None:
        """Call it for each layer."""
        for layer in layers:
            self.call(layer, tile, plan)


def products_of(bench: Bench, plan: Plan, rows: int) -> list[Product]:
    """Return the four products of a layer with ``rows`` rows."""
    stack, device = bench.weights.talker, bench.device
    first, dtype, eps = stack.layers[0], stack.norm.dtype, stack.eps
    stream = look_up(
        plan, Inputs(torch.randn(rows, len(stack.norm), device=device).to(dtype)), first.input_norm, eps
    )
    heads, active = (
        torch.randn(rows, weight.shape[1], device=device).to(dtype) for weight in (first.out, first.down)
    )
    qkv = torch.zeros(rows, len(first.qkv), device=device, dtype=plan.product_dtype(rows, dtype))
    gated = torch.zeros(rows, first.down.shape[1], device=device, dtype=dtype)
    target = Residual.empty(plan, rows, stack.norm)
    target.values.zero_()

    def normed(weight: Weight) -> torch.Tensor:
        scale = (stream.values.square().mean(-1, keepdim=True) + eps).rsqrt()
        operand = stream.operand(plan).float() * (1.0 if stream.squares is None else scale)
        return operand @ unquantized(weight).float().T

    def add(inputs: torch.Tensor, weight: Weight, tile: GemmTile | None, plan: Plan) -> None:
        made = Projection(weight, eps=eps, residual=target, next_norm=stack.norm)
        project(plan, Inputs(inputs), target.values, made, tile)

    def swiglu(layer: Layer) -> torch.Tensor:
        gate, up = normed(layer.gate_up).chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up

    def shape(weight: Weight, gated: bool = False) -> GemmShape:
        outputs, width = weight.shape
        return GemmShape(rows, outputs // 2 if gated else outputs, width, dtype.itemsize, gated)

    def size(weight: Weight) -> int:
        return unquantized(weight).nbytes

    def call_qkv(layer: Layer, tile: GemmTile | None, plan: Plan) -> None:
        project(plan, stream, qkv, Projection(layer.qkv, layer.input_norm, eps), tile)

    def call_gate_up(layer: Layer, tile: GemmTile | None, plan: Plan) -> None:
        project(plan, stream, gated, Projection(layer.gate_up, layer.post_norm, eps, gated=True), tile)

    operand = stream.operand(plan)
    return [
        Product("qkv", shape(first.qkv), size(first.qkv), call_qkv, lambda one: normed(one.qkv), qkv, operand),
        Product(
            "out", shape(first.out), size(first.out), lambda one, *how: add(heads, one.out, *how),
            lambda one: heads.float() @ unquantized(one.out).float().T, target.values, heads,
        ),
        Product(
            "gate_up", shape(first.gate_up, True), size(first.gate_up), call_gate_up, swiglu, gated, operand
        ),
        Product(
            "down", shape(first.down), size(first.down), lambda one, *how: add(active, one.down, *how),
            lambda one: active.float() @ unquantized(one.down).float().T, target.values, active,
        ),
    ]  # fmt: skip


def candidates(plan: Plan, shape: GemmShape) -> dict[str, GemmTile]:
    """Return the tiles that are measured for a product, by name; of equal ones the first."""
    if shape.rows >= MANY_ROWS:
        return {DEFAULT: gemm_tile(plan, shape)} | {describe(tile): tile for tile in wide(shape)}
    found = {DEFAULT: gemm_tile(plan, shape), HELD: gemm_tile(replace(plan, **PLANS[HELD]), shape)}
    for name, changes in DOT_PLANS.items():
        found[name] = gemm_tile(replace(plan, gemm_held=False, **changes), shape)
    if plan.gemm_held:
        found |= {describe(tile): tile for tile in streams(shape)}
    unique: dict[GemmTile, str] = {}
    for name, tile in found.items():
        unique.setdefault(tile, name)
    return {name: tile for tile, name in unique.items()}


def wide(shape: GemmShape) -> Iterator[GemmTile]:
    """Yield tiles of ``gemm`` for many rows."""
    for block_m, columns, block_k, stages, warps in WIDE:
        block_n = columns // (2 if shape.gated else 1)
        for split_k in (1,) if shape.gated else (1, 2, 4):
            programs = -(-shape.rows // block_m) * (shape.outputs // block_n) * split_k
            if shape.outputs % block_n == 0 and (split_k == 1 or programs <= PROGRAMS[1]):
                yield GemmTile(block_m, block_n, block_k, stages, warps, split_k=split_k)


def streams(shape: GemmShape) -> Iterator[GemmTile]:
    """Yield tiles of ``gemm_folded`` with a ring that make a suitable number of programs."""
    block_m, weights = max(8, 1 << (shape.rows - 1).bit_length()), 2 if shape.gated else 1
    for rows, warps in ((64, 4), (128, 8)):
        for folds in (1, 2, 4) if rows == 64 else (1,):
            for split_k in (1,) if shape.gated else (1, 2, 4):
                block_n = rows // folds // weights
                programs = shape.outputs // block_n * split_k
                narrow = block_n < 16 and not shape.gated
                if not PROGRAMS[0] <= programs <= PROGRAMS[1] or folds * block_m > FOLDED_COLUMNS or narrow:
                    continue
                for block_k, shared in RINGS:
                    span = shape.width // split_k // folds
                    stages = min(shared * 1024 // (2 * block_k * (rows + folds * block_m)), span // block_k)
                    if span % block_k or shape.outputs % block_n or stages < 3:
                        continue
                    yield GemmTile(block_m, block_n, block_k, stages, warps, True, split_k, folds)


def describe(tile: GemmTile) -> str:
    """Return a tile in a few words."""
    kind = "folded" if tile.folds else "held" if tile.held else "tl.dot"
    more = f" folds {tile.folds}" if tile.folds else ""
    return (
        f"{kind} {tile.block_m}x{tile.block_n}x{tile.block_k}{more} split {tile.split_k} stages {tile.stages} "
        f"warps {tile.warps}"
    )


# What is run, and compiled before


def prompt_pass(bench: Bench, positions: int) -> Callable[[Plan], None]:
    """Return what runs a prompt of ``positions``, three of which are padding."""
    slots = bench.slots(1, positions, 256)
    arrivals = PrefillBatch.allocate(1, positions, slots.state.hidden)
    arrivals.embeds.normal_()
    arrivals.numbers.copy_(torch.tensor([[0, positions - 3, 2, 7, 9, 0, 0]]))
    return lambda plan: fused.run_prompt(bench.weights, slots, arrivals, plan)


def frames_of(bench: Bench, batch: int, seq_groups: int) -> tuple[Callable[[Plan], None], Callable[[], Any]]:
    """Return what makes a frame of a batch, and what rewinds it."""
    slots = bench.slots(batch, 100, 256)

    def make(plan: Plan) -> None:
        fused.decode_frame(bench.weights, slots, seq_groups, 256, plan)

    return make, lambda: slots.state.positions.fill_(100)


def variants_of(plan: Plan, names: Sequence[str] = tuple(PLANS)) -> dict[str, Plan]:
    """Return the plans of PLANS that differ on this device."""
    found: dict[Plan, str] = {}
    for name in names:
        found.setdefault(replace(plan, **PLANS[name]), name)
    return {name: one for one, name in found.items()} if plan.gemm_held else {DEFAULT: plan}


def started(run: Callable[[Plan], None], variant: Plan) -> Callable[[Plan], None]:
    """Return a call of a plan that runs a variant with the plan's ``start``."""
    return lambda plan: run(replace(variant, start=plan.start))


def jobs_of(bench: Bench, options: argparse.Namespace) -> Iterator[Callable[[Plan], None]]:
    """Yield everything that will be measured, as calls of a plan whose ``start`` compiles."""
    if "pass" in options.parts:
        run = prompt_pass(bench, options.positions)
        for variant in variants_of(bench.plan).values():
            yield started(run, variant)
    if "frames" in options.parts:
        for batch, groups in cases_of(options):
            make, _ = frames_of(bench, batch, groups)
            for variant in variants_of(bench.plan, options.plans).values():
                yield started(make, variant)
    if "sweep" in options.parts:
        layer = bench.weights.talker.layers[0]
        for rows in options.rows:
            for product in products_of(bench, replace(bench.plan, **PLANS[OURS]), rows):
                for tile in candidates(bench.plan, product.shape).values():
                    yield partial(product.call, layer, tile)


def cases_of(options: argparse.Namespace) -> list[tuple[int, int]]:
    """Return the batches and SEQ_GROUPS of "frames"."""
    return [(batch, groups) for batch in options.batches for groups in options.seq_groups]


def compile_share(options: argparse.Namespace) -> None:
    """Compile this worker's share of the kernels, into Triton's cache."""
    index, count = options.compile
    for name in options.shape:
        bench = small_bench(name, options)
        plan = replace(bench.plan, start=compile_only)
        for number, job in enumerate(jobs_of(bench, options)):
            if number % count == index:
                try:
                    job(plan)
                except Exception as error:  # it is reported where it is measured
                    print(f"not compiled: {error}", file=sys.stderr)


def small_bench(name: str, options: argparse.Namespace) -> Bench:
    """Return a bench whose stacks have two layers: the kernels are the same."""
    shape = SHAPES[name]
    SHAPES[name] = replace(shape, talker=replace(shape.talker, layers=2))
    try:
        return Bench(name, torch.device(options.device), options.repeats)
    finally:
        SHAPES[name] = shape


def compile_all(options: argparse.Namespace) -> None:
    """Compile in processes: one process would be held up by Python's lock."""
    command = [sys.executable, "-m", "lab.benchmarks.prompt_kernels", *sys.argv[1:]]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen([*command, "--compile", str(index), str(options.workers)], env=environment)
        for index in range(options.workers)
    ]
    for worker in workers:
        worker.wait()


# The parts


def pass_part(bench: Bench, options: argparse.Namespace) -> None:
    """Measure the pass under every plan, and its kernels under two."""
    decoder, wide = bench.weights.talker, widened(bench.weights).talker
    slots = bench.slots(1, options.positions, 256)
    span = CacheSpan(slots.cache, slots.angles, options.positions, options.positions)
    check_pass(bench, f"pass of {options.positions}", (decoder, wide), span, 1)
    del wide
    run = prompt_pass(bench, options.positions)
    for name, plan in variants_of(bench.plan).items():
        try:
            ms, _ = bench.measure(partial(run, plan))
            bench.note("pass", f"{options.positions} positions, {name}", ms=ms)
        except Exception as error:
            bench.note("pass", f"{options.positions} positions, {name}", error=str(error).splitlines()[0])
    for name, plan in variants_of(bench.plan, COMPARED).items():
        kernels_of_pass(bench, run, plan, name)


def kernels_of_pass(bench: Bench, run: Callable[[Plan], None], plan: Plan, label: str) -> None:
    """Record us per launch of each kind of kernel, alone and in the chain."""
    counts: dict[str, int] = {}

    def count(kernel: Any, grid: tuple[int, ...], **named: Any) -> None:
        counts[kind_of(kernel, named)] = counts.get(kind_of(kernel, named), 0) + 1
        run_kernel(kernel, grid, **named)

    run(replace(plan, start=count))
    complete, _ = bench.measure(lambda: run(plan))
    for kind, launches in counts.items():
        alone = measure_some(bench, run, plan, partial(eq, kind))
        others = measure_some(bench, run, plan, partial(ne, kind))
        us, chain = (1000 * ms / launches for ms in (alone, complete - others))
        bench.note("kernel", f"{kind}, {label}", launches=launches, us=us, chain_us=chain)


def measure_some(
    bench: Bench, run: Callable[[Plan], None], plan: Plan, wanted: Callable[[str], bool]
) -> float:
    """Return ms of a pass with some of its kernels only."""

    def start(kernel: Any, grid: tuple[int, ...], **named: Any) -> None:
        if wanted(kind_of(kernel, named)):
            run_kernel(kernel, grid, **named)

    return bench.measure(lambda: run(replace(plan, start=start)))[0]


def kind_of(kernel: Any, named: dict[str, Any]) -> str:
    """Return a kernel's name, with the size of its weights where it has any."""
    name = str(kernel.fn.__name__)
    if "K" not in named or "N" not in named:
        return name
    return f"{name} {named['N']}x{named['K']}{' gated' if named.get('GATED') else ''}"


def frames_part(bench: Bench, options: argparse.Namespace) -> None:
    """Measure complete frames under the plans that are compared."""
    for batch, groups in cases_of(options):
        make, rewind = frames_of(bench, batch, groups)
        times = {
            f"{name}_ms": bench.measure(partial(make, plan), rewind)[0]
            for name, plan in variants_of(bench.plan, options.plans).items()
        }
        bench.note("frame", f"S={groups}, batch {batch}", **times)


def sweep_part(bench: Bench, options: argparse.Namespace) -> None:
    """Measure every candidate of every product."""
    for rows in options.rows:
        for product in products_of(bench, replace(bench.plan, **PLANS[OURS]), rows):
            sweep(bench, product, rows)
        if rows >= MANY_ROWS:
            joined(bench, rows)


def joined(bench: Bench, rows: int) -> None:
    """Measure cuBLAS's products with the kernels after them."""
    plan, layers = replace(bench.plan, **LIBRARY), bench.weights.talker.layers
    for product in products_of(bench, plan, rows):
        product.made.zero_()
        product.call(layers[0], None, plan)
        error = float(relative(product.made.float(), product.wanted(layers[0])))
        bench.require(error < LARGEST_ERROR, f"{product.name}, {rows} rows, cuBLAS: error {error:.4f}")
        ms, _ = bench.measure(partial(product.run_all, layers, None, plan))
        note_product(bench, product, rows, 1000 * ms / len(layers), "cuBLAS, joined")


def sweep(bench: Bench, product: Product, rows: int) -> None:
    """Measure a product's candidates, and record the best ones, the default and cuBLAS's."""
    layers = bench.weights.talker.layers
    found: list[tuple[float, str, GemmTile]] = []
    for name, tile in candidates(bench.plan, product.shape).items():
        try:
            error = error_of(bench, product, tile)
            ms, _ = bench.measure(partial(product.run_all, layers, tile, bench.plan))
        except Exception as failure:
            bench.note("sweep", f"{product.name}, {rows} rows: {describe(tile)}", failed=str(failure)[:100])
            continue
        right = error < LARGEST_ERROR or bench.device.type != "cuda"
        bench.require(right, f"{product.name}, {rows} rows, {describe(tile)}: error {error:.4f}")
        if right:
            found.append((1000 * ms / len(layers), name, tile))
    found.sort(key=lambda one: one[0])
    named = [one for one in found if one[1] in (DEFAULT, HELD, *DOT_PLANS)]
    for us, name, tile in [*found[:BEST], *(one for one in named if one not in found[:BEST])]:
        note_product(bench, product, rows, us, f"{name}: {describe(tile)}" if name in PLANS else name)
    weights = [getattr(layer, product.name) for layer in layers]
    ms, _ = bench.measure(lambda: [torch.nn.functional.linear(product.torch_x, one) for one in weights])
    note_product(bench, product, rows, 1000 * ms / len(layers), "cuBLAS, product alone")


def error_of(bench: Bench, product: Product, tile: GemmTile) -> float:
    """Return a candidate's relative error against float32."""
    layer = bench.weights.talker.layers[0]
    product.made.zero_()
    product.call(layer, tile, bench.plan)
    return float(relative(product.made.float(), product.wanted(layer)))


def note_product(bench: Bench, product: Product, rows: int, us: float, what: str) -> None:
    tb_s = product.size / us / 1e6
    bench.note("sweep", f"{product.name}, {rows} rows: {what}", us=us, tb_s=tb_s)


def first_part(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the time to the first samples of one line with and without streamed weights, twice each."""
    rows: list[dict[str, Any]] = []
    for shape in options.shape:
        arguments = ["--shape", shape, "--device", options.device]
        if options.checkpoints:
            arguments += ["--checkpoints", str(options.checkpoints)]
        chosen = parser(__doc__, frames=20, repeats=options.first_repeats).parse_args(arguments)
        model = load_muted(chosen)
        for name in (*COMPARED, *COMPARED):
            with planned(PLANS[name]):
                for voice in ("preset", "x_vector"):
                    case = stream.Case(stream.AUTO, 15, voice, frames=chosen.frames, characters=18)
                    row = stream.measure(model, chosen, case, chosen.repeats)
                    shown = {key: value for key, value in row.details.items() if key.endswith("_ms")}
                    rows.append({"table": "first", "model": shape, "what": f"{voice}, {name}", **shown})
                    print(f"first   {shape} {voice}, {name}: {shown}", flush=True)
    return rows


@contextmanager
def planned(changes: dict[str, Any]) -> Iterator[None]:
    """Have every plan of a device changed."""
    original = Plan.of

    def changed(device: torch.device) -> Plan:
        return replace(original(device), **changes)

    Plan.of = changed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Plan.of = original  # type: ignore[method-assign]


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Return the short table that is printed last."""
    lines = []
    for row in rows:
        numbers = "  ".join(
            f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
            for key, value in row.items()
            if key not in ("table", "model", "what", "gap_ms")
        )
        lines.append(f"{row['table']:7} {row['model']:9} {row['what']:90} {numbers}")
    return "\n".join(lines)


def main() -> int:
    """Read the command line, compile, measure and print."""
    table = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    table.add_argument("--shape", nargs="+", default=["1.7B", "0.6B"], choices=sorted(SHAPES))
    table.add_argument("--parts", nargs="+", default=["pass", "frames", "sweep"])
    table.add_argument("--positions", type=int, default=32)
    table.add_argument("--rows", type=int, nargs="+", default=[32, 16, 64])
    table.add_argument("--plans", nargs="+", default=IN_FRAMES, choices=tuple(PLANS))
    table.add_argument("--batches", type=int, nargs="+", default=[16, 32, 64])
    table.add_argument("--seq-groups", type=int, nargs="+", default=[15, 5])
    table.add_argument("--repeats", type=int, default=5)
    table.add_argument("--first-repeats", type=int, default=30)
    table.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1))
    table.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    table.add_argument("--checkpoints", type=Path, help="folder that keeps the random checkpoint")
    table.add_argument("--out", type=Path, help="where to write the rows as JSON")
    table.add_argument("--compile", type=int, nargs=2, help=argparse.SUPPRESS)
    options = table.parse_args()
    if options.compile:
        with torch.inference_mode():
            compile_share(options)
        return 0
    started = time.perf_counter()
    if options.device == "cuda" and {"pass", "frames", "sweep"} & set(options.parts):
        compile_all(options)
        print(f"compiled after {time.perf_counter() - started:.0f} s", flush=True)
    rows, failures = measure_all(options, started)
    if "first" in options.parts:
        rows += first_part(options)
    if options.out is not None:
        machine = machine_name(torch.device(options.device))
        options.out.write_text(json.dumps({"machine": machine, "failures": failures, "rows": rows}, indent=1))
    print(f"\n{summary(rows)}\n\n{time.perf_counter() - started:.0f} s in all; {len(failures)} checks failed")
    return 1 if failures else 0


@torch.inference_mode()
def measure_all(options: argparse.Namespace, started: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure the parts asked for; return the rows and the checks that failed."""
    parts = {"pass": pass_part, "frames": frames_part, "sweep": sweep_part}
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for shape in options.shape:
        if not set(parts) & set(options.parts):
            break
        bench = Bench(shape, torch.device(options.device), options.repeats)
        for name, part in parts.items():
            if name in options.parts:
                part(bench, options)
                print(f"{shape}, {name}: after {time.perf_counter() - started:.0f} s", flush=True)
        rows, failures = rows + bench.rows, failures + bench.failures
    return rows, failures


if __name__ == "__main__":
    sys.exit(main())
