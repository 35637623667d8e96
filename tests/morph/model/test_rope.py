from types import SimpleNamespace

import pytest
import torch
from qwen3_tts_morph.morph.model.network import inverse_frequencies, require_default_rope, rope_table

from lab.upstream.over import upstream_of

CPU = torch.device("cpu")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_talkers_table_equals_upstreams_far_into_a_line(load, precision):
    model = load("tiny", "custom_voice", precision)
    states = torch.zeros(1, 1, 1, dtype=model.dtype)
    positions = torch.arange(9000).expand(3, 1, -1)
    cos, sin = upstream_of(model).talker.model.rotary_emb(states, positions)
    ours = rope_table(model.talker.config, 9000, CPU, model.dtype)
    assert all(torch.equal(ours[0], row[0]) for row in cos)
    assert all(torch.equal(ours[1], row[0]) for row in sin)


def test_frequencies_come_from_either_transformers_config():
    old = SimpleNamespace(head_dim=16, rope_theta=10000.0)
    new = SimpleNamespace(hidden_size=64, num_attention_heads=4, rope_parameters={"rope_theta": 10000.0})
    wanted = torch.tensor([10000.0 ** (-2 * i / 16) for i in range(8)])
    assert torch.allclose(inverse_frequencies(old), wanted, rtol=1e-6)
    assert torch.equal(inverse_frequencies(new), inverse_frequencies(old))


@pytest.mark.parametrize("scaling", [{"rope_type": "yarn", "factor": 4.0}, {"type": "linear", "factor": 2.0}])
def test_scaled_rope_is_refused(scaling):
    config = SimpleNamespace(head_dim=16, rope_theta=10000.0, rope_scaling=scaling)
    with pytest.raises(ValueError, match=next(iter(scaling.values()))):
        rope_table(config, 4, CPU, torch.float32)


@pytest.mark.parametrize("scaling", [None, {}, {"rope_type": "default", "mrope_section": [4, 2, 2]}])
def test_unscaled_rope_is_taken(scaling):
    require_default_rope(SimpleNamespace(rope_scaling=scaling))


def test_a_scaled_predictor_config_is_refused_in_both_transformers(load):
    """transformers 5 keeps the scaling in ``rope_parameters``, transformers 4 in ``rope_scaling``."""
    config = type(load().talker.code_predictor.config)(
        rope_theta=10000.0, rope_scaling={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    )
    with pytest.raises(ValueError, match="linear"):
        rope_table(config, 4, CPU, torch.float32)
