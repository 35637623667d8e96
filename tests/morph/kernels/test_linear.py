"""The products with what stands around them, against float64."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from qwen3_tts_morph.morph.kernels.layer import look_up, project
from qwen3_tts_morph.morph.kernels.linear.gemm import SHARE
from qwen3_tts_morph.morph.kernels.plan import PART_MULTIPLE, Plan, has_gluon
from qwen3_tts_morph.morph.kernels.states import Inputs, States

SIZES = [(64, 96), (100, 37), (1500, 40), (2048, 9)]
# Many states: all sizes with few rows, one with more than a program's.
CASES = [(*size, rows) for size in SIZES for rows in (3, 17)] + [(100, 37, rows) for rows in (5, 64, 65, 70)]
# Triton's interpreter cuts bf16 off where a GPU rounds it.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 6e-3 if torch.cuda.is_available() else 1.5e-2}


def random(device, *shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).to(device)


def states_of(x: torch.Tensor, gain: torch.Tensor) -> States:
    """States as they stand before a product behind the norm of weight ``gain``."""
    if len(x) <= Plan().few:
        return States(x.clone(), None)
    return look_up(Plan(), Inputs(x.to(gain.dtype)), gain)


def rms_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gain.double()


def check(out: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    error = (out.double() - wanted).norm() / wanted.norm()
    assert error < TOLERANCE[torch.bfloat16 if dtype == torch.float16 else dtype], float(error)


def check_operand(states: States, gain: torch.Tensor) -> None:
    """What states leave for the next product is made of their float32 values."""
    width = len(gain)
    check(states.operand(Plan()), states.wide.double() * gain.double(), gain.dtype)
    padded = torch.nn.functional.pad(states.wide.double().square(), (0, -width % int(SHARE)))
    sums = padded.unflatten(1, (-1, int(SHARE))).sum(2)
    assert torch.allclose(states.squares.double().T, sums, rtol=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "width, outputs, rows", [*CASES, *((*size, rows) for size in SIZES for rows in (1, 2))]
)
def test_norm_and_product(device, width, outputs, rows, dtype):
    x, gain = random(device, rows, width), 1 + random(device, width, dtype=dtype)
    weight = random(device, outputs, width, dtype=dtype, seed=1)
    out = torch.full((rows, outputs), torch.nan, device=device)
    normed = torch.full((rows, width), torch.nan, dtype=dtype, device=device)
    project(Plan(), states_of(x, gain), weight, out, gain, 1e-6, normed=normed)
    wanted = rms_norm(x.double(), gain)
    check(normed, wanted, dtype)
    check(out, wanted @ weight.double().T, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize("rows, parts", [(1, 0), (1, 2), (2, 8), (5, 0)])
@pytest.mark.parametrize("width, outputs", SIZES)
def test_swiglu_of_the_state_and_its_parts(device, width, outputs, rows, parts, dtype):
    x, gain = random(device, rows, width), 1 + random(device, width, dtype=dtype)
    weight = random(device, 2 * outputs, width, dtype=dtype) / width**0.5
    partials = random(device, parts, rows, width, dtype=dtype) if parts else None
    out = torch.full((rows, outputs), torch.nan, dtype=dtype, device=device)
    states = states_of(x, gain)
    before = states.wide.clone()
    project(Plan(), states, weight, out, gain, 1e-6, gated=True, partials=partials)
    whole = x.double() + (partials.double().sum(0) if parts else 0)
    gate, up = (rms_norm(whole, gain) @ weight.double().T).chunk(2, dim=-1)
    check(out, torch.nn.functional.silu(gate) * up, dtype)
    assert torch.equal(states.wide, before)


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
    states = states_of(residual, gain)
    before = states.wide.double()
    project(
        Plan(), Inputs(inputs), weight, states.wide, partials=partials, residual=states, next_norm=next_gain
    )
    wanted = before + inputs.double() @ weight.double().T
    check(states.wide, wanted + (partials.double().sum(0) if parts else 0), dtype)
    if rows > 2:
        check_operand(states, next_gain)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
def test_many_states_are_looked_up(device, dtype):
    table, gain = random(device, 50, 100, dtype=dtype), 1 + random(device, 100, dtype=dtype)
    tokens = torch.tensor([7, 49, 0, 3, 11, 12, 7, 1], device=device)[::2]
    states = look_up(Plan(), Inputs(table, tokens), gain)
    assert torch.equal(states.wide, table[tokens].float())
    check_operand(states, gain)
    last = states.last(2, Plan())
    assert torch.equal(last.wide, states.wide[1::2])
    check_operand(last, gain)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize("lines", [2, 3])
def test_states_that_stand_before_the_tokens(device, dtype, lines):
    table, before = random(device, 50, 100, dtype=dtype), random(device, lines, 100, dtype=dtype, seed=1)
    gain = 1 + random(device, 100, dtype=dtype)
    tokens = torch.tensor([7, 49, 0, 3, 11, 12], device=device)[: 2 * lines : 2]
    inputs = Inputs(table, tokens, before)
    wanted = torch.stack((before, table[tokens]), dim=1).flatten(0, 1)
    assert torch.equal(inputs.operand(Plan()), wanted)
    states = look_up(Plan(), inputs, gain)
    assert torch.equal(states.wide, wanted.float())
    check_operand(states, gain)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_rows_of_a_table_and_a_bias(device, rows):
    table, weight = random(device, 50, 64), random(device, 20, 64)
    bias, tokens = random(device, 20), torch.tensor([7, 49, 0, 3, 11, 12], device=device)[::2][:rows]
    out = torch.full((rows, 20), torch.nan, device=device)
    kept = torch.full((rows, 64), torch.nan, device=device)
    project(Plan(), Inputs(table, tokens), weight, out, bias=bias, kept=kept)
    check(out, (table[tokens].double() @ weight.double().T) + bias.double(), torch.float32)
    if rows < 3:
        assert torch.equal(kept, table[tokens])


def test_a_product_begins_states(device):
    x, weight, bias = random(device, 5, 64), random(device, 40, 64), random(device, 40)
    gain = random(device, 40, seed=1)
    states = States.empty(Plan(), 5, gain)
    project(Plan(), Inputs(x), weight, states.wide, bias=bias, result=states, next_norm=gain)
    check(states.wide, x.double() @ weight.double().T + bias.double(), torch.float32)
    check_operand(states, gain)


def test_every_tile_gives_the_same(device):
    x, weight = random(device, 1, 1500), random(device, 300, 1500)
    gain = random(device, 1500)
    wanted = rms_norm(x.double(), gain) @ weight.double().T
    for plan in (Plan(warps=1), Plan(warps=8, register_bytes=65536), Plan(register_bytes=1), Plan(evict="")):
        out = torch.full((1, 300), torch.nan, device=device)
        project(plan, States(x, None), weight, out, gain, 1e-6)
        check(out, wanted, torch.float32)


WIDE_PLANS = {
    "no pipeline": Plan(wide_stages=1),
    "small tiles": Plan(wide_columns=16, wide_segment=64),
    "large tiles": Plan(wide_columns=128, wide_programs=1, wide_segment=256, wide_rows=128),
}


@pytest.mark.parametrize("plan", WIDE_PLANS.values(), ids=WIDE_PLANS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
def test_every_wide_tile_gives_the_same(device, dtype, plan):
    gain = 1 + random(device, 500, dtype=dtype)
    weight = random(device, 2 * 300, 500, dtype=dtype) / 500**0.5
    states = states_of(random(device, 70, 500), gain)
    out = torch.full((70, 300), torch.nan, dtype=dtype, device=device)
    project(plan, states, weight, out, gain, 1e-6, gated=True)
    gate, up = (rms_norm(states.wide.double(), gain) @ weight.double().T).chunk(2, dim=-1)
    check(out, torch.nn.functional.silu(gate) * up, dtype)


def test_a_state_gives_the_same_in_any_row(device):
    """To the bit on a GPU; the interpreter's products are NumPy's, whose sums may depend on the row."""
    gain, weight = random(device, 500), random(device, 300, 500)
    x = random(device, 70, 500)
    outs = torch.full((2, 70, 300), torch.nan, device=device)
    for out, order in zip(outs, (torch.arange(70), torch.arange(69, -1, -1)), strict=True):
        project(Plan(), states_of(x[order], gain), weight, out, gain, 1e-6)
    check(outs[0], outs[1].flip(0).double(), torch.float32)
    assert device.type == "cpu" or torch.equal(outs[0], outs[1].flip(0))


def in_parts(parts: int, columns: int = 32) -> Plan:
    """A plan that splits small products too."""
    return Plan(wide_parts=parts, wide_parts_columns=columns, wide_parts_width=64)


# Whole parts of segments, parts that are none, outputs that are no multiple of anything, more rows than a program's.
PART_CASES = [(512, 64, 64), (448, 37, 33), (1536, 96, 65), (96, 200, 70)]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize("parts", [2, 8])
@pytest.mark.parametrize("width, outputs, rows", PART_CASES)
def test_a_product_in_parts_begins_or_adds_to_states(device, width, outputs, rows, parts, dtype):
    inputs, residual = random(device, rows, width, dtype=dtype), random(device, rows, outputs, seed=2)
    weight = random(device, outputs, width, dtype=dtype, seed=1) / width**0.5
    bias, gain = (
        random(device, outputs, dtype=dtype, seed=3),
        1 + random(device, outputs, dtype=dtype, seed=4),
    )
    plan = in_parts(parts)
    divisible = (width & -width) // PART_MULTIPLE
    assert plan.wide_tile(rows, outputs, width, dtype.itemsize, False).parts == min(parts, divisible)
    wanted = inputs.double() @ weight.double().T
    states = states_of(residual, gain)
    before, runs = states.wide.clone(), []
    for _ in range(2):
        states.wide.copy_(before)
        project(plan, Inputs(inputs), weight, states.wide, residual=states, next_norm=gain)
        check_operand(states, gain)
        runs.append([value.clone() for value in (states.wide, states.narrow, states.squares)])
    check(states.wide, before.double() + wanted, dtype)
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
    begun = States.empty(plan, rows, gain)
    project(plan, Inputs(inputs), weight, begun.wide, bias=bias, result=begun, next_norm=gain)
    check(begun.wide, wanted + bias.double(), dtype)
    check_operand(begun, gain)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
def test_parts_give_what_one_program_gives_behind_a_norm(device, dtype):
    gain, weight = 1 + random(device, 512, dtype=dtype), random(device, 72, 512, dtype=dtype)
    states = states_of(random(device, 64, 512), gain)
    outs = []
    for plan in (Plan(), in_parts(4), in_parts(8, columns=16)):
        outs.append(torch.full((64, 72), torch.nan, device=device))
        project(plan, states, weight, outs[-1], gain, 1e-6)
    check(outs[0], rms_norm(states.wide.double(), gain) @ weight.double().T, dtype)
    for out in outs[1:]:
        assert (out - outs[0]).norm() / outs[0].norm() < 1e-6


def test_a_normed_state_is_left_by_a_product_in_one_part(device):
    gain, weight = 1 + random(device, 512), random(device, 72, 512)
    states = states_of(random(device, 64, 512), gain)
    out, normed = torch.full((64, 72), torch.nan, device=device), torch.full_like(states.wide, torch.nan)
    project(in_parts(8), states, weight, out, gain, 1e-6, normed=normed)
    wanted = rms_norm(states.wide.double(), gain)
    check(normed, wanted, torch.float32)
    check(out, wanted @ weight.double().T, torch.float32)


def test_which_products_are_made_in_parts():
    """Of the 0.6B model's at batch 64 those with few outputs of many columns; as many parts as fill a large GPU."""

    def parts(plan: Plan, states: int, outputs: int, width: int, gated: bool = False) -> tuple[int, int]:
        tile = plan.wide_tile(states, outputs, width, 2, gated)
        return tile.columns, tile.parts

    eight = Plan(wide_parts=8)
    for plan in (eight, replace(eight, wide_held=True)):
        assert parts(plan, 64, 1024, 2048) == parts(plan, 33, 1024, 3072) == (64, 8)
        assert parts(plan, 128, 1024, 3072) == (64, 4)  # the predictor's first pass: two positions a line
        assert parts(plan, 64, 4096, 1024)[1] == parts(plan, 64, 2048, 1024)[1] == 1
        assert parts(plan, 64, 4096, 2048)[1] == 1
        assert parts(plan, 64, 1024, 3072, gated=True)[1] == 1
    assert parts(eight, 32, 1024, 3072)[1] == 1  # few states are cheap to read again
    assert parts(plan, 32, 1024, 3072) == (64, 8)  # not in project_held, whose programs have 64
    assert parts(Plan(), 64, 1024, 3072) == (64, 4)
    assert parts(Plan(wide_parts=1), 64, 1024, 3072)[1] == 1
    # The 1.7B model's: a fourth of its weights would fill a program.
    assert parts(eight, 64, 2048, 6144) == (64, 8)
    held = plan.wide_tile(64, 1024, 3072, 2, False)
    assert held.held and held.segment * (held.stages - 1) == 3072 // 8  # all of a part is on its way at once
    assert not Plan(wide_held=True).wide_tile(64, 1000, 3072, 2, False).held


