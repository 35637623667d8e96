"""The talker of a line that outgrows its first table of angles."""

import torch
from qwen3_tts_morph.morph.decode import eager as talker_module
from qwen3_tts_morph.morph.decode.eager import EagerTalker
from qwen3_tts_morph.morph.voice.prompt import Prompt


@torch.inference_mode()
def test_angles_continue_beyond_the_first_table(load, monkeypatch):
    """The RoPE table grows as a line gets longer."""
    model = load()
    frames = torch.randint(64, (1, 7, 16), generator=torch.Generator().manual_seed(5))

    noise = torch.randn(9, model.width, generator=torch.Generator().manual_seed(0))

    def spoken() -> list[torch.Tensor]:
        talker = EagerTalker(model, Prompt(noise, noise[:2], noise[:1], 2))
        talker.prefill()
        return [talker.step(frames[:, step])[1] for step in range(7)]

    wanted = spoken()
    monkeypatch.setattr(talker_module, "TABLE_STEP", 2)
    assert all(torch.equal(*pair) for pair in zip(spoken(), wanted, strict=True))
