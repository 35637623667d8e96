"""The linear kernels with everything that is fused into them, against float64."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from qwen3_tts_morph.morph.kernels.embed import look_up
from qwen3_tts_morph.morph.kernels.linear.gemm import SUM_WIDTH
from qwen3_tts_morph.morph.kernels.linear.launch import Projection, project
from qwen3_tts_morph.morph.kernels.linear.tiles import SPLIT_MULTIPLE, GemmShape, gemm_tile
from qwen3_tts_morph.morph.kernels.plan import Plan, has_gluon
from qwen3_tts_morph.morph.kernels.states import Inputs, Residual

SIZES = [(64, 96), (100, 37), (1500, 40), (2048, 9)]
# GEMM: all sizes with few rows, one size with more rows than one program has.
CASES = [(*size, rows) for size in SIZES for rows in (3, 17)] + [(100, 37, rows) for rows in (5, 64, 65, 70)]
# Triton's interpreter truncates bf16 where a GPU rounds it.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 6e-3 if torch.cuda.is_available() else 1.5e-2}


def random(device, *shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).to(device)


def residual_of(x: torch.Tensor, gain: torch.Tensor) -> Residual:
    """A residual stream as it is before a product whose norm has the weight ``gain``."""
    if len(x) <= Plan().gemv_max_rows:
        return Residual(x.clone(), None)
    return look_up(Plan(), Inputs(x.to(gain.dtype)), gain)


def rms_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gain.double()


def check(out: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    error = (out.double() - wanted).norm() / wanted.norm()
    assert error < TOLERANCE[torch.bfloat16 if dtype == torch.float16 else dtype], float(error)


def check_operand(stream: Residual, gain: torch.Tensor) -> None:
    """What a residual stream holds for the next GEMM agrees with its float32 values."""
    width = len(gain)
    check(stream.operand(Plan()), stream.values.double() * gain.double(), gain.dtype)
    padded = torch.nn.functional.pad(stream.values.double().square(), (0, -width % int(SUM_WIDTH)))
    sums = padded.unflatten(1, (-1, int(SUM_WIDTH))).sum(2)
    assert torch.allclose(stream.squares.double().T, sums, rtol=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "width, outputs, rows", [*CASES, *((*size, rows) for size in SIZES for rows in (1, 2))]
)
def test_norm_and_projection(device, width, outputs, rows, dtype):
    x, gain = random(device, rows, width), 1 + random(device, width, dtype=dtype)
    weight = random(device, outputs, width, dtype=dtype, seed=1)
    out = torch.full((rows, outputs), torch.nan, device=device)
    normed = torch.full((rows, width), torch.nan, dtype=dtype, device=device)
    project(Plan(), residual_of(x, gain), out, Projection(weight, gain, 1e-6, normed_copy=normed))
    wanted = rms_norm(x.double(), gain)
    check(normed, wanted, dtype)
    check(out, wanted @ weight.double().T, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize("rows, parts", [(1, 0), (1, 2), (2, 8), (5, 0)])
@pytest.mark.parametrize("width, outputs", SIZES)
def test_swiglu_of_the_residual_and_its_partials(device, width, outputs, rows, parts, dtype):
    x, gain = random(device, rows, width), 1 + random(device, width, dtype=dtype)
    weight = random(device, 2 * outputs, width, dtype=dtype) / width**0.5
    partials = random(device, parts, rows, width, dtype=dtype) if parts else None
    out = torch.full((rows, outputs), torch.nan, dtype=dtype, device=device)
    stream = residual_of(x, gain)
    before = stream.values.clone()
    project(Plan(), stream, out, Projection(weight, gain, 1e-6, gated=True, partials=partials))
    full = x.double() + (partials.double().sum(0) if parts else 0)
    gate, up = (rms_norm(full, gain) @ weight.double().T).chunk(2, dim=-1)
    check(out, torch.nn.functional.silu(gate) * up, dtype)
    assert torch.equal(stream.values, before)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "width, outputs, rows, parts",
    [(*case, 0) for case in CASES] + [(*size, *few) for size in SIZES for few in ((1, 0), (1, 2), (2, 8))],
)
def test_residual_is_added_in_place(device, width, outputs, rows, parts, dtype):
    residual, inputs = random(device, rows, outputs, seed=2), random(device, rows, width, dtype=dtype)
    weight = random(device, outputs, width, dtype=dtype, seed=1)
    partials = random(device, parts, rows, outputs, dtype=dtype) if parts else None
    gain, next_gain = (1 + random(device, outputs, dtype=dtype, seed=seed) for seed in (3, 4))
    stream = residual_of(residual, gain)
    before = stream.values.double()
    project(
        Plan(),
        Inputs(inputs),
        stream.values,
        Projection(weight, partials=partials, residual=stream, next_norm=next_gain),
    )
    wanted = before + inputs.double() @ weight.double().T
    check(stream.values, wanted + (partials.double().sum(0) if parts else 0), dtype)
    if rows > 2:
        check_operand(stream, next_gain)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
def test_rows_of_a_gemm_pass_are_looked_up(device, dtype):
    table, gain = random(device, 50, 100, dtype=dtype), 1 + random(device, 100, dtype=dtype)
    tokens = torch.tensor([7, 49, 0, 3, 11, 12, 7, 1], device=device)[::2]
    stream = look_up(Plan(), Inputs(table, tokens), gain)
    assert torch.equal(stream.values, table[tokens].float())
    check_operand(stream, gain)
    last = stream.last(2, Plan())
    assert torch.equal(last.values, stream.values[1::2])
    check_operand(last, gain)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize("lines", [2, 3])
def test_hidden_states_that_precede_the_tokens(device, dtype, lines):
    table, hidden = random(device, 50, 100, dtype=dtype), random(device, lines, 100, dtype=dtype, seed=1)
    gain = 1 + random(device, 100, dtype=dtype)
    tokens = torch.tensor([7, 49, 0, 3, 11, 12], device=device)[: 2 * lines : 2]
    inputs = Inputs(table, tokens, hidden)
    wanted = torch.stack((hidden, table[tokens]), dim=1).flatten(0, 1)
    assert torch.equal(inputs.operand(Plan()), wanted)
    stream = look_up(Plan(), inputs, gain)
    assert torch.equal(stream.values, wanted.float())
    check_operand(stream, gain)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_rows_of_a_table_and_a_bias(device, rows):
    table, weight = random(device, 50, 64), random(device, 20, 64)
    bias, tokens = random(device, 20), torch.tensor([7, 49, 0, 3, 11, 12], device=device)[::2][:rows]
    out = torch.full((rows, 20), torch.nan, device=device)
    copy = torch.full((rows, 64), torch.nan, device=device)
    project(Plan(), Inputs(table, tokens), out, Projection(weight, bias=bias, input_copy=copy))
    check(out, (table[tokens].double() @ weight.double().T) + bias.double(), torch.float32)
    if rows < 3:
        assert torch.equal(copy, table[tokens])


def test_a_product_starts_a_residual_stream(device):
    x, weight, bias = random(device, 5, 64), random(device, 40, 64), random(device, 40)
    gain = random(device, 40, seed=1)
    stream = Residual.empty(Plan(), 5, gain)
    project(Plan(), Inputs(x), stream.values, Projection(weight, bias=bias, starts=stream, next_norm=gain))
    check(stream.values, x.double() @ weight.double().T + bias.double(), torch.float32)
    check_operand(stream, gain)


def test_every_gemv_tile_returns_the_same(device):
    x, weight = random(device, 1, 1500), random(device, 300, 1500)
    gain = random(device, 1500)
    wanted = rms_norm(x.double(), gain) @ weight.double().T
    for plan in (
        Plan(gemv_warps=1),
        Plan(gemv_warps=8, gemv_register_bytes=65536),
        Plan(gemv_register_bytes=1),
        Plan(gemv_evict=""),
    ):
        out = torch.full((1, 300), torch.nan, device=device)
        project(plan, Residual(x, None), out, Projection(weight, gain, 1e-6))
        check(out, wanted, torch.float32)


GEMM_PLANS = {
    "no pipeline": Plan(gemm_stages=1),
    "small tiles": Plan(gemm_block_n=16, gemm_block_k=64),
    "large tiles": Plan(gemm_block_n=128, gemm_programs=1, gemm_block_k=256, gemm_block_m=128),
}


@pytest.mark.parametrize("plan", GEMM_PLANS.values(), ids=GEMM_PLANS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
def test_every_gemm_tile_returns_the_same(device, dtype, plan):
    gain = 1 + random(device, 500, dtype=dtype)
    weight = random(device, 2 * 300, 500, dtype=dtype) / 500**0.5
    stream = residual_of(random(device, 70, 500), gain)
    out = torch.full((70, 300), torch.nan, dtype=dtype, device=device)
    project(plan, stream, out, Projection(weight, gain, 1e-6, gated=True))
    gate, up = (rms_norm(stream.values.double(), gain) @ weight.double().T).chunk(2, dim=-1)
    check(out, torch.nn.functional.silu(gate) * up, dtype)


def test_a_row_gets_the_same_result_at_any_index(device):
    """Exactly on a GPU; the interpreter uses NumPy's products, whose sums may depend on the row."""
    gain, weight = random(device, 500), random(device, 300, 500)
    x = random(device, 70, 500)
    outs = torch.full((2, 70, 300), torch.nan, device=device)
    for out, order in zip(outs, (torch.arange(70), torch.arange(69, -1, -1)), strict=True):
        project(Plan(), residual_of(x[order], gain), out, Projection(weight, gain, 1e-6))
    check(outs[0], outs[1].flip(0).double(), torch.float32)
    assert device.type == "cpu" or torch.equal(outs[0], outs[1].flip(0))


