"""The fused layers against upstream's own modules, and the views of its weights that they run on."""

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.frame.weights import Weights
from qwen3_tts_morph.morph.model.layers import (
    Angles,
    LayerPass,
    LayerStack,
    attend,
    norm,
    rotate,
    run_layers,
)
from qwen3_tts_morph.morph.model.static_cache import SpanView, StaticCache, StepView
from qwen3_tts_morph.morph.options import LoadOptions

from lab.upstream.over import upstream_of
from lab.upstream.package import import_qwen_tts

LENGTHS = (7, 3, 5)


def part(model, name: str):
    return model.talker.model if name == "talker" else model.talker.code_predictor.model


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def cache_of(decoder: LayerStack, batch: int, length: int) -> StaticCache:
    shape = (len(decoder.layers), batch, decoder.kv_heads, length, decoder.head_dim)
    return StaticCache.allocate(shape, decoder.norm)


def plain_states(module, states: torch.Tensor) -> torch.Tensor:
    return module(states)


def our_states(module, states: torch.Tensor, prompt: int) -> torch.Tensor:
    """The same with ``prompt`` positions at once and the rest one by one, each line at its own position."""
    decoder = LayerStack.of(module)
    batch, length = states.shape[:2]
    cache, table = cache_of(decoder, batch, length + 3), Angles.table(module.config, length, states.device)
    head_norms = decoder.head_norms()
    view = SpanView(cache, 0, prompt)
    parts = [run_layers(decoder, states[:, :prompt], LayerPass(table.span(0, prompt), head_norms, view))]
    for place in range(prompt, length):
        positions = torch.full((batch,), place)
        angles, view = table.at(positions), StepView(cache, positions)
        parts.append(run_layers(decoder, states[:, place : place + 1], LayerPass(angles, head_norms, view)))
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("prompt", [12, 5, 1])
@pytest.mark.parametrize("name", ["talker", "predictor"])
@pytest.mark.parametrize("shape", ["tiny", "tiny-1.7B"])
@torch.inference_mode()
def test_states_equal_upstreams(load, shape, name, prompt):
    module = part(load(shape, "base"), name)
    states = noise(2, 12, module.config.hidden_size)
    ours = our_states(module, states, prompt)
    assert torch.allclose(ours, plain_states(module, states), atol=1e-5)


@pytest.mark.parametrize("name", ["talker", "predictor"])
@torch.inference_mode()
def test_bf16_is_no_further_from_float32_than_upstreams_bf16(load, name):
    exact, rounded = (part(load("tiny", "base", precision), name) for precision in ("fp32", "bf16"))
    states = noise(4, 40, exact.config.hidden_size).bfloat16()
    wanted = plain_states(exact, states.float())
    # The weights are rounded too: measured against float32 arithmetic, both have that error.
    ours = (our_states(rounded, states, 20).float() - wanted).norm() / wanted.norm()
    theirs = (plain_states(rounded, states).float() - wanted).norm() / wanted.norm()
    assert theirs > 1e-3, "nothing was rounded"
    assert ours < 1.1 * theirs


@torch.inference_mode()
def test_lines_of_different_lengths_step_as_if_alone(load):
    """A line sees neither the prompt's right padding, nor other lines' keys, nor what the memory had before."""
    module = part(load(), "talker")
    decoder = LayerStack.of(module)
    table, head_norms = Angles.table(module.config, 16, torch.device("cpu")), decoder.head_norms()
    lines = [noise(length + 4, module.config.hidden_size, seed=length) for length in LENGTHS]
    cache = cache_of(decoder, 3, 16)
    cache.keys.fill_(9), cache.values.fill_(-9)
    padded = torch.nn.utils.rnn.pad_sequence(
        [line[:length] for line, length in zip(lines, LENGTHS, strict=True)], True, padding_value=5.0
    )
    states = run_layers(decoder, padded, LayerPass(table.span(0, 7), head_norms, SpanView(cache, 0, 7)))
    wanted = [plain_states(module, line[None])[0] for line in lines]
    for row, length in enumerate(LENGTHS):
        assert torch.allclose(states[row, :length], wanted[row][:length], atol=1e-5)
    for offset in range(4):
        positions = torch.tensor(LENGTHS) + offset
        inputs = torch.stack([line[place] for line, place in zip(lines, positions, strict=True)])
        step = LayerPass(table.at(positions), head_norms, StepView(cache, positions))
        states = run_layers(decoder, inputs[:, None], step)
        for row, place in enumerate(positions):
            assert torch.allclose(states[row, 0], wanted[row][place], atol=1e-5)


@torch.inference_mode()
def test_rope_and_norm_are_upstreams(load):
    upstream = import_qwen_tts().core.models.modeling_qwen3_tts
    module = upstream_of(load()).talker.model
    states, weight = noise(2, 6, 3, 16), noise(16, seed=1)
    plain = upstream.Qwen3TTSRMSNorm(16, eps=1e-6)
    plain.weight.data = weight
    assert torch.allclose(norm(states, weight, 1e-6), plain(states), atol=1e-6)
    positions = torch.arange(4, 10).expand(3, 2, -1)
    cos, sin = module.rotary_emb(states, positions)
    rows = states.transpose(1, 2)
    wanted, _ = upstream.apply_rotary_pos_emb(rows, rows, cos[0], sin[0])
    angles = Angles.table(module.config, 10, torch.device("cpu")).span(4, 10)
    assert torch.allclose(rotate(states, angles).transpose(1, 2), wanted, atol=1e-5)


def test_norms_are_float32_inside():
    """In bf16 the mean of squares of these would lose the small half, in fp16 it would overflow."""
    states = torch.cat((torch.full((1, 512), 300.0), torch.full((1, 512), 1.0)), dim=1)
    wanted = norm(states, None, 1e-6)
    for dtype in (torch.float16, torch.bfloat16):
        ours = norm(states.to(dtype), torch.ones(1024, dtype=dtype), 1e-6)
        assert torch.allclose(ours.float(), wanted, rtol=1e-2)


def test_query_heads_attend_with_their_own_key_head():
    queries, keys, values = noise(2, 4, 1, 8), noise(2, 2, 5, 8, seed=1), noise(2, 2, 5, 8, seed=2)
    out = attend(queries, keys, values, None)
    for line in range(2):
        for head in range(4):
            own = head // 2
            shares = (queries[line, head] @ keys[line, own].T / 8**0.5).softmax(-1)
            assert torch.allclose(out[line, head], shares @ values[line, own], atol=1e-6)


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
    tensors = [value for layer in weights.talker.layers for value in vars(layer).values()]
    tensors += [weights.talker.qk_norms, weights.talker.norm, weights.tables, weights.heads]
    assert {tensor.untyped_storage().data_ptr() for tensor in tensors} <= owned
    attention = fresh.talker.model.layers[1].self_attn
    rows = len(attention.q_proj.weight)
    assert torch.equal(weights.talker.layers[1].qkv[rows : 2 * rows][: rows // 2], attention.k_proj.weight)
