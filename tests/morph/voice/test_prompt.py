"""Prompts against upstream's: what its own ``generate_*`` hand to the talker, bit for bit."""

import pytest
import torch
from qwen3_tts_morph.morph.options import Sampling
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, design_voice, preset_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice

from lab.upstream.over import upstream_of, wrap
from lab.upstream.package import import_qwen_tts
from tests.morph.decoding import CHECKPOINT_OF, prompts_of

TEXTS = [
    "a",
    "Hello there.",
    "今天天气很好。",
    "The quick brown fox jumps over the lazy dog; twice, they say.",
]


class Handed(Exception):
    """Carries what upstream handed to the talker."""


def upstream_prompt(model, text: str, voice: Voice, language: str, instruct: str | None):
    """Upstream's ``inputs_embeds`` and trailing text for one line, and its padding embedding."""

    def catch(**handed):
        raise Handed(handed["inputs_embeds"], handed["trailing_text_hidden"], handed["tts_pad_embed"])

    upstream = upstream_of(model)
    upstream.talker.generate = catch
    wrapper = wrap(model, upstream)
    with pytest.raises(Handed) as caught:
        if voice.kind == "preset":
            wrapper.generate_custom_voice(text, voice.speaker, language, instruct)
        elif voice.kind == "design":
            wrapper.generate_voice_design(text, instruct, language)
        else:
            item = import_qwen_tts().VoiceClonePromptItem(
                ref_code=voice.ref_codes,
                ref_spk_embedding=voice.speaker_embedding,
                x_vector_only_mode=voice.kind == "x_vector",
                icl_mode=voice.kind == "icl",
                ref_text=voice.transcript,
            )
            wrapper.generate_voice_clone(text, language, voice_clone_prompt=[item])
    return [tensor[0] for tensor in caught.value.args]


