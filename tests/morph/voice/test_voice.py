"""Voices: the same sound gives the same voice in any format, and unusable input is refused with a clear error."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.codec.stream import encode_waveform
from qwen3_tts_morph.morph.voice.create import (
    CUT_OFF,
    CloneOptions,
    blend_voices,
    clone_voice,
    design_voice,
    preset_voice,
)
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice, check_voice

from tests.morph.voice.made_speech import RATE as MADE_RATE
from tests.morph.voice.made_speech import hush, phrase

RATE = 24000


@pytest.fixture
def base(load):
    return load("tiny", "base")


def smooth(seconds: float, rate: int) -> np.ndarray:
    """The same sound at any rate: a few partials, all far below 8 kHz."""
    time = np.arange(round(seconds * rate)) / rate
    return sum(0.1 * np.sin(2 * np.pi * f * time + f) for f in (180, 430, 990, 2100)).astype(np.float32)


def embedding(model, waveform, rate) -> torch.Tensor:
    vector = clone_voice(model, waveform, rate).speaker_embedding
    assert vector is not None and vector.shape == (model.width,) and vector.device.type == "cpu"
    return vector.float()


@pytest.mark.parametrize("rate", [16000, 48000])
def test_the_rate_of_a_recording_hardly_changes_its_embedding(base, rate):
    ours = embedding(base, smooth(2, rate), rate)
    reference = embedding(base, smooth(2, RATE), RATE)
    assert torch.cosine_similarity(ours, reference, dim=0) > 0.99
    # Resampling is what makes them equal: read at a wrong rate, the same samples are another voice.
    unread = embedding(base, smooth(2, rate), RATE)
    assert torch.cosine_similarity(ours, reference, dim=0) > torch.cosine_similarity(unread, reference, dim=0)


def test_channels_are_mixed_down(base, recording):
    mono = embedding(base, recording, RATE)
    assert torch.allclose(embedding(base, np.stack([recording, recording]), RATE), mono, atol=1e-6)
    assert torch.allclose(embedding(base, np.stack([2 * recording, 0 * recording]), RATE), mono, atol=1e-5)
    assert not torch.allclose(embedding(base, recording[::-1].copy(), RATE), mono, atol=1e-3)


@pytest.mark.parametrize(
    ("waveform", "sentence"),
    [
        (np.zeros(RATE * 2), "silent"),
        (np.full(RATE * 2, 1e-4), "silent"),
        (np.full(RATE * 2, np.nan), "NaN or infinite"),
        (np.concatenate([np.ones(RATE), [np.inf]]), "NaN or infinite"),
        (np.zeros(0), "0.00 s long: give at least 1 s"),
        (np.ones(RATE - 1), "give at least 1 s"),
        (np.ones((1, 2, RATE)), "one recording"),
    ],
)
def test_unusable_recordings_are_refused(base, waveform, sentence):
    with pytest.raises(ValueError, match=f"reference.*{sentence}"):
        clone_voice(base, waveform, RATE)


def test_a_sample_rate_must_be_one(base, recording):
    with pytest.raises(ValueError, match="at 0 Hz"):
        clone_voice(base, recording, 0)


@pytest.mark.parametrize("transcript", [None, "", "  \n"])
def test_icl_needs_a_transcript(base, recording, transcript):
    with pytest.raises(ValueError, match=r"transcript is empty.*or use x-vector"):
        clone_voice(base, recording, RATE, CloneOptions("icl", transcript))


def test_an_unknown_mode_is_refused(base, recording):
    with pytest.raises(ValueError, match="mode is 'quick': choose one of x_vector, icl"):
        clone_voice(base, recording, RATE, CloneOptions("quick"))


@pytest.mark.parametrize(("kind", "words"), [("custom_voice", "CustomVoice"), ("voice_design", "VoiceDesign")])
def test_only_base_checkpoints_clone(load, recording, kind, words):
    with pytest.raises(ValueError, match=f"{words} checkpoint and cannot clone.*load a Base"):
        clone_voice(load("tiny-1.7B", kind), recording, RATE)


def test_voices_that_a_checkpoint_cannot_have_are_refused(load, base):
    with pytest.raises(ValueError, match="no preset speakers: load a CustomVoice"):
        preset_voice(base, "ryan")
    with pytest.raises(ValueError, match=r"speaker 'nobody' is unknown.*aiden, dylan.*vivian"):
        preset_voice(load("tiny", "custom_voice"), "nobody")
    with pytest.raises(ValueError, match=r"needs a VoiceDesign checkpoint.*is Base"):
        design_voice(base, "an old man")
    with pytest.raises(ValueError, match="description is empty"):
        design_voice(load("tiny-1.7B", "voice_design"), "  ")


def test_instructions_only_where_they_are_followed(load):
    small, large = load("tiny", "custom_voice"), load("tiny-1.7B", "custom_voice")
    with pytest.raises(ValueError, match="does not follow instructions"):
        preset_voice(small, "ryan", "whispering")
    assert preset_voice(small, "ryan", "  ").instruct is None
    assert preset_voice(large, "ryan", " whispering ").instruct == "whispering"
    with pytest.raises(ValueError, match="does not follow instructions"):
        check_voice(small, preset_voice(small, "ryan"), "whispering")
    check_voice(large, preset_voice(large, "ryan"), "whispering")


@pytest.mark.parametrize("mode", ["x_vector", "icl"])
@pytest.mark.parametrize("size", ["tiny", "tiny-1.7B"])
def test_a_clone_takes_no_instruction(load, recording, mode, size):
    """Neither on a Base checkpoint of any size, nor on one that follows instructions: that has no place for a clone."""
    base = load(size, "base")
    clone = clone_voice(base, recording, RATE, CloneOptions(mode, "A tone."))
    with pytest.raises(ValueError, match=r"does not follow instructions .*: clear .* a mood with Shift Voice"):
        check_voice(base, clone, "whispering")
    with pytest.raises(ValueError, match=r"needs a Base checkpoint .* is CustomVoice"):
        check_voice(load(size, "custom_voice"), clone, "whispering")


def test_voices_stay_with_their_model_size_and_kind(load, base, recording):
    voice = clone_voice(base, recording, RATE, CloneOptions(name="Anna"))
    check_voice(base, voice)
    with pytest.raises(ValueError, match=r"'Anna' was made for a 0\.6B model and .* is 1\.7B"):
        check_voice(load("tiny-1.7B", "base"), voice)
    with pytest.raises(ValueError, match=r"'Anna' \(x_vector\) needs a Base checkpoint .* is CustomVoice"):
        check_voice(load("tiny", "custom_voice"), voice)
    designed = design_voice(load("tiny-1.7B", "voice_design"), "an old man")
    with pytest.raises(ValueError, match="needs a VoiceDesign checkpoint"):
        check_voice(load("tiny-1.7B", "base"), designed)
    stranger = Voice("preset", "0b6", speaker="nobody")
    with pytest.raises(ValueError, match="'nobody' is unknown"):
        check_voice(load("tiny", "custom_voice"), stranger)


def test_padding_adds_frames_only_if_requested(base, recording):
    def clone(**options) -> Voice:
        return clone_voice(base, recording, RATE, CloneOptions("icl", " a tone ", **options))

    plain, padded = clone(), clone(pad_silence=True)
    assert plain.kind == "icl" and plain.transcript == "a tone"
    assert plain.ref_codes is not None and padded.ref_codes is not None
    assert plain.ref_codes.dtype == torch.int64 and plain.ref_codes.shape == (25, 16)
    assert len(padded.ref_codes) == 32  # 2.5 s at 12.5 a second, the last one begun
    assert torch.equal(plain.ref_codes, encode_waveform(base, recording))
    # The embedding does not include the padding.
    assert torch.equal(plain.speaker_embedding, padded.speaker_embedding)
    assert clone_voice(base, recording, RATE, CloneOptions("x_vector", "a tone")).ref_codes is None


def test_a_reference_that_ends_within_its_speech_is_noted_where_it_matters(base):
    made = np.concatenate([hush(0.5), phrase(1.1), hush(0.4), phrase(1.0)])

    def notes(sound: np.ndarray, mode: str = "icl", **options) -> tuple[str, ...]:
        return clone_voice(base, sound, MADE_RATE, CloneOptions(mode, "a tone", **options)).notes

    assert notes(made) == (CUT_OFF,)
    assert notes(made, pad_silence=True) == notes(np.concatenate([made, hush(0.3)])) == ()
    assert notes(made, "x_vector") == ()


def test_blends_are_weighted_means():
    one = Voice("x_vector", "0b6", "A", speaker_embedding=torch.tensor([1.0, 0.0, 4.0]))
    two = Voice("icl", "0b6", "B", torch.tensor([0.0, 2.0, 8.0]), torch.zeros(3, 16, dtype=torch.int64), "words")
    blend = blend_voices([one, two], [3, 1])
    assert torch.allclose(blend.speaker_embedding, torch.tensor([0.75, 0.5, 5.0]))
    assert (blend.kind, blend.model_size, blend.ref_codes, blend.transcript) == (
        "x_vector",
        "0b6",
        None,
        None,
    )
    assert blend.name == "75% A + 25% B"
    assert torch.equal(blend_voices([one, two], [0.2, 0]).speaker_embedding, one.speaker_embedding)
    half = Voice("x_vector", "0b6", speaker_embedding=torch.ones(3, dtype=torch.bfloat16))
    assert blend_voices([half, half], [1, 2]).speaker_embedding.dtype == torch.bfloat16


def test_weights_below_0_go_beyond_the_other_voices():
    one = Voice("x_vector", "0b6", "A", speaker_embedding=torch.tensor([1.0, 0.0, 4.0]))
    two = Voice("x_vector", "0b6", "B", speaker_embedding=torch.tensor([0.0, 2.0, 8.0]))
    beyond = blend_voices([one, two], [3, -1])
    assert torch.allclose(beyond.speaker_embedding, torch.tensor([1.5, -1.0, 2.0]))
    assert beyond.name == beyond.recipe == "150% A - 50% B"
    assert blend_voices([two, one], [-1, 3]).recipe == "- 50% B + 150% A"


@pytest.mark.parametrize(
    "weights", [[0, 0], [1, -1], [-2, 1], [1, -0.9], [1, float("nan")], [float("inf"), 1], [1e308, 1e308]]
)
def test_weights_that_make_no_mean_are_refused(weights):
    voice = Voice("x_vector", "0b6", speaker_embedding=torch.ones(3))
    with pytest.raises(ValueError, match="weights are"):
        blend_voices([voice, voice], weights)


def test_voices_that_cannot_be_blended_are_refused():
    small = Voice("x_vector", "0b6", "A", speaker_embedding=torch.ones(3))
    large = Voice("x_vector", "1b7", "B", speaker_embedding=torch.ones(4))
    preset = Voice("preset", "0b6", "ryan", speaker="ryan")
    with pytest.raises(ValueError, match=r"0.6B, 1.7B.*cannot be blended"):
        blend_voices([small, large], [1, 1])
    for given in ([small, preset], [preset, preset]):
        with pytest.raises(
            ValueError, match=r"'ryan' \(preset\) needs its checkpoint: connect Load Qwen3-TTS Model to model"
        ):
            blend_voices(given, [1, 1])
    designed = Voice("design", "0b6", "designed voice", instruct="an old man")
    with pytest.raises(ValueError, match=r"\(design\) has no speaker embedding: save speech of it and clone that"):
        blend_voices([small, designed], [1, 1])
    wide = Voice("x_vector", "0b6", "C", speaker_embedding=torch.ones(4))
    with pytest.raises(ValueError, match="have 3 and 4 numbers cannot be blended: make them with one model"):
        blend_voices([small, wide], [1, 1])
    with pytest.raises(ValueError, match="two or more"):
        blend_voices([small], [1])
    with pytest.raises(ValueError, match="2 voices and 1 weights"):
        blend_voices([small, small], [1])


def test_presets_blend_into_a_voice_that_is_spoken_as_presets_are(load):
    model = load("tiny", "custom_voice")
    one, other = (preset_voice(model, name) for name in model.speakers[:2])
    blend = blend_voices([one, other], [3, 1], model)
    table, ids = model.talker.model.codec_embedding.weight, model.config.talker_config.spk_id
    mean = 0.75 * table[ids[one.speaker]].float() + 0.25 * table[ids[other.speaker]].float()
    assert torch.allclose(blend.speaker_embedding.float(), mean)
    assert (blend.kind, blend.speakers) == ("blend", (one.speaker, other.speaker))
    check_voice(model, blend)
    alone = blend_voices([one, one], [1, 1], model)
    assert torch.equal(
        PromptBuilder(model).build("Hello.", alone).embeds, PromptBuilder(model).build("Hello.", one).embeds
    ), "of one preset alone the prompt is the preset's"
    again = blend_voices([blend, one], [1, 1], model)
    assert again.kind == "blend" and set(again.speakers) == set(blend.speakers)


def test_a_blend_of_presets_needs_a_checkpoint_that_has_them(load):
    model = load("tiny", "custom_voice")
    blend = blend_voices([preset_voice(model, name) for name in model.speakers[:2]], [1, 1], model)
    with pytest.raises(ValueError, match="has no preset speakers"):
        check_voice(load("tiny", "base"), blend)
    with pytest.raises(ValueError, match="speaker 'nobody' is unknown"):
        check_voice(model, replace(blend, speaker="ryan + nobody"))


def test_presets_and_clones_are_blended_where_one_base_checkpoint_has_both(load, monkeypatch):
    model, custom = load("tiny", "base"), load("tiny", "custom_voice")
    clone = Voice("x_vector", model.size, "A", speaker_embedding=torch.ones(model.width, dtype=model.dtype))
    with pytest.raises(ValueError, match=r"\(CustomVoice\) cannot be blended with cloned voices"):
        blend_voices([clone, preset_voice(custom, "ryan")], [1, 1], custom)
    monkeypatch.setattr(model.config.talker_config, "spk_id", {"anna": 500})
    anna = preset_voice(model, "anna")
    blend = blend_voices([clone, anna], [1, 1], model)
    row = model.talker.model.codec_embedding.weight[500]
    assert blend.kind == "x_vector" and blend.speaker is None
    assert torch.allclose(blend.speaker_embedding, (row + clone.speaker_embedding) / 2)
    check_voice(model, blend)


def test_presets_with_different_instructions_are_not_blended(load):
    model = load("tiny-1.7B", "custom_voice")
    plain, soft = preset_voice(model, "ryan"), preset_voice(model, "ryan", "softly")
    with pytest.raises(ValueError, match="have different instructions"):
        blend_voices([plain, soft], [1, 1], model)
    assert blend_voices([soft, soft], [1, 1], model).instruct == "softly"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kind": "song"}, "voice kind is 'song'"),
        ({"kind": "x_vector"}, "no speaker embedding"),
        ({"kind": "icl", "speaker_embedding": torch.ones(3)}, r"\(icl\) has no reference codes"),
    ],
)
def test_half_voices_cannot_be_made(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        Voice(model_size="0b6", **fields)


def test_a_fine_tuned_speaker_is_found_in_any_case(load, monkeypatch):
    model = load("tiny", "custom_voice")
    tuned = {**model.config.talker_config.spk_id, "My_Voice": 500}
    monkeypatch.setattr(model.config.talker_config, "spk_id", tuned)
    assert "My_Voice" in model.speakers
    for spelled in ("my_voice", "MY_VOICE", " My_Voice "):
        voice = preset_voice(model, spelled)
        assert voice.speaker.lower() == "my_voice"
        told = PromptBuilder(model).build("Hello.", voice).embeds
        assert not torch.equal(told, PromptBuilder(model).build("Hello.", preset_voice(model, "ryan")).embeds)
    assert preset_voice(model, "RYAN").speaker == "ryan"


def test_a_fine_tuned_base_speaks_with_its_speaker(load, monkeypatch):
    """Fine-tuning a Base checkpoint gives it one speaker, and upstream's kind custom_voice or base."""
    model = load("tiny", "base")
    monkeypatch.setattr(model.config.talker_config, "spk_id", {"anna": 500})
    assert preset_voice(model, "Anna").kind == "preset"
