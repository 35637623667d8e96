"""Which tiles GEMMs get, and the kernels that hold weights in shared memory (those on a GPU only)."""

import sys

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

from qwen3_tts_morph.morph.kernels.linear.launch import project
from qwen3_tts_morph.morph.kernels.linear.tiles import GemmShape, gemm_tile
from qwen3_tts_morph.morph.kernels.plan import Plan, has_gluon
from qwen3_tts_morph.morph.kernels.states import Inputs, Projection, Residual

from tests.morph.kernels.test_linear import check, check_operand, random, residual_of, rms_norm


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
    plan = Plan(library_min_rows=None, gemm_held=True, pdl=pdl, max_split_k=split_k, split_k_programs=256)
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
    plan = Plan(library_min_rows=None, gemm_held=True, pdl=pdl, max_folds=folds)
    tile = gemm_tile(plan, GemmShape(rows, outputs, width, 2))
    assert tile.held and tile.folds <= folds
    if width == 1024:
        assert tile.folds == min(folds, 2 if outputs == 4096 else 4)
    check_kinds(device, plan, width, outputs, rows, torch.bfloat16)


# Every value of each, in pairs: a kernel for all combinations would be compiled for minutes.
STREAMED = [(3, 1, 1), (3, 4, 4), (17, 2, 4), (32, 4, 1), (32, 1, 4), (33, 1, 4), (64, 2, 1), (64, 1, 4)]


@ON_HOPPER
@pytest.mark.parametrize("pdl", [False, True])
@pytest.mark.parametrize("rows, folds, split_k", STREAMED)
def test_streamed_gemms_are_right(device, rows, folds, split_k, pdl):
    plan = Plan(library_min_rows=None, gemm_held=True, pdl=pdl, max_folds=folds, max_split_k=split_k, held_programs=0)
    # Without split-K no kernel holds weights of 6144 columns, so they are not streamed either.
    for width, outputs in ((2048, 4096), (6144, 2048))[: 1 if split_k == 1 else 2]:
        tile = gemm_tile(plan, GemmShape(rows, outputs, width, 2))
        steps = width // tile.split_k // tile.folds // tile.block_k
        assert tile.folds <= folds and 2 <= tile.stages <= steps
        check_kinds(device, plan, width, outputs, rows, torch.bfloat16)


@ON_HOPPER
@pytest.mark.parametrize("rows", [4, 16])
def test_folded_gemms_in_float16(device, rows):
    check_kinds(device, Plan(library_min_rows=None, gemm_held=True, pdl=True), 2048, 1024, rows, torch.float16)


@ON_HOPPER
@pytest.mark.parametrize("rows", [4, 16, 32])
@pytest.mark.parametrize("width", [2048, 3072])
def test_a_folded_gemm_with_bias_starts_a_residual_stream_and_is_deterministic(device, width, rows):
    """Whatever the memory after the last row holds."""
    plan, dtype = Plan(library_min_rows=None, gemm_held=True, pdl=True), torch.bfloat16
    x = random(device, 64, width, dtype=dtype)
    weight = random(device, 1024, width, dtype=dtype) / width**0.5
    bias, gain = random(device, 1024, dtype=dtype), 1 + random(device, 1024, dtype=dtype)
    runs = []
    for after in (0.0, float("nan")):
        x[rows:] = after
        begun = Residual.empty(plan, rows, gain)
        project(plan, Inputs(x[:rows]), begun.values, Projection(weight, bias=bias, starts=begun, next_norm=gain))
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