def splitting(split_k: int, block_n: int = 32) -> Plan:
    """A plan that uses split-K for small products too."""
    return Plan(max_split_k=split_k, split_k_block_n=block_n, split_k_min_width=64)


# Splits that are multiples of BLOCK_K, splits that are not, odd numbers of outputs, more rows than one program has.
SPLIT_CASES = [(512, 64, 64), (448, 37, 33), (1536, 96, 65), (96, 200, 70)]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize("split_k", [2, 8])
@pytest.mark.parametrize("width, outputs, rows", SPLIT_CASES)
def test_split_k_starts_or_adds_to_a_residual_stream(device, width, outputs, rows, split_k, dtype):
    inputs, residual = random(device, rows, width, dtype=dtype), random(device, rows, outputs, seed=2)
    weight = random(device, outputs, width, dtype=dtype, seed=1) / width**0.5
    bias, gain = (
        random(device, outputs, dtype=dtype, seed=3),
        1 + random(device, outputs, dtype=dtype, seed=4),
    )
    plan = splitting(split_k)
    divisible = (width & -width) // SPLIT_MULTIPLE
    assert gemm_tile(plan, GemmShape(rows, outputs, width, dtype.itemsize)).split_k == min(split_k, divisible)
    wanted = inputs.double() @ weight.double().T
    stream = residual_of(residual, gain)
    before, runs = stream.values.clone(), []
    for _ in range(2):
        stream.values.copy_(before)
        project(plan, Inputs(inputs), stream.values, Projection(weight, residual=stream, next_norm=gain))
        check_operand(stream, gain)
        runs.append([value.clone() for value in (stream.values, stream.scaled, stream.squares)])
    check(stream.values, before.double() + wanted, dtype)
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
    begun = Residual.empty(plan, rows, gain)
    project(plan, Inputs(inputs), begun.values, Projection(weight, bias=bias, starts=begun, next_norm=gain))
    check(begun.values, wanted + bias.double(), dtype)
    check_operand(begun, gain)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
