"""FlashAttention 2, where it is installed: the codes at SEQ_GROUPS=15 equal upstream's with it."""

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.options import LoadOptions

from tests.morph.test_parity import GREEDY, SAMPLED, TEXTS, make_voice, our_codes, upstream_codes


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("text", TEXTS[:2])
def test_codes_with_flash_attention_equal_upstreams(checkpoint, monkeypatch, text, sampling):
    pytest.importorskip("flash_attn", reason="not run: flash-attn is not installed")
    options = LoadOptions("bf16", "flash_attention_2")
    model = load_model(checkpoint("tiny-1.7B", "custom_voice"), options, "cuda")
    voice = make_voice(model, "preset", None)
    [theirs], _ = upstream_codes(model, [text], voice, "english", sampling, monkeypatch)
    [ours], _ = our_codes(model, [text], voice, "english", sampling)
    assert torch.equal(ours.cpu(), theirs) and len(theirs) > 1
