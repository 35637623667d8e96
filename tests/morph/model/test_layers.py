"""The fused layers in bf16, and the views of the model's weights that they run on."""

from functools import partial

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.frame.weights import Weights
from qwen3_tts_morph.morph.model.layers import (
    TORCH_OPS,
    Angles,
    LayerPass,
    LayerStack,
    RowOps,
    run_layers,
)
from qwen3_tts_morph.morph.model.static_cache import SpanView, StaticCache, StepView
from qwen3_tts_morph.morph.options import LoadOptions


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def cache_of(decoder: LayerStack, batch: int, length: int) -> StaticCache:
    shape = (len(decoder.layers), batch, decoder.kv_heads, length, decoder.head_dim)
    return StaticCache.allocate(shape, decoder.norm)


def our_states(module, states: torch.Tensor, prompt: int) -> torch.Tensor:
    """The same with ``prompt`` positions at once and the rest one by one, each line at its own position."""
    decoder = LayerStack.of(module)
    batch, length = states.shape[:2]
    cache, table = cache_of(decoder, batch, length + 3), Angles.table(module.config, length, states.device)
    head_norms = decoder.head_norms()
    view = SpanView(cache, 0, prompt)
    attend = partial(TORCH_OPS.attend, decoder, LayerPass(table.span(0, prompt), head_norms, view))
    parts = [run_layers(decoder, states[:, :prompt], attend)]
    for place in range(prompt, length):
        positions = torch.full((batch,), place)
        angles, view = table.at(positions), StepView(cache, positions)
        attend = partial(TORCH_OPS.attend, decoder, LayerPass(angles, head_norms, view))
        parts.append(run_layers(decoder, states[:, place : place + 1], attend))
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("name", ["talker", "predictor"])
@torch.inference_mode()
def test_bf16_is_no_further_from_float32_than_upstreams_bf16(load, name):
    models = [load("tiny", "base", precision).talker for precision in ("fp32", "bf16")]
    exact, rounded = (one.model if name == "talker" else one.code_predictor.model for one in models)
    states = noise(4, 40, exact.config.hidden_size).bfloat16()
    wanted = exact(states.float())
    # The weights are rounded too: measured against float32 arithmetic, both have that error.
    ours = (our_states(rounded, states, 20).float() - wanted).norm() / wanted.norm()
    theirs = (rounded(states).float() - wanted).norm() / wanted.norm()
    assert theirs > 1e-3, "nothing was rounded"
    assert ours < 1.1 * theirs


def test_norms_are_float32_inside():
    """In bf16 the mean of squares of these would lose the small half, in fp16 it would overflow."""
    states = torch.cat((torch.full((1, 512), 300.0), torch.full((1, 512), 1.0)), dim=1)
    wanted = torch.nn.functional.rms_norm(states, (1024,), None, 1e-6)
    for dtype in (torch.float16, torch.bfloat16):
        ones, zeros = torch.ones(1024, dtype=dtype), torch.zeros(1024, dtype=dtype)
        _, ours = RowOps().add_norm(states.to(dtype), zeros, ones, 1e-6)
        assert torch.allclose(ours.float(), wanted, rtol=1e-2)


@pytest.fixture
def fresh(checkpoint):
    """A model of the test's own, whose weights may be moved."""
    return load_model(checkpoint("tiny-1.7B", "base"), LoadOptions("fp32", "sdpa"))


def storage_bytes(module: torch.nn.Module) -> int:
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in module.parameters()}
    return sum(storage.nbytes() for storage in storages.values())


def test_fused_weights_are_the_models_own(fresh):
    values = {name: value.clone() for name, value in fresh.network.state_dict().items()}
    parameters, before = list(fresh.network.parameters()), storage_bytes(fresh.network)
    weights = Weights.of(fresh)
    assert storage_bytes(fresh.network) == before, "memory was added"
    assert all(new is old for new, old in zip(fresh.network.parameters(), parameters, strict=True))
    assert all(torch.equal(value, values[name]) for name, value in fresh.network.state_dict().items())
    owned = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    tensors = [value for layer in weights.talker.layers for value in vars(layer).values() if value is not None]
    tensors += [weights.talker.qk_norms, weights.talker.norm, weights.tables, weights.heads]
    assert {tensor.untyped_storage().data_ptr() for tensor in tensors} <= owned
    attention = fresh.talker.model.layers[1].self_attn
    rows = len(attention.q_proj.weight)
    assert torch.equal(weights.talker.layers[1].qkv[rows : 2 * rows][: rows // 2], attention.k_proj.weight)
