"""INT8 weights in the kernels, compared with the same frame in torch operations."""

import copy
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

import triton
import triton.language as tl
from qwen3_tts_morph.morph.kernels import unsupported
from qwen3_tts_morph.morph.kernels.linear.gemv import UNPACKED, unpack
from qwen3_tts_morph.morph.kernels.linear.launch import project
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.kernels.states import Inputs, Projection
from qwen3_tts_morph.morph.model.weights import quantize

from lab.benchmarks.random_weights import SHAPES, quantize_weights, random_slots, random_weights
from tests.morph.kernels.test_frame import FILTERED, POSITIONS, check_frames
from tests.morph.kernels.test_linear import OURS, residual_of
from tests.morph.pairwise import pairwise, thinned


@triton.jit
def unpack_all(words, out, COUNT: tl.constexpr):
    index = tl.arange(0, COUNT)
    first, second, third, fourth = unpack(tl.load(words + index))
    tl.store(out + 4 * index, first)
    tl.store(out + 4 * index + 1, second)
    tl.store(out + 4 * index + 2, third)
    tl.store(out + 4 * index + 3, fourth)


def test_words_are_unpacked_exactly(device):
    """Every byte at every position of a word; subnormal floats must not be flushed to zero."""
    every = torch.arange(-128, 128).to(torch.int8)
    values = torch.stack([every.roll(shift) for shift in (0, 1, 85, 170)], dim=1).contiguous().to(device)
    out = torch.full(values.shape, torch.nan, device=device)
    unpack_all[(1,)](values.view(torch.int32), out, 256)
    assert torch.equal(out / float(UNPACKED.value), values.float())


@pytest.mark.parametrize(
    ("rows", "gated", "sizes"),
    thinned(
        pairwise(
            {str(rows): rows for rows in (1, 2, 3, 17)},
            {"gated": True, "plain": False},
            {str(sizes): sizes for sizes in ((64, 96), (100, 37), (1500, 40))},
        ),
        2,
    ),
)
def test_a_product_equals_that_of_the_dequantized_weight(device, sizes, gated, rows):
    width, outputs = sizes
    torch.manual_seed(0)
    scales = torch.logspace(-2, 1, (1 + gated) * outputs)[:, None]
    # The same numbers on every device: where a single row's product happens to be nearly zero, its relative error is
    # large whatever the kernel, and an H200's own random numbers contained such a case.
    weight = quantize((torch.randn((1 + gated) * outputs, width) * scales / width**0.5).to(device))
    x = torch.randn(rows, width).to(device)
    out = torch.full((rows, outputs), torch.nan, device=device)
    gain = torch.ones_like(x[0])
    project(OURS, residual_of(x, gain), out, Projection(weight, gain, 1e-6, gated=gated))
    normed = torch.nn.functional.rms_norm(x.double(), (width,), None, 1e-6)
    wanted = normed @ (weight.values.double() * weight.scale.double()[:, None]).T
    if gated:
        gate, up = wanted.chunk(2, dim=-1)
        wanted = torch.nn.functional.silu(gate) * up
    assert ((out.double() - wanted).norm(dim=0) / wanted.norm(dim=0)).max() < 1e-4
    assert (out.double() - wanted).norm() / wanted.norm() < 2e-6


@pytest.mark.parametrize(
    "width, outputs, rows, split_k",
    thinned([(512, 96, 64, 2), (1536, 37, 70, 2), (1536, 37, 70, 8), (512, 96, 64, 8)], 3),
)
def test_split_k_applies_the_scales(device, width, outputs, rows, split_k):
    torch.manual_seed(0)
    scales = torch.logspace(-2, 1, outputs, device=device)[:, None]
    weight = quantize(torch.randn(outputs, width, device=device) * scales / width**0.5)
    x, gain = torch.randn(rows, width, device=device), torch.ones(outputs, device=device)
    stream = residual_of(torch.randn(rows, outputs, device=device), gain)
    before = stream.values.double()
    plan = Plan(library_min_rows=None, max_split_k=split_k, split_k_block_n=32, split_k_min_width=64, gemm_held=True)
    project(plan, Inputs(x), stream.values, Projection(weight, residual=stream, next_norm=gain))
    wanted = before + x.double() @ (weight.values.double() * weight.scale.double()[:, None]).T
    assert ((stream.values.double() - wanted).norm(dim=0) / wanted.norm(dim=0)).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("shape, batch, seq_groups", [("tiny", 1, 2), ("tiny-1.7B", 1, 2), ("tiny-1.7B", 4, 2)])
@torch.inference_mode()
def test_frames_equal_those_of_torch(device, shape, batch, seq_groups):
    torch.manual_seed(batch)
    weights = quantize_weights(random_weights(SHAPES[shape], device, torch.float32))
    slots = random_slots(SHAPES[shape], weights, batch, 64, POSITIONS[:batch], FILTERED)
    frames = 2 if device.type == "cuda" else 1  # the interpreter takes half a minute per frame
    check_frames(weights, slots, copy.deepcopy(slots), seq_groups, frames)


def test_widths_that_do_not_fill_words_are_refused():
    weights = quantize_weights(random_weights(SHAPES["tiny"], torch.device("cpu"), torch.float32))
    assert unsupported(weights) is None
    odd = replace(weights.talker.layers[0], down=quantize(torch.randn(4, 6)))
    weights = replace(weights, talker=replace(weights.talker, layers=(odd,)))
    assert "a multiple of 4, not 6" in (unsupported(weights) or "")
