"""The linear kernels with everything that is fused into them, against float64."""

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

from qwen3_tts_morph.morph.kernels.embed import look_up
from qwen3_tts_morph.morph.kernels.linear.gemm import SUM_WIDTH
from qwen3_tts_morph.morph.kernels.linear.launch import project
from qwen3_tts_morph.morph.kernels.linear.tiles import SPLIT_MULTIPLE, GemmShape, gemm_tile
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.kernels.states import Inputs, Projection, Residual

from tests.morph.pairwise import each_value, pairwise, thinned

SIZES = [(64, 96), (100, 37), (1500, 40), (2048, 9)]
# GEMM: all sizes with few rows, one size with more rows than one program has.
MANY_ROWS = (5, 64, 65, 70)
CASES = [(*size, rows) for size in SIZES for rows in (3, 17)] + [(100, 37, rows) for rows in MANY_ROWS]
EPS = 1e-6
OURS = Plan(library_min_rows=None)
NAMED_SIZES = {str(size): size for size in SIZES}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Triton's interpreter truncates bf16 where a GPU rounds it.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 6e-3 if torch.cuda.is_available() else 1.5e-2}


def random(device, *shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).to(device)


def residual_of(x: torch.Tensor, gain: torch.Tensor) -> Residual:
    """A residual stream as it is before a product whose norm has the weight ``gain``."""
    if len(x) <= OURS.gemv_max_rows:
        return Residual(x.clone(), None)
    return look_up(OURS, Inputs(x.to(gain.dtype)), gain, EPS)


def rms_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gain.double()


def check(out: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    error = (out.double() - wanted).norm() / wanted.norm()
    assert error < TOLERANCE[torch.bfloat16 if dtype == torch.float16 else dtype], float(error)


def check_operand(stream: Residual, gain: torch.Tensor) -> None:
    """What a residual stream holds for the next GEMM agrees with its float32 values."""
    width = len(gain)
    check(stream.operand(OURS), stream.values.double() * gain.double(), gain.dtype)
    padded = torch.nn.functional.pad(stream.values.double().square(), (0, -width % int(SUM_WIDTH)))
    sums = padded.unflatten(1, (-1, int(SUM_WIDTH))).sum(2)
    assert torch.allclose(stream.squares.double().T, sums, rtol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "rows", "dtype"),
    thinned(pairwise(NAMED_SIZES, {f"{rows} rows": rows for rows in (1, 2, 3, 17)}, DTYPES), 2),
)
def test_norm_and_projection(device, sizes, rows, dtype):
    width, outputs = sizes
    check_norm_and_projection(device, width, outputs, rows, dtype)


@pytest.mark.parametrize(("rows", "dtype"), each_value({str(rows): rows for rows in MANY_ROWS}, DTYPES))
def test_norm_and_projection_of_many_rows(device, rows, dtype):
    check_norm_and_projection(device, 100, 37, rows, dtype)


def check_norm_and_projection(device, width: int, outputs: int, rows: int, dtype: torch.dtype) -> None:
    x, gain = random(device, rows, width), 1 + random(device, width, dtype=dtype)
    weight = random(device, outputs, width, dtype=dtype, seed=1)
    out = torch.full((rows, outputs), torch.nan, device=device)
    normed = torch.full((rows, width), torch.nan, dtype=dtype, device=device)
    project(OURS, residual_of(x, gain), out, Projection(weight, gain, 1e-6, normed_copy=normed))
    wanted = rms_norm(x.double(), gain)
    check(normed, wanted, dtype)
    check(out, wanted @ weight.double().T, dtype)


@pytest.mark.parametrize(
    ("sizes", "rows_and_parts", "dtype"),
    thinned(pairwise(NAMED_SIZES, {str(case): case for case in ((1, 0), (1, 2), (2, 8), (5, 0))}, DTYPES), 2),
)
def test_swiglu_of_the_residual_and_its_partials(device, sizes, rows_and_parts, dtype):
    (width, outputs), (rows, parts) = sizes, rows_and_parts
    x, gain = random(device, rows, width), 1 + random(device, width, dtype=dtype)
    weight = random(device, 2 * outputs, width, dtype=dtype) / width**0.5
    partials = random(device, parts, rows, width, dtype=dtype) if parts else None
    out = torch.full((rows, outputs), torch.nan, dtype=dtype, device=device)
    stream = residual_of(x, gain)
    before = stream.values.clone()
    project(OURS, stream, out, Projection(weight, gain, 1e-6, gated=True, partials=partials))
    full = x.double() + (partials.double().sum(0) if parts else 0)
    gate, up = (rms_norm(full, gain) @ weight.double().T).chunk(2, dim=-1)
    check(out, torch.nn.functional.silu(gate) * up, dtype)
    assert torch.equal(stream.values, before)


