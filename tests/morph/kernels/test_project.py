"""The products with what stands around them, against float64."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from qwen3_tts_morph.morph.kernels.passes import Inputs, States, project
from qwen3_tts_morph.morph.kernels.plan import Plan

SIZES = [(64, 96), (100, 37), (1500, 40), (2048, 9)]
# Triton's interpreter cuts bf16 off where a GPU rounds it.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 6e-3 if torch.cuda.is_available() else 1.5e-2}


def random(device, *shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).to(device)


def states_of(x: torch.Tensor, dtype: torch.dtype, few: bool) -> States:
    return States(x.clone(), None if few else x.to(dtype, copy=True))


def rms_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gain.double()


def check(out: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    error = (out.double() - wanted).norm() / wanted.norm()
    assert error < TOLERANCE[dtype], float(error)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize("rows", [1, 2, 3, 17])
@pytest.mark.parametrize("width, outputs", SIZES)
def test_norm_and_product(device, width, outputs, rows, dtype):
    x, gain = random(device, rows, width), 1 + random(device, width, dtype=dtype)
    weight = random(device, outputs, width, dtype=dtype, seed=1)
    out = torch.full((rows, outputs), torch.nan, device=device)
    normed = torch.full((rows, width), torch.nan, dtype=dtype, device=device)
    project(Plan(), states_of(x, dtype, rows < 3), weight, out, gain, 1e-6, normed=normed)
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
    states = states_of(x, dtype, rows < 3)
    project(Plan(), states, weight, out, gain, 1e-6, gated=True, partials=partials)
    whole = x.double() + (partials.double().sum(0) if parts else 0)
    gate, up = (rms_norm(whole, gain) @ weight.double().T).chunk(2, dim=-1)
    check(out, torch.nn.functional.silu(gate) * up, dtype)
    assert torch.equal(states.wide, x)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])
@pytest.mark.parametrize("rows, parts", [(1, 0), (1, 2), (2, 8), (16, 0), (70, 0)])
@pytest.mark.parametrize("width, outputs", SIZES)
def test_residual_is_added_in_place(device, width, outputs, rows, parts, dtype):
    residual, inputs = random(device, rows, outputs, seed=2), random(device, rows, width, dtype=dtype)
    weight = random(device, outputs, width, dtype=dtype, seed=1)
    partials = random(device, parts, rows, outputs, dtype=dtype) if parts else None
    states = states_of(residual, dtype, rows < 3)
    project(Plan(), Inputs(inputs), weight, states.wide, partials=partials, residual=states)
    wanted = residual.double() + inputs.double() @ weight.double().T
    check(states.wide, wanted + (partials.double().sum(0) if parts else 0), dtype)
    if rows > 2:
        assert torch.allclose(
            states.narrow.float(), states.wide, rtol=0.0 if dtype == torch.float32 else 2**-7
        )


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


def test_every_tile_gives_the_same(device):
    x, weight = random(device, 1, 1500), random(device, 300, 1500)
    gain = random(device, 1500)
    wanted = rms_norm(x.double(), gain) @ weight.double().T
    for plan in (Plan(warps=1), Plan(warps=8, register_bytes=65536), Plan(register_bytes=1), Plan(evict="")):
        out = torch.full((1, 300), torch.nan, device=device)
        project(plan, States(x, None), weight, out, gain, 1e-6)
        check(out, wanted, torch.float32)