def test_split_k_equals_one_program_after_a_norm(device, dtype):
    gain, weight = 1 + random(device, 512, dtype=dtype), random(device, 72, 512, dtype=dtype)
    stream = residual_of(random(device, 64, 512), gain)
    outs = []
    for plan in (Plan(), splitting(4), splitting(8, block_n=16)):
        outs.append(torch.full((64, 72), torch.nan, device=device))
        project(plan, stream, outs[-1], Projection(weight, gain, 1e-6))
    check(outs[0], rms_norm(stream.values.double(), gain) @ weight.double().T, dtype)
    for out in outs[1:]:
        assert (out - outs[0]).norm() / outs[0].norm() < 1e-6


def test_split_k_is_off_where_a_normed_copy_is_left(device):
    gain, weight = 1 + random(device, 512), random(device, 72, 512)
    stream = residual_of(random(device, 64, 512), gain)
    out, normed = torch.full((64, 72), torch.nan, device=device), torch.full_like(stream.values, torch.nan)
    project(splitting(8), stream, out, Projection(weight, gain, 1e-6, normed_copy=normed))
    wanted = rms_norm(stream.values.double(), gain)
    check(normed, wanted, torch.float32)
    check(out, wanted @ weight.double().T, torch.float32)


def test_which_products_use_split_k():
    """Those of the 0.6B model at batch 64 with few outputs and many columns, until a large GPU is full."""

    def split(plan: Plan, rows: int, outputs: int, width: int, gated: bool = False) -> tuple[int, int]:
        tile = gemm_tile(plan, GemmShape(rows, outputs, width, 2, gated))
        return tile.block_n, tile.split_k

    eight = Plan(max_split_k=8)
    for plan in (eight, replace(eight, gemm_held=True)):
        assert split(plan, 64, 1024, 2048) == split(plan, 33, 1024, 3072) == (64, 8)
        assert split(plan, 128, 1024, 3072) == (64, 4)  # the predictor's first pass: two positions per line
        assert split(plan, 64, 4096, 1024)[1] == split(plan, 64, 2048, 1024)[1] == 1
        assert split(plan, 64, 4096, 2048)[1] == 1
        assert split(plan, 64, 1024, 3072, gated=True)[1] == 1
    assert split(eight, 32, 1024, 3072)[1] == 1  # a small batch is cheap to read again
    assert split(plan, 32, 1024, 3072) == (64, 8)  # but split in gemm_held, whose programs have 64 rows
    assert split(Plan(), 64, 1024, 3072) == (64, 4)
    assert split(Plan(max_split_k=1), 64, 1024, 3072)[1] == 1
    # The 1.7B model: a quarter of a weight's columns would overflow a program's shared memory.
    assert split(eight, 64, 2048, 6144) == (64, 8)
    held = gemm_tile(plan, GemmShape(64, 1024, 3072, 2))
    assert held.held and held.block_k * (held.stages - 1) == 3072 // 8  # all of a split is in flight at once
    assert not gemm_tile(Plan(gemm_held=True), GemmShape(64, 1000, 3072, 2)).held