def test_which_products_are_folded():
    """Few states': in folds until there are programs enough, or more than are there at once; as long as all fits."""
    plan = Plan(wide_held=True)

    def folded(states: int, outputs: int, width: int, gated: bool = False) -> tuple[int, int, int]:
        tile = plan.wide_tile(states, outputs, width, 2, gated)
        assert tile.held and tile.parts == 1
        return tile.padded, tile.columns, tile.folds

    for states, padded in ((3, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32)):
        assert folded(states, 4096, 1024) == (padded, 32, 2)
        assert folded(states, 1024, 2048) == (padded, 16, 4)
        assert folded(states, 3072, 1024, gated=True) == ((padded, 16, 2) if states < 17 else (padded, 32, 1))
        assert folded(states, 20480, 1024) == (padded, 64, 1)
    assert folded(16, 1024, 3072) == (16, 16, 4)
    assert plan.wide_tile(17, 1024, 3072, 2, False) == plan.wide_tile(64, 1024, 3072, 2, False)
    assert folded(16, 6144, 2048, gated=True) == (16, 16, 2)  # the 1.7B model's
    assert not plan.wide_tile(16, 2048, 6144, 2, False).folds
    assert not plan.wide_tile(33, 4096, 1024, 2, False).folds
    assert not plan.wide_tile(16, 1000, 1024, 2, False).folds
    assert not replace(plan, wide_folds=0).wide_tile(16, 4096, 1024, 2, False).folds
    for other in (Plan(), replace(plan, wide_held=False)):
        assert not other.wide_tile(16, 4096, 1024, 2, False).held
    assert not plan.wide_tile(16, 4096, 1024, 4, False).held
    assert not plan.wide_tile(16, 4096, 1024, 2, False, held=False).held  # INT8


