"""Which tiles GEMMs get, and the kernels that hold weights in shared memory (those on a GPU only)."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

from qwen3_tts_morph.morph.kernels.linear.launch import project
from qwen3_tts_morph.morph.kernels.linear.projection import Projection
from qwen3_tts_morph.morph.kernels.linear.tiles import GemmShape, gemm_tile
from qwen3_tts_morph.morph.kernels.plan import Plan, has_gluon
from qwen3_tts_morph.morph.kernels.states import Inputs, Residual

from tests.morph.kernels.test_linear import check, check_operand, random, residual_of, rms_norm


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
    assert not gemm_tile(Plan(library_min_rows=None, gemm_held=True), GemmShape(64, 1000, 3072, 2)).held


def test_which_products_are_folded():
    """Few rows: more folds until there are enough programs, or more than fit on the GPU at once."""
    plan = Plan(library_min_rows=None, gemm_held=True)

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
    assert folded(16, 4096, 2048) == (16, 32, 2)  # the 1.7B model's
    assert folded(32, 2048, 2048) == (32, 16, 4)
    assert not gemm_tile(plan, GemmShape(33, 4096, 1024, 2)).folds
    assert not gemm_tile(plan, GemmShape(16, 1000, 1024, 2)).folds
    assert not gemm_tile(replace(plan, max_folds=0), GemmShape(16, 4096, 1024, 2)).folds
    for other in (Plan(), replace(plan, gemm_held=False)):
        assert not gemm_tile(other, GemmShape(16, 4096, 1024, 2)).held
    assert not gemm_tile(plan, GemmShape(16, 4096, 1024, 4)).held
    assert not gemm_tile(plan, GemmShape(16, 4096, 1024, 2, may_hold=False)).held  # INT8


def test_which_products_are_streamed():
    """Those whose programs would take turns on a GPU if each held its weights: large ones, up to 64 rows."""
    plan = Plan(library_min_rows=None, gemm_held=True)

    def streamed(rows: int, outputs: int, width: int, gated: bool = False) -> tuple[int, int, int] | None:
        tile = gemm_tile(plan, GemmShape(rows, outputs, width, 2, gated))
        steps = width // tile.split_k // max(1, tile.folds) // tile.block_k
        return (tile.block_n, tile.folds, tile.split_k) if tile.folds and tile.stages < steps else None

    assert streamed(32, 4096, 2048) == (32, 2, 1)  # the 1.7B model's
    assert streamed(16, 6144, 2048, gated=True) == streamed(64, 6144, 2048, gated=True) == (32, 1, 1)
    assert streamed(16, 2048, 6144) == streamed(64, 2048, 6144) == (64, 1, 4)
    assert streamed(64, 20480, 1024) == (64, 1, 1)  # the crossbar's heads at S = 5
    for shape in ((32, 2048, 2048), (64, 4096, 2048), (65, 2048, 6144)):
        assert streamed(*shape) is None
    for rows in (3, 16, 32, 64):  # the 0.6B model's layers
        assert streamed(rows, 4096, 1024) is streamed(rows, 1024, 2048) is streamed(rows, 1024, 3072) is None
        assert streamed(rows, 3072, 1024, True) is None
    narrow = gemm_tile(replace(plan, stream_shared_bytes=72 * 1024), GemmShape(32, 6144, 2048, 2, True))
    assert 2 * narrow.stages * narrow.block_k * (64 + 32) <= 72 * 1024
    assert not gemm_tile(replace(plan, stream_max_rows=0), GemmShape(64, 2048, 6144, 2)).folds
    everything = replace(plan, held_programs=0)
    assert gemm_tile(everything, GemmShape(32, 2048, 2048, 2)).stages > 0


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
    plan = Plan(
        library_min_rows=None, gemm_held=True, pdl=pdl, max_folds=folds, max_split_k=split_k, held_programs=0
    )
    # Without split-K no kernel holds weights of 6144 columns, so they are not streamed either.
    for width, outputs in ((2048, 4096), (6144, 2048))[: 1 if split_k == 1 else 2]:
        tile = gemm_tile(plan, GemmShape(rows, outputs, width, 2))
        steps = width // tile.split_k // tile.folds // tile.block_k
        assert tile.folds <= folds and 2 <= tile.stages <= steps
        check_kinds(device, plan, width, outputs, rows, torch.bfloat16)


@ON_HOPPER
@pytest.mark.parametrize("rows", [4, 16])
def test_folded_gemms_in_float16(device, rows):
    check_kinds(
        device, Plan(library_min_rows=None, gemm_held=True, pdl=True), 2048, 1024, rows, torch.float16
    )


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