def assert_same_prompt(model, text, voice, language, instruct):
    embeds, trailing, pad = upstream_prompt(model, text, voice, language, instruct or voice.instruct)
    ours = PromptBuilder(model).build(text, voice, language, instruct)
    assert ours.embeds.dtype == model.dtype
    assert torch.equal(ours.embeds, embeds)
    assert len(ours.trailing) == len(trailing) and torch.equal(ours.text_rows, trailing)
    assert torch.equal(ours.pad, pad)
    assert ours.text_tokens == len(model.texts.plain(text))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("language", ["auto", "Chinese", pytest.param("english", marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["x_vector", "icl"])
def test_cloned_voices(load, recording, mode, language, text, precision):
    model = load("tiny-1.7B", "base", precision)
    voice = clone_voice(model, recording, 24000, CloneOptions(mode, "a tone that rises"))
    assert_same_prompt(model, text, voice, language, None)


@pytest.mark.parametrize(("frames", "trails"), [(3, 14), (16, 1), (17, 1), (40, 1)])
def test_a_reference_shorter_or_longer_than_the_texts(load, recording, frames, trails):
    """Text (18 tokens with its end) beyond the reference (and bos) trails; a longer reference gets padding."""
    model = load("tiny", "base")
    voice = clone_voice(model, recording, 24000)
    codes = torch.randint(64, (frames, 16), generator=torch.Generator().manual_seed(0))
    icl = Voice("icl", model.size, "x", voice.speaker_embedding, codes, "ten tokens")
    assert_same_prompt(model, "and six", icl, "german", None)
    prompt = PromptBuilder(model).build("and six", icl, "german")
    assert len(prompt.trailing) == trails
    assert torch.equal(prompt.text_rows, prompt.pad) == (frames >= 17)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("language", ["auto", "chinese", "english"])
@pytest.mark.parametrize("speaker", ["ryan", "eric"])  # eric speaks a dialect
def test_preset_voices(load, speaker, language, text):
    model = load("tiny-1.7B", "custom_voice")
    assert_same_prompt(model, text, preset_voice(model, speaker), language, None)


def test_an_instruction_of_the_line_overrides_the_voices_own(load):
    model = load("tiny-1.7B", "custom_voice")
    voice = preset_voice(model, "ryan", "whispering")
    assert_same_prompt(model, "Hi there.", voice, "auto", None)
    assert_same_prompt(model, "Hi there.", voice, "auto", "shouting out loud")
    bare = PromptBuilder(model).build("Hi there.", preset_voice(model, "ryan"))
    assert torch.equal(PromptBuilder(model).build("Hi there.", voice, "auto", "").embeds, bare.embeds)


def test_lines_that_share_what_they_can_have_the_prompts_of_lines_alone(load, recording, monkeypatch):
    model = load("tiny", "base")
    builder = PromptBuilder(model)
    projected = []
    project = type(model.talker.text_projection).forward
    monkeypatch.setattr(
        type(model.talker.text_projection),
        "forward",
        lambda self, states: projected.append(states.shape[1]) or project(self, states),
    )
    for turn in range(2):
        for mode, language in (("icl", "german"), ("x_vector", "german"), ("x_vector", "auto")):
            for number in range(2):  # without other references: a new voice may get the address, and id, of a freed one
                voice = clone_voice(model, recording * (1 - number / 2), 24000, CloneOptions(mode, "a tone that rises"))
                projected.clear()
                shared = builder.build(f"Hi there, {turn}.", voice, language)
                assert len(projected) <= 2 or (not turn and not number)
                alone = PromptBuilder(model).build(f"Hi there, {turn}.", voice, language)
                for part in ("embeds", "text_rows", "pad"):
                    assert torch.equal(getattr(shared, part), getattr(alone, part))


@pytest.mark.parametrize("language", ["auto", "german"])
def test_designed_voices(load, language):
    model = load("tiny-1.7B", "voice_design")
    assert_same_prompt(model, "Hi there.", design_voice(model, "old, calm"), language, None)


def test_a_dialect_is_spoken_only_by_its_speaker_and_not_in_other_languages(load):
    model = load("tiny", "custom_voice")
    ids = model.config.talker_config.codec_language_id
    table = model.talker.model.codec_embedding.weight

    def language_row(speaker: str, language: str) -> torch.Tensor:
        prompt = PromptBuilder(model).build("Hi.", preset_voice(model, speaker), language)
        return prompt.embeds[5] - prompt.pad[0]  # role, think, think_bos, then the language

    for speaker, language, spoken in [
        ("eric", "auto", "sichuan_dialect"),
        ("eric", "Chinese", "sichuan_dialect"),
        ("eric", "english", "english"),
        ("ryan", "chinese", "chinese"),
    ]:
        assert torch.allclose(language_row(speaker, language), table[ids[spoken]], atol=1e-6)


@pytest.mark.parametrize("language", ["klingon", "", "sichuan_dialect"])
def test_an_unknown_language_is_refused_with_the_list(load, language):
    model = load()
    voice = Voice("x_vector", model.size, speaker_embedding=torch.ones(model.width))
    with pytest.raises(ValueError, match=r"is unknown to tiny-base: choose one of auto, .*english"):
        PromptBuilder(model).build("Hi.", voice, language)
    named = [PromptBuilder(model).build("Hi.", voice, name).embeds for name in ("english", " English ")]
    assert torch.equal(*named)


def test_a_text_beyond_the_context_is_refused_with_the_fix(load, recording, monkeypatch):
    model = load()
    voice = clone_voice(model, recording, 24000)
    prompt = PromptBuilder(model).build("x" * 50, voice)
    needed = len(prompt.embeds) + len(prompt.trailing)
    monkeypatch.setattr(model.config.talker_config, "max_position_embeddings", needed)
    with pytest.raises(ValueError, match=f"needs {needed} positions and .* has {needed}: split it"):
        PromptBuilder(model).build("x" * 50, voice)
    monkeypatch.setattr(model.config.talker_config, "max_position_embeddings", needed + 1)
    assert len(PromptBuilder(model).build("x" * 50, voice).embeds) == len(prompt.embeds)


def test_an_icl_voice_without_codes_cannot_be_made():
    with pytest.raises(ValueError, match="has no reference codes"):
        Voice("icl", "0b6", "x", torch.zeros(4), None, "words")


def test_the_default_sampling_fits_into_the_context(load):
    """After any accepted prompt, 8192 frames must fit into the context."""
    assert Sampling().max_frames < load().config.talker_config.max_position_embeddings


def test_what_only_a_line_has_is_projected_when_it_is_read(load, recording):
    model = load("tiny", "base")
    builder = PromptBuilder(model)
    voice = clone_voice(model, recording, 24000, CloneOptions("x_vector"))
    builder.build("Hi.", voice)  # what lines have in common is made
    projected = []
    hook = model.talker.text_projection.register_forward_hook(
        lambda module, given, made: projected.append(made.shape[1])
    )
    prompt = builder.build("Hello there.", voice)
    assert not projected
    assert len(prompt.embeds) == prompt.length
    assert projected == [1]
    rows = prompt.text_rows
    assert len(projected) == 2 and len(rows) == len(prompt.trailing) == prompt.text_tokens
    prompt.make_rows()
    assert prompt.text_rows is rows and len(projected) == 2
    hook.remove()


@pytest.mark.parametrize("kind", list(CHECKPOINT_OF))
def test_a_prompt_knows_its_length_before_it_is_made(load, recording, kind):
    model = load("tiny", CHECKPOINT_OF[kind])
    for prompt in prompts_of(model, kind, recording=recording):
        assert prompt.length == len(prompt.embeds) and len(prompt.trailing) == len(prompt.text_rows)