FEW_ROWS = ((1, 0), (1, 2), (2, 8))  # rows, partials


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "width, outputs, rows, parts",
    thinned([*((*case, 0) for case in CASES), *((*size, *few) for size in SIZES for few in FEW_ROWS)], 4),
)
def test_residual_is_added_in_place(device, width, outputs, rows, parts, dtype):
    residual, inputs = random(device, rows, outputs, seed=2), random(device, rows, width, dtype=dtype)
    weight = random(device, outputs, width, dtype=dtype, seed=1)
    partials = random(device, parts, rows, outputs, dtype=dtype) if parts else None
    gain, next_gain = (1 + random(device, outputs, dtype=dtype, seed=seed) for seed in (3, 4))
    stream = residual_of(residual, gain)
    before = stream.values.double()
    project(
        OURS,
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
    stream = look_up(OURS, Inputs(table, tokens), gain, EPS)
    assert torch.equal(stream.values, table[tokens].float())
    check_operand(stream, gain)
    last = stream.last(2, OURS)
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
    assert torch.equal(inputs.operand(OURS), wanted)
    stream = look_up(OURS, inputs, gain, EPS)
    assert torch.equal(stream.values, wanted.float())
    check_operand(stream, gain)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_rows_of_a_table_and_a_bias(device, rows):
    table, weight = random(device, 50, 64), random(device, 20, 64)
    bias, tokens = random(device, 20), torch.tensor([7, 49, 0, 3, 11, 12], device=device)[::2][:rows]
    out = torch.full((rows, 20), torch.nan, device=device)
    copy = torch.full((rows, 64), torch.nan, device=device)
    project(OURS, Inputs(table, tokens), out, Projection(weight, bias=bias, input_copy=copy))
    check(out, (table[tokens].double() @ weight.double().T) + bias.double(), torch.float32)
    if rows < 3:
        assert torch.equal(copy, table[tokens])


def test_a_product_starts_a_residual_stream(device):
    x, weight, bias = random(device, 5, 64), random(device, 40, 64), random(device, 40)
    gain = random(device, 40, seed=1)
    stream = Residual.empty(OURS, 5, gain)
    project(OURS, Inputs(x), stream.values, Projection(weight, bias=bias, starts=stream, next_norm=gain))
    check(stream.values, x.double() @ weight.double().T + bias.double(), torch.float32)
    check_operand(stream, gain)


def test_every_gemv_tile_returns_the_same(device):
    x, weight = random(device, 1, 1500), random(device, 100, 1500)
    gain = random(device, 1500)
    wanted = rms_norm(x.double(), gain) @ weight.double().T
    for plan in (
        Plan(library_min_rows=None, gemv_warps=1),
        Plan(library_min_rows=None, gemv_warps=8, gemv_register_bytes=65536),
        Plan(library_min_rows=None, gemv_register_bytes=1),
    ):
        out = torch.full((1, 100), torch.nan, device=device)
        project(plan, Residual(x, None), out, Projection(weight, gain, 1e-6))
        check(out, wanted, torch.float32)


# The first one is the quickest in the interpreter, and runs by default.
GEMM_PLANS = {
    "large tiles": Plan(library_min_rows=None, gemm_block_n=128, gemm_programs=1, gemm_block_k=256, gemm_block_m=128),
    "no pipeline": Plan(library_min_rows=None, gemm_stages=1),
    "small tiles": Plan(library_min_rows=None, gemm_block_n=16, gemm_block_k=64),
}


@pytest.mark.parametrize("plan", thinned([pytest.param(plan, id=name) for name, plan in GEMM_PLANS.items()], 3))
@pytest.mark.parametrize(
    "dtype",
    [pytest.param(torch.float32, id="fp32"), pytest.param(torch.bfloat16, id="bf16", marks=pytest.mark.slow)],
)
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
    gain, weight = random(device, 200), random(device, 60, 200)
    x = random(device, 70, 200)
    outs = torch.full((2, 70, 60), torch.nan, device=device)
    for out, order in zip(outs, (torch.arange(70), torch.arange(69, -1, -1)), strict=True):
        project(OURS, residual_of(x[order], gain), out, Projection(weight, gain, 1e-6))
    check(outs[0], outs[1].flip(0).double(), torch.float32)
    assert device.type == "cpu" or torch.equal(outs[0], outs[1].flip(0))


def splitting(split_k: int, block_n: int = 32) -> Plan:
    """A plan that uses split-K for small products too."""
    return Plan(library_min_rows=None, max_split_k=split_k, split_k_block_n=block_n, split_k_min_width=64)


# Splits that are multiples of BLOCK_K, splits that are not, odd numbers of outputs, more rows than one program has.
SPLIT_CASES = [(512, 64, 64), (448, 37, 33), (768, 96, 65), (96, 200, 70)]


@pytest.mark.parametrize(
    ("sizes", "split_k", "dtype"),
    thinned(pairwise({str(case): case for case in SPLIT_CASES}, {"2 splits": 2, "8 splits": 8}, DTYPES), 4),
)
def test_split_k_starts_or_adds_to_a_residual_stream(device, sizes, split_k, dtype):
    width, outputs, rows = sizes
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


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(torch.float32, id="fp32", marks=pytest.mark.slow), pytest.param(torch.bfloat16, id="bf16")],
)
def test_split_k_equals_one_program_after_a_norm(device, dtype):
    gain, weight = 1 + random(device, 512, dtype=dtype), random(device, 72, 512, dtype=dtype)
    stream = residual_of(random(device, 64, 512), gain)
    outs = []
    for plan in (OURS, splitting(4), splitting(8, block_n=16)):
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


def test_a_stream_for_one_line_is_refused_by_a_gemm(device):
    residual = Residual(random(device, 1, 4), None)
    with pytest.raises(ValueError, match="no scaled copy"):
        residual.operand(OURS)
