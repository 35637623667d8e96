"""The search for the attention head that follows the text."""

from collections.abc import Iterator

import torch
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.prompt import Prompt

from lab.check import alignment
from lab.check.alignment import score_heads

OPTIONS = GenerateOptions(1, Sampling(max_new_tokens=31))
TEXT = "A line of a few words."


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
