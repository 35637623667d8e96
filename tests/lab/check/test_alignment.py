"""The search for the attention head that follows the text."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.prompt import Prompt, PromptBuilder

from lab.check import alignment
from lab.check.alignment import score_heads, through
from tests.morph.test_alignment import attentions

OPTIONS = GenerateOptions(1, Sampling(max_new_tokens=31))
TEXT = "A line of a few words."


@pytest.mark.parametrize(
    ("tokens", "count", "share"),
    [
        ([0, 1, 2, 3], 4, 1.0),
        ([0, 0, 1, 1, 1, 3], 4, 1.0),
        ([0, 1, 0, 2, 3, 9, 3, 4], 5, 6 / 8),
        ([2, 2, 2, 2], 4, 1 / 4),
        ([3, 2, 1, 0], 4, 1 / 16),
        ([1, 2], 4, 2 / 4),
    ],
)
def test_a_way_through_the_text_is_diagonal(tokens: list[int], count: int, share: float) -> None:
    assert through(np.array(tokens), count) == pytest.approx(share)


@torch.inference_mode()
def test_the_attention_is_upstreams_of_all_layers(load) -> None:
    model = load("tiny", "custom_voice")
    prompt = PromptBuilder(model).build(TEXT, preset_voice(model, "ryan"))
    codes = torch.randint(64, (9, 16), generator=torch.Generator().manual_seed(0))
    wanted = attentions(model, prompt, codes)
    found = list(alignment.attention(model, prompt, codes))
    assert len(found) == len(wanted) == 3
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs[0, :, prompt.length - 1 :], atol=1e-5)
    assert not any(layer._forward_pre_hooks for layer in model.talker.model.layers)


def test_a_head_that_follows_the_text_is_found_and_random_ones_are_not(load, monkeypatch) -> None:
    model = load("tiny", "custom_voice")
    synthesizer, line = Synthesizer(model, Engine("graph")), Line(TEXT, preset_voice(model, "ryan"))
    scores = score_heads(synthesizer, line, OPTIONS)
    assert len(scores) == 3 * 4 and not any(one.is_sure for one in scores)
    real = alignment.attention

    def with_one(model: object, prompt: Prompt, codes: torch.Tensor) -> Iterator[torch.Tensor]:
        """Layer 1 head 2 goes through the text with the frames."""
        first, count = prompt.text_span
        for layer, weights in enumerate(real(model, prompt, codes)):
            if layer == 1:
                frames = weights.shape[1]
                weights[2] = 0.01
                tokens = torch.linspace(0, count - 1, frames).long()
                weights[2, torch.arange(frames), first + tokens] = 0.5
            yield weights

    monkeypatch.setattr(alignment, "attention", with_one)
    best, second, *_ = score_heads(synthesizer, line, OPTIONS)
    assert (best.layer, best.head) == (1, 2) and best.is_sure and not second.is_sure
    assert best.diagonal == best.worst == 1 and "layer 1 head 2: 100% diagonal" in best.describe()
