from types import SimpleNamespace

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.qwen_tts import import_qwen_tts
from qwen3_tts_morph.morph.decode.eager import decode
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.model.rope import RopeTable, inverse_frequencies, require_default_rope
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.prompt import build_prompt

from tests.morph.decoding import line_requests

CPU = torch.device("cpu")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", ["tiny", "tiny-1.7B"])
def test_the_table_equals_upstreams_angles_bit_for_bit(load, shape, precision):
    model = load(shape, "custom_voice", precision)
    states = torch.zeros(1, 1, 1, dtype=model.dtype)
    predictor = model.talker.code_predictor
    positions = torch.arange(17)[None]
    cos, sin = predictor.model.rotary_emb(states, positions)
    table = RopeTable.build(predictor.config, 17, CPU, model.dtype)
    assert table.cos.dtype == model.dtype
    assert torch.equal(table.cos, cos[0]) and torch.equal(table.sin, sin[0])
    assert torch.equal(table.positions, positions[0])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_talkers_table_equals_upstreams_far_into_a_line(load, precision):
    model = load("tiny", "custom_voice", precision)
    states = torch.zeros(1, 1, 1, dtype=model.dtype)
    positions = torch.arange(9000).expand(3, 1, -1)
    cos, sin = model.talker.model.rotary_emb(states, positions)
    table = RopeTable.build(model.talker.config, 9000, CPU, model.dtype)
    assert all(torch.equal(table.cos, row[0]) for row in cos)
    assert all(torch.equal(table.sin, row[0]) for row in sin)


def codes_of(model) -> torch.Tensor:
    prompt = build_prompt(model, "One two three.", preset_voice(model, "ryan"), "english")
    return decode(model, line_requests([prompt], [Guard(12)], [4]), GenerateOptions(15, Sampling()))[0].codes


def test_zeroed_frequencies_of_the_predictor_do_not_change_the_codes(checkpoint, load):
    """The morph cache never reads the buffer."""
    wanted = codes_of(load("tiny", "custom_voice"))
    poisoned = load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa"))
    poisoned.talker.code_predictor.model.rotary_emb.inv_freq.zero_()
    assert torch.equal(codes_of(poisoned), wanted)


def test_frequencies_that_loading_zeroed_are_restored_everywhere(checkpoint, load, monkeypatch):
    """transformers 5 can leave every ``inv_freq`` zeroed; the talker's prefill and the codec do read theirs."""
    wanted = load("tiny", "custom_voice")
    original = import_qwen_tts().Qwen3TTSModel.from_pretrained

    def zeroing(*args, **options):
        loaded = original(*args, **options)
        for part in (*loaded.model.modules(), *loaded.model.speech_tokenizer.model.modules()):
            if isinstance(getattr(part, "inv_freq", None), torch.Tensor):
                part.inv_freq.zero_()
        return loaded

    monkeypatch.setattr(import_qwen_tts().Qwen3TTSModel, "from_pretrained", zeroing)
    poisoned = load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa"))
    assert torch.equal(codes_of(poisoned), codes_of(wanted))
    parts = zip(poisoned.module.named_buffers(), wanted.module.named_buffers(), strict=True)
    assert all(torch.equal(a, b) for (name, a), (_, b) in parts if name.endswith("inv_freq"))


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
        RopeTable.build(config, 4, CPU, torch.float32)


@pytest.mark.parametrize("scaling", [None, {}, {"rope_type": "default", "mrope_section": [4, 2, 2]}])
def test_unscaled_rope_is_taken(scaling):
    require_default_rope(SimpleNamespace(rope_scaling=scaling))


def test_a_scaled_predictor_config_is_refused_in_both_transformers(load):
    """transformers 5 keeps the scaling in ``rope_parameters``, transformers 4 in ``rope_scaling``."""
    config = type(load().talker.code_predictor.config)(
        rope_theta=10000.0, rope_scaling={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    )
    with pytest.raises(ValueError, match="linear"):
        RopeTable.build(config, 4, CPU, torch.float32)


def test_a_table_serves_only_its_own_length_device_and_dtype():
    table = RopeTable.build(SimpleNamespace(head_dim=16, rope_theta=1e6), 8, CPU, torch.float32)
    assert table.fits(8, CPU, torch.float32)
    assert not table.fits(9, CPU, torch.float32)
    assert not table.fits(8, CPU, torch.bfloat16)
    assert not table.fits(8, torch.device("meta"), torch.float32)
