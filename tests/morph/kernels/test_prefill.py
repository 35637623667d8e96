"""The operations between the linear layers of a prefill: kernels against torch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from qwen3_tts_morph.morph.frame.buffers import PrefillBatch
from qwen3_tts_morph.morph.frame.step import prefill
from qwen3_tts_morph.morph.kernels.prefill import PromptOps
from qwen3_tts_morph.morph.model.layers import TORCH_OPS, Angles
from qwen3_tts_morph.morph.options import Sampling

from lab.benchmarks.random_weights import SHAPES, random_slots, random_weights

TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}  # one or two ulps of 1


def noise(device, *shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)


def close(value: torch.Tensor, wanted: torch.Tensor) -> bool:
    tolerance = TOLERANCES[wanted.dtype]
    return value.dtype == wanted.dtype and torch.allclose(value, wanted, rtol=tolerance, atol=tolerance)


def angles_of(head_dim: int, device) -> Angles:
    """Upstream's table."""
    config = SimpleNamespace(head_dim=head_dim, rope_theta=10_000.0)
    return Angles.table(config, 16, device)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("lines, length, normed, others, head_dim", [(1, 5, 3, 1, 16), (3, 4, 24, 8, 128)])
def test_heads_get_norm_and_rope(device, dtype, lines, length, normed, others, head_dim):
    qkv = noise(device, lines, length, normed + others, head_dim, dtype=dtype)
    gains = noise(device, normed, head_dim).abs()
    heads, angles = qkv[:, :, :normed], angles_of(head_dim, device).span(3, 3 + length)  # not from position 0
    before = qkv.clone()
    turned = PromptOps().turn(heads, gains, angles, 1e-6)
    assert close(turned, TORCH_OPS.turn(heads, gains, angles, 1e-6))
    assert qkv.equal(before)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shape", [(1, 3, 2 * 20), (2, 2, 2 * 1536)])
def test_gates_equal_those_of_torch(device, dtype, shape):
    gate_up = noise(device, *shape, dtype=dtype) * 3
    assert close(PromptOps().gate(gate_up), TORCH_OPS.gate(gate_up))


@torch.inference_mode()
def test_a_prefill_equals_that_of_torch(device):
    torch.manual_seed(0)
    weights = random_weights(SHAPES["tiny"], device, torch.float32)
    left = []
    for ops in (TORCH_OPS, PromptOps()):
        torch.manual_seed(1)
        slots = random_slots(SHAPES["tiny"], weights, 3, 64, [40, 3, 17], Sampling())
        arrivals = PrefillBatch.allocate(2, 8, slots.state.hidden)
        arrivals.embeds.copy_(noise(device, *arrivals.embeds.shape))
        arrivals.numbers.copy_(torch.tensor([[2, 8, 2, 5, 6], [0, 5, 9, 7, 8]]))
        prefill(weights, slots, arrivals, ops)
        left.append([slots.state.tokens, slots.state.hidden, slots.cache.keys, slots.cache.values])
    for value, wanted in zip(left[1], left[0], strict=True):
        same = value.equal(wanted) if value.dtype == torch.int64 else torch.allclose(value, wanted, atol=2e-5)
        assert same
