"""The talker's steps against upstream's own forward over the complete sequence, without a cache."""

import pytest
import torch
from qwen3_tts_morph.morph.decode import talker as talker_module
from qwen3_tts_morph.morph.decode.talker import Talker
from qwen3_tts_morph.morph.voice.prompt import Prompt, embed_frames

LENGTHS = (9, 4, 1)
TRAILING = (2, 5, 1)


def prompts_of(model, lengths=LENGTHS, trailing=TRAILING) -> list[Prompt]:
    generator = torch.Generator().manual_seed(0)

    def noise(rows: int) -> torch.Tensor:
        return torch.randn(rows, model.width, generator=generator).to(model.dtype)

    pad = noise(1)
    return [
        Prompt(noise(length), noise(text), pad, text) for length, text in zip(lengths, trailing, strict=True)
    ]


def frames_of(batch: int, steps: int) -> torch.Tensor:
    return torch.randint(64, (batch, steps, 16), generator=torch.Generator().manual_seed(1))


def plain_inputs(model, prompt: Prompt, frames: torch.Tensor) -> torch.Tensor:
    """Return the prompt, then for every frame the sum of its 16 embeddings and its text embedding."""
    talker = model.talker
    rows = [*prompt.embeds]
    for step, frame in enumerate(frames):
        row = talker.model.codec_embedding.weight[frame[0]].clone()
        for group in range(15):
            row += talker.code_predictor.model.codec_embedding[group].weight[frame[group + 1]]
        text = prompt.text_rows[step] if step < len(prompt.trailing) else prompt.pad[0]
        rows.append(row + text)
    return torch.stack(rows)


def plain_states(model, prompt: Prompt, frames: torch.Tensor) -> torch.Tensor:
    """Return every hidden state of one line alone, ``[T, H]``."""
    inputs = plain_inputs(model, prompt, frames)[None]
    return model.talker.model(inputs)[0]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.inference_mode()
def test_each_step_equals_the_complete_line(load, attention):
    model = load("tiny-1.7B", "base", "fp32", attention)
    frames = frames_of(3, 8)
    for line, prompt in enumerate(prompts_of(model)):
        talker = Talker(model, prompt)
        seen = [talker.prefill(), *(talker.step(frames[line : line + 1, step]) for step in range(8))]
        wanted = plain_states(model, prompt, frames[line])[len(prompt.embeds) - 1 :]
        assert torch.allclose(torch.cat([hidden[0] for hidden, _ in seen]), wanted, atol=2e-5)
        scores = torch.cat([logits for _, logits in seen])
        assert torch.allclose(scores, model.talker.codec_head(wanted), atol=2e-5)


@torch.inference_mode()
def test_angles_continue_beyond_the_first_table(load, monkeypatch):
    """The RoPE table grows as a line gets longer."""
    model = load()
    frames = torch.randint(64, (1, 7, 16), generator=torch.Generator().manual_seed(5))

    def spoken() -> list[torch.Tensor]:
        talker = Talker(model, prompts_of(model)[0])
        talker.prefill()
        return [talker.step(frames[:, step])[1] for step in range(7)]

    wanted = spoken()
    monkeypatch.setattr(talker_module, "TABLE_STEP", 2)
    assert all(torch.equal(*pair) for pair in zip(spoken(), wanted, strict=True))


def test_a_frame_is_embedded_as_the_sum_of_all_its_groups(load):
    model = load()
    frames = frames_of(1, 3)[0]
    summed = torch.stack(
        [
            sum(
                (model.talker.code_predictor.model.codec_embedding[group].weight[frame[group + 1]])
                for group in range(15)
            )
            + model.talker.model.codec_embedding.weight[frame[0]]
            for frame in frames
        ]
    )
    assert torch.allclose(embed_frames(model, frames, model.code_tables()), summed, atol=1e-5)


@torch.inference_mode()
def test_nothing_stays_on_the_model(load):
    model = load()
    before = {name: sorted(vars(module)) for name, module in model.network.named_modules()}
    talkers = [Talker(model, prompt) for prompt in prompts_of(model)[:2]]
    frames = frames_of(1, 2)
    for talker in talkers:  # two at once, step by step
        talker.prefill()
    turns = [talker.step(frames[:, step])[1] for step in range(2) for talker in talkers]
    alone = Talker(model, prompts_of(model)[0])
    alone.prefill()
    assert torch.equal(turns[0], alone.step(frames[:, 0])[1])
    assert torch.equal(turns[2], alone.step(frames[:, 1])[1])
    assert {name: sorted(vars(module)) for name, module in model.network.named_modules()} == before