def test_which_products_are_folded():
    """Few rows: more folds until there are enough programs, or more than fit on the GPU at once."""
    plan = Plan(gemm_held=True)

    def folded(rows: int, outputs: int, width: int, gated: bool = False) -> tuple[int, int, int]:
        tile = gemm_tile(plan, GemmShape(rows, outputs, width, 2, gated))
        assert tile.held and tile.split_k == 1
        return tile.block_m, tile.block_n, tile.folds

    for rows, padded in ((3, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32)):
        assert folded(rows, 4096, 1024) == (padded, 32, 2)
        assert folded(rows, 1024, 2048) == (padded, 16, 4)
        assert folded(rows, 3072, 1024, gated=True) == ((padded, 16, 2) if rows < 17 else (padded, 32, 1))
        assert folded(rows, 20480, 1024) == (padded, 64, 1)
    assert folded(16, 1024, 3072) == (16, 16, 4)
    assert gemm_tile(plan, GemmShape(17, 1024, 3072, 2)) == gemm_tile(plan, GemmShape(64, 1024, 3072, 2))
    assert folded(16, 6144, 2048, gated=True) == (16, 16, 2)  # the 1.7B model's
    assert not gemm_tile(plan, GemmShape(16, 2048, 6144, 2)).folds
    assert not gemm_tile(plan, GemmShape(33, 4096, 1024, 2)).folds
    assert not gemm_tile(plan, GemmShape(16, 1000, 1024, 2)).folds
    assert not gemm_tile(replace(plan, max_folds=0), GemmShape(16, 4096, 1024, 2)).folds
    for other in (Plan(), replace(plan, gemm_held=False)):
        assert not gemm_tile(other, GemmShape(16, 4096, 1024, 2)).held
    assert not gemm_tile(plan, GemmShape(16, 4096, 1024, 4)).held
    assert not gemm_tile(plan, GemmShape(16, 4096, 1024, 2, may_hold=False)).held  # INT8


def test_a_cpu_has_no_held_gemms():
    assert not Plan.of(torch.device("cpu")).gemm_held


def test_a_triton_without_gluon_has_no_held_gemms(monkeypatch):
    held = "qwen3_tts_morph.morph.kernels.linear.gemm_held"
    monkeypatch.delitem(sys.modules, held, raising=False)
    monkeypatch.setitem(sys.modules, "triton.experimental.gluon", None)
    assert not has_gluon()
    assert held not in sys.modules


def test_gluon_is_found_where_triton_has_it():
    """A wrong module name in has_gluon would silently turn off the Hopper kernels: it catches ImportError."""
    language = pytest.importorskip("triton.experimental.gluon.language", reason="this Triton has no Gluon")
    if not hasattr(language, "num_warps"):
        pytest.skip("this Triton's Gluon lacks num_warps")
    assert has_gluon()


ON_HOPPER = pytest.mark.gpu(capability=(9, 0))  # Gluon kernels run only there, and have no interpreter


