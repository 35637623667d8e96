"""Our modules against upstream's, bit for bit: states of talker and predictor, embeddings of speakers."""

import pytest
import torch
from qwen3_tts_morph.morph.decode.predictor import KeyValueCache
from qwen3_tts_morph.morph.model.network import rope_table

from lab.upstream.over import upstream_of
from lab.upstream.package import import_qwen_tts
from tests.morph.pairwise import each_value


@pytest.mark.parametrize(
    ("shape", "precision", "attention", "part"),
    each_value(
        {"tiny": "tiny", "tiny-1.7B": "tiny-1.7B"},
        {"fp32": "fp32", "bf16": "bf16"},
        {"sdpa": "sdpa", "eager": "eager"},
        {"talker": "talker.model", "predictor": "talker.code_predictor.model"},
    ),
)
@torch.inference_mode()
def test_states_of_a_prompt_and_of_steps_are_upstreams(load, shape, precision, attention, part):
    model = load(shape, "base", precision, attention)
    ours, theirs = model.network.get_submodule(part), upstream_of(model).get_submodule(part)
    states = torch.randn(1, 9, ours.config.hidden_size, generator=torch.Generator().manual_seed(1)).to(model.dtype)
    cos, sin = rope_table(ours.config, 9, model.device, model.dtype)
    cache, past = KeyValueCache(), None
    for start, end in ((0, 6), (6, 7), (7, 8), (8, 9)):
        out = theirs(inputs_embeds=states[:, start:end], past_key_values=past, use_cache=True)
        past = out["past_key_values"] if "past_key_values" in out else out["cache"]
        turn = cos[start:end], sin[start:end]
        assert torch.equal(ours(states[:, start:end], turn, cache), out.last_hidden_state)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_embedding_of_a_speaker_is_upstreams(load, recording, precision):
    model = load("tiny", "base", precision)
    wanted = upstream_of(model).extract_speaker_embedding(recording, 24000)
    assert torch.equal(model.network.speaker_encoder.embed(recording), wanted)


def test_upstream_needs_no_second_copy(load):
    """``upstream_of`` shares our tensors: what is compared with upstream is not compared with a copy."""
    model = load("tiny", "base")
    ours = {one.data_ptr() for one in model.network.state_dict().values()}
    assert {one.data_ptr() for one in upstream_of(model).state_dict().values()} == ours
    assert import_qwen_tts().__name__ not in type(model.talker).__module__
