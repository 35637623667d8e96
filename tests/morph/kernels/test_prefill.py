"""The operations between the linear layers of a prefill: kernels against torch."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

from qwen3_tts_morph.morph.frame.buffers import PrefillBatch
from qwen3_tts_morph.morph.frame.step import prefill, prefill_all, start_lines
from qwen3_tts_morph.morph.kernels.frame import PromptOps, run_prompt
from qwen3_tts_morph.morph.kernels.frame import start_lines as fused_start
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.model.layers import TORCH_OPS, Angles, LayerPass, LayerStack
from qwen3_tts_morph.morph.model.static_cache import FillView, SpanView, StaticCache
from qwen3_tts_morph.morph.options import Sampling
from qwen3_tts_morph.morph.words.head import AlignmentHead

from lab.benchmarks.random_weights import SHAPES, random_slots, random_weights
from tests.morph.kernels.said import same_said

TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}  # one or two ulps of 1


def noise(device, *shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)


def close(value: torch.Tensor, wanted: torch.Tensor) -> bool:
    tolerance = TOLERANCES[wanted.dtype]
    return value.dtype == wanted.dtype and torch.allclose(value, wanted, rtol=tolerance, atol=tolerance)


def angles_of(head_dim: int, device, length: int = 16) -> Angles:
    config = SimpleNamespace(head_dim=head_dim, rope_theta=10_000.0)
    return Angles.table(config, length, device)


def stack_of(heads: int, kv_heads: int, head_dim: int, norm: torch.Tensor) -> LayerStack:
    return LayerStack((), norm, 1e-6, heads, kv_heads, torch.empty(0), head_dim)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("lines, length, heads, kv_heads, head_dim", [(1, 5, 2, 1, 16), (3, 4, 16, 8, 128)])
def test_attention_and_cache_equal_those_of_torch(device, dtype, lines, length, heads, kv_heads, head_dim):
    decoder = stack_of(heads, kv_heads, head_dim, noise(device, 8, dtype=dtype))
    qkv = noise(device, lines, length, heads + 2 * kv_heads, head_dim, dtype=dtype)
    gains = noise(device, 2, heads + kv_heads, head_dim).abs()
    rows, before = torch.tensor([4, 0, 2][:lines], device=device), qkv.clone()
    made = []
    for ops in (TORCH_OPS, PromptOps()):
        cache = StaticCache.allocate((2, 5, kv_heads, 9, head_dim), qkv)
        cache.keys.fill_(7), cache.values.fill_(7)
        angles = angles_of(head_dim, device).span(3, 3 + length)  # not from position 0
        layer_pass = LayerPass(angles, gains, FillView(cache, rows))
        made.append((ops.attend(decoder, layer_pass, 1, qkv.flatten(2)), cache))
    (wanted, wanted_cache), (value, cache) = made
    assert close(value, wanted) and close(cache.keys, wanted_cache.keys)
    assert cache.values.equal(wanted_cache.values) and qkv.equal(before)


def test_prompts_fill_the_cache_and_nothing_else(device):
    decoder, cache = (
        stack_of(1, 1, 16, noise(device, 8)),
        StaticCache.allocate((1, 1, 1, 4, 16), noise(device, 8)),
    )
    layer_pass = LayerPass(angles_of(16, device).span(0, 2), noise(device, 1, 2, 16), SpanView(cache, 0, 2))
    with pytest.raises(TypeError, match="SpanView"):
        PromptOps().attend(decoder, layer_pass, 0, noise(device, 1, 2, 3 * 16))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shape", [(1, 3, 20), (2, 2, 1024)])
def test_sums_and_their_norms_equal_those_of_torch(device, dtype, shape):
    states, added = noise(device, 2, *shape, dtype=dtype)
    gain, scale = noise(device, 2, shape[-1], dtype=dtype)
    before = states.clone()
    for one, other in zip(
        PromptOps().add_norm(states, added, gain, 1e-6),
        TORCH_OPS.add_norm(states, added, gain, 1e-6),
        strict=True,
    ):
        assert close(one, other)
    sums, normed = PromptOps().add_norm(states, added, gain, 1e-6, scale)
    scaled = torch.addcmul(states, added, scale)
    assert close(sums, scaled) and close(normed, torch.nn.functional.rms_norm(scaled, shape[-1:], gain, 1e-6))
    assert states.equal(before)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shape", [(1, 3, 2 * 20), (2, 2, 2 * 1536)])
def test_gates_equal_those_of_torch(device, dtype, shape):
    gate_up = noise(device, *shape, dtype=dtype) * 3
    assert close(PromptOps().gate(gate_up), TORCH_OPS.gate(gate_up))


@torch.inference_mode()
def test_a_prefill_equals_that_of_torch(device):
    torch.manual_seed(0)
    weights = random_weights(SHAPES["tiny"], device, torch.float32)
    weights, left, said = replace(weights, alignment=AlignmentHead(1, 3)), [], []
    for ops in (TORCH_OPS, PromptOps()):
        torch.manual_seed(1)
        slots = random_slots(SHAPES["tiny"], weights, 3, 64, [40, 3, 17], Sampling())
        arrivals = PrefillBatch.allocate(2, 8, slots.state.hidden)
        arrivals.embeds.copy_(noise(device, *arrivals.embeds.shape))
        arrivals.numbers.copy_(torch.tensor([[2, 8, 2, 5, 6, 1, 4], [0, 5, 9, 7, 8, 2, 9]]))
        prefill(weights, slots, arrivals, ops)
        left.append([slots.state.tokens, slots.state.hidden, slots.cache.keys, slots.cache.values])
        said.append(slots.state.aligned)
    for value, wanted in zip(left[1], left[0], strict=True):
        same = value.equal(wanted) if value.dtype == torch.int64 else torch.allclose(value, wanted, atol=2e-5)
        assert same
    same_said(said[1], said[0])
    assert said[0][:, 0].tolist()[1] == 0 and bool((said[0][[0, 2]] > 0).all())


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_single_lines_attention_equals_that_of_torch(device, dtype):
    """In one kernel, where its length is a multiple of that kernel's block."""
    decoder = stack_of(4, 2, 16, noise(device, 8, dtype=dtype))
    qkv = noise(device, 1, 32, 8, 16, dtype=dtype)
    gains = noise(device, 1, 2, 16, dtype=dtype).abs()
    decoder = replace(decoder, qk_norms=gains, layers=(None,))
    made = []
    for ops in (TORCH_OPS, PromptOps()):
        cache, row = (
            StaticCache.allocate((1, 1, 2, 40, 16), qkv),
            torch.zeros(1, dtype=torch.int64, device=device),
        )
        layer_pass = LayerPass(angles_of(16, device, 32).span(0, 32), decoder.head_norms(), FillView(cache, row))
        made.append((ops.attend(decoder, layer_pass, 0, qkv.flatten(2)), cache))
    (wanted, wanted_cache), (value, cache) = made
    assert close(value, wanted) and close(cache.keys, wanted_cache.keys)
    assert cache.values.equal(wanted_cache.values)