def test_a_cpu_has_no_held_products():
    assert not Plan.of(torch.device("cpu")).wide_held


def test_a_triton_without_gluon_holds_nothing(monkeypatch):
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


ON_HOPPER = pytest.mark.gpu(capability=(9, 0))  # Gluon's kernels run there only, and in no interpreter


@ON_HOPPER
@pytest.mark.parametrize("pdl", [False, True])
@pytest.mark.parametrize("parts", [1, 4, 8, 16])
@pytest.mark.parametrize("rows", [33, 64, 65, 70, 128])
@pytest.mark.parametrize("width, outputs", [(1024, 4096), (2048, 1024), (3072, 1024)])
def test_held_weights_give_what_others_give(device, width, outputs, rows, parts, pdl):
    """The three kinds of a layer's products; on a GPU alone, for the interpreter has no Gluon."""
    plan = Plan(wide_held=True, pdl=pdl, wide_parts=parts, wide_parts_programs=256)
    tile = plan.wide_tile(rows, outputs, width, 2, False)
    across = -(-rows // 64)
    assert tile.held and tile.parts == (1 if width == 1024 else min(parts, 16 // across))
    check_kinds(device, plan, width, outputs, rows, torch.bfloat16)


@ON_HOPPER
@pytest.mark.parametrize("pdl", [False, True])
@pytest.mark.parametrize("folds", [0, 1, 2, 4])
@pytest.mark.parametrize("rows", [3, 8, 9, 16, 17, 32])
@pytest.mark.parametrize("width, outputs", [(1024, 4096), (1024, 1024), (2048, 1024), (3072, 1024)])
def test_folded_weights_give_what_others_give(device, width, outputs, rows, folds, pdl):
    """Few states, in as many folds as fit; where none do, as many states' kernel, most of whose rows are none."""
    plan = Plan(wide_held=True, pdl=pdl, wide_folds=folds)
    tile = plan.wide_tile(rows, outputs, width, 2, False)
    assert tile.held and tile.folds <= folds
    if width == 1024:
        assert tile.folds == min(folds, 2 if outputs == 4096 else 4)
    check_kinds(device, plan, width, outputs, rows, torch.bfloat16)


@ON_HOPPER
@pytest.mark.parametrize("rows", [4, 16])
def test_folded_weights_of_other_numbers(device, rows):
    check_kinds(device, Plan(wide_held=True, pdl=True), 2048, 1024, rows, torch.float16)


@ON_HOPPER
@pytest.mark.parametrize("rows", [4, 16, 32])
@pytest.mark.parametrize("width", [2048, 3072])
def test_a_folded_product_of_a_bias_begins_states_and_is_the_same_again(device, width, rows):
    """Whatever lies behind the states' last row."""
    plan, dtype = Plan(wide_held=True, pdl=True), torch.bfloat16
    x = random(device, 64, width, dtype=dtype)
    weight = random(device, 1024, width, dtype=dtype) / width**0.5
    bias, gain = random(device, 1024, dtype=dtype), 1 + random(device, 1024, dtype=dtype)
    runs = []
    for behind in (0.0, float("nan")):
        x[rows:] = behind
        begun = States.empty(plan, rows, gain)
        project(plan, Inputs(x[:rows]), weight, begun.wide, bias=bias, result=begun, next_norm=gain)
        runs.append(begun)
        check(begun.wide, x[:rows].double() @ weight.double().T + bias.double(), dtype)
        check_operand(begun, gain)
    assert torch.equal(runs[0].wide, runs[1].wide)


def check_kinds(device, plan: Plan, width: int, outputs: int, rows: int, dtype: torch.dtype) -> None:
    """A product behind a norm, a gated one, and one that is added to states."""
    gain, next_gain = (1 + random(device, size, dtype=dtype) for size in (width, outputs))
    states = states_of(random(device, rows, width), gain)
    weight = random(device, 2 * outputs, width, dtype=dtype) / width**0.5
    normed = rms_norm(states.wide.double(), gain)
    out = torch.full((rows, outputs), torch.nan, device=device)
    project(plan, states, weight[:outputs], out, gain, 1e-6)
    check(out, normed @ weight[:outputs].double().T, dtype)
    active = torch.full((rows, outputs), torch.nan, dtype=dtype, device=device)
    project(plan, states, weight, active, gain, 1e-6, gated=True)
    gate, up = (normed @ weight.double().T).chunk(2, dim=-1)
    check(active, torch.nn.functional.silu(gate) * up, dtype)
    left = states_of(random(device, rows, outputs), next_gain)
    wanted = left.wide.double() + states.operand(Plan()).double() @ weight[:outputs].double().T
    project(
        plan, Inputs(states.operand(Plan())), weight[:outputs], left.wide, residual=left, next_norm=next_gain
    )
    check(left.wide, wanted, dtype)
    check_operand(left, next_gain)