@ON_HOPPER
@pytest.mark.parametrize("pdl", [False, True])
@pytest.mark.parametrize("split_k", [1, 4, 8, 16])
@pytest.mark.parametrize("rows", [33, 64, 65, 70, 128])
@pytest.mark.parametrize("width, outputs", [(1024, 4096), (2048, 1024), (3072, 1024)])
def test_held_gemms_are_right(device, width, outputs, rows, split_k, pdl):
    """The three kinds of a layer's products; only on a GPU, as Gluon has no interpreter."""
    plan = Plan(gemm_held=True, pdl=pdl, max_split_k=split_k, split_k_programs=256)
    tile = gemm_tile(plan, GemmShape(rows, outputs, width, 2))
    across = -(-rows // 64)
    assert tile.held and tile.split_k == (1 if width == 1024 else min(split_k, 16 // across))
    check_kinds(device, plan, width, outputs, rows, torch.bfloat16)


@ON_HOPPER
@pytest.mark.parametrize("pdl", [False, True])
@pytest.mark.parametrize("folds", [0, 1, 2, 4])
@pytest.mark.parametrize("rows", [3, 8, 9, 16, 17, 32])
@pytest.mark.parametrize("width, outputs", [(1024, 4096), (1024, 1024), (2048, 1024), (3072, 1024)])
def test_folded_gemms_are_right(device, width, outputs, rows, folds, pdl):
    """Few rows, in as many folds as fit; where none fit, in gemm_held, most of whose rows are then padding."""
    plan = Plan(gemm_held=True, pdl=pdl, max_folds=folds)
    tile = gemm_tile(plan, GemmShape(rows, outputs, width, 2))
    assert tile.held and tile.folds <= folds
    if width == 1024:
        assert tile.folds == min(folds, 2 if outputs == 4096 else 4)
    check_kinds(device, plan, width, outputs, rows, torch.bfloat16)


@ON_HOPPER
@pytest.mark.parametrize("rows", [4, 16])
def test_folded_gemms_in_float16(device, rows):
    check_kinds(device, Plan(gemm_held=True, pdl=True), 2048, 1024, rows, torch.float16)


@ON_HOPPER
@pytest.mark.parametrize("rows", [4, 16, 32])
@pytest.mark.parametrize("width", [2048, 3072])
def test_a_folded_gemm_with_bias_starts_a_residual_stream_and_is_deterministic(device, width, rows):
    """Whatever the memory after the last row holds."""
    plan, dtype = Plan(gemm_held=True, pdl=True), torch.bfloat16
    x = random(device, 64, width, dtype=dtype)
    weight = random(device, 1024, width, dtype=dtype) / width**0.5
    bias, gain = random(device, 1024, dtype=dtype), 1 + random(device, 1024, dtype=dtype)
    runs = []
    for after in (0.0, float("nan")):
        x[rows:] = after
        begun = Residual.empty(plan, rows, gain)
        project(
            plan, Inputs(x[:rows]), begun.values, Projection(weight, bias=bias, starts=begun, next_norm=gain)
        )
        runs.append(begun)
        check(begun.values, x[:rows].double() @ weight.double().T + bias.double(), dtype)
        check_operand(begun, gain)
    assert torch.equal(runs[0].values, runs[1].values)


def check_kinds(device, plan: Plan, width: int, outputs: int, rows: int, dtype: torch.dtype) -> None:
    """A product after a norm, a gated one, and one that is added to a residual stream."""
    gain, next_gain = (1 + random(device, size, dtype=dtype) for size in (width, outputs))
    stream = residual_of(random(device, rows, width), gain)
    weight = random(device, 2 * outputs, width, dtype=dtype) / width**0.5
    normed = rms_norm(stream.values.double(), gain)
    out = torch.full((rows, outputs), torch.nan, device=device)
    project(plan, stream, out, Projection(weight[:outputs], gain, 1e-6))
    check(out, normed @ weight[:outputs].double().T, dtype)
    active = torch.full((rows, outputs), torch.nan, dtype=dtype, device=device)
    project(plan, stream, active, Projection(weight, gain, 1e-6, gated=True))
    gate, up = (normed @ weight.double().T).chunk(2, dim=-1)
    check(active, torch.nn.functional.silu(gate) * up, dtype)
    left = residual_of(random(device, rows, outputs), next_gain)
    wanted = left.values.double() + stream.operand(Plan()).double() @ weight[:outputs].double().T
    project(
        plan,
        Inputs(stream.operand(Plan())),
        left.values,
        Projection(weight[:outputs], residual=left, next_norm=next_gain),
    )
    check(left.values, wanted, dtype)
    check_operand(left, next_gain)