@pytest.mark.parametrize(
    "length, shape", [(8, "tiny"), (16, "tiny"), pytest.param(16, "tiny-1.7B", marks=pytest.mark.slow)]
)
@torch.inference_mode()
def test_a_single_lines_prefill_is_that_of_a_batch(device, length, shape):
    """Its first codes are sampled by the frame's kernel, its state is the buffers' own; short prompts have kernels."""
    torch.manual_seed(0)
    weights = replace(random_weights(SHAPES[shape], device, torch.float32), alignment=AlignmentHead(1, 3))
    left = []
    for run in (
        prefill,
        prefill_all,
        lambda *args: prefill_all(*args, PromptOps(), fused_start),
        *([lambda *args: run_prompt(*args, Plan())] if length == 16 else []),
    ):
        torch.manual_seed(1)
        slots = random_slots(SHAPES[shape], weights, 1, 64, [40], Sampling())
        arrivals = PrefillBatch.allocate(1, length, slots.state.hidden)
        arrivals.embeds.copy_(noise(device, *arrivals.embeds.shape))
        arrivals.numbers.copy_(torch.tensor([[0, length - 3, 9, 7, 8, 1, 9]]))
        run(weights, slots, arrivals)
        left.append(vars(slots.state) | {"keys of the cache": slots.cache.keys, "values": slots.cache.values})
    assert start_lines is not fused_start
    for state in left[1:]:
        for name, wanted in left[0].items():
            value = state[name]
            if name == "alignment":
                same_said(value[:, 2:], wanted[:, 2:])
                value, wanted = value[:, :2], wanted[:, :2]
            exact = not value.dtype.is_floating_point
            assert value.equal(wanted) if exact else torch.allclose(value, wanted, atol=2e-5), name
