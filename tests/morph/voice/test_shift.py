"""Shifted voices: the sum, what it is called, and what cannot be shifted."""

from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.options import SHIFT_STRENGTHS
from qwen3_tts_morph.morph.text.pronunciation import PronunciationList
from qwen3_tts_morph.morph.voice.create import LEAST_SHARE, MOST_SHARE, Shift, blend_voices, preset_voice, shift_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import LONGEST_RECIPE, Voice, check_voice


def clone(name: str, *numbers: float) -> Voice:
    return Voice("x_vector", "0b6", name, speaker_embedding=torch.tensor(numbers))


ANNA, ANGRY, CALM = (
    clone("Anna", 1.0, 0.0, 2.0),
    clone("Ben angry", 3.0, 1.0, 0.0),
    clone("Ben calm", 1.0, 2.0, 0.0),
)


def test_a_shift_adds_a_multiple_of_a_difference():
    made = shift_voice(ANNA, Shift([ANGRY], [CALM], 1.5))
    assert made.kind == "x_vector" and made.model_size == "0b6"
    assert torch.allclose(made.speaker_embedding, torch.tensor([4.0, -1.5, 2.0]))
    assert made.name == made.recipe == "Anna + 1.5 * (Ben angry - Ben calm)"
    back = shift_voice(ANNA, Shift([ANGRY], [CALM], -1))
    assert torch.allclose(back.speaker_embedding, torch.tensor([-1.0, 1.0, 2.0]))
    assert back.recipe == "Anna - 1 * (Ben angry - Ben calm)"
    assert torch.equal(shift_voice(ANNA, Shift([ANGRY], [CALM], 0)).speaker_embedding, ANNA.speaker_embedding)


def test_it_reads_words_as_the_voice_does_that_is_shifted():
    lists = (PronunciationList((("Nguyen", "win"),)),)
    assert shift_voice(replace(ANNA, pronunciation=lists), Shift([ANGRY], [CALM])).pronunciation == lists


def test_it_is_a_blend_with_these_weights():
    made, blend = shift_voice(ANNA, Shift([ANGRY], [CALM], 2)), blend_voices([ANNA, ANGRY, CALM], [1, 2, -2])
    assert torch.equal(made.speaker_embedding, blend.speaker_embedding)
    assert blend.recipe == "100% Anna + 200% Ben angry - 200% Ben calm"
    low, high = SHIFT_STRENGTHS
    for strength in (low, high):  # also of the voice itself, all shares are those that a blend may have
        shift_voice(ANGRY, Shift([ANGRY], [CALM], strength))
        assert min(1 + strength, -strength) >= LEAST_SHARE and max(1 + strength, -strength) <= MOST_SHARE


def test_means_of_several_are_taken_and_named():
    other = clone("Eva angry", 5.0, 1.0, 4.0)
    made = shift_voice(ANNA, Shift([ANGRY, other], [CALM], 0.5))
    assert torch.allclose(made.speaker_embedding, torch.tensor([2.5, -0.5, 3.0]))
    assert made.recipe == "Anna + 0.5 * (mean(Ben angry, Eva angry) - Ben calm)"


def test_a_recipe_names_saved_voices_and_has_others_in_parentheses():
    made = shift_voice(ANNA, Shift([ANGRY], [CALM]))
    again = shift_voice(made, Shift([ANGRY], [CALM], 0.5))
    assert again.recipe == "(Anna + 1 * (Ben angry - Ben calm)) + 0.5 * (Ben angry - Ben calm)"
    saved = shift_voice(replace(made, name="Anna (angry)"), Shift([ANGRY], [CALM], 0.5))
    assert saved.recipe == "Anna (angry) + 0.5 * (Ben angry - Ben calm)"
    for _ in range(30):
        made = shift_voice(made, Shift([ANGRY], [CALM], 0.01))
    assert len(made.recipe) == len(made.name) == LONGEST_RECIPE


@pytest.mark.parametrize(
    ("toward", "away", "strength", "sentence"),
    [
        ([], [CALM], 1, "needs voices to go toward"),
        ([ANGRY], [], 1, "needs voices to go toward"),
        ([ANGRY], [CALM], 3.1, "strength is 3.1: choose -2 to 3"),
        ([ANGRY], [CALM], float("nan"), "strength is nan"),
        ([ANGRY], [CALM], "1", "strength is '1': choose -2 to 3"),
        ([ANGRY], [replace(ANGRY, name="x")], 1, "Ben angry and x have the same speaker embedding"),
        ([ANGRY], [Voice("x_vector", "1b7", "big", speaker_embedding=torch.ones(4))], 1, "cannot be blended"),
        ([ANGRY], [Voice("design", "0b6", "told", instruct="an old man")], 1, "has no speaker embedding"),
    ],
)
def test_what_cannot_be_shifted_is_refused(toward, away, strength, sentence):
    with pytest.raises(ValueError, match=sentence):
        shift_voice(ANNA, Shift(toward, away, strength))


def test_presets_are_shifted_where_blends_are_spoken(load):
    model = load("tiny", "custom_voice")
    one, two, three = (preset_voice(model, name) for name in model.speakers[:3])
    made = shift_voice(one, Shift([two], [three], 0.5), model)
    assert made.kind == "blend" and made.speakers == (one.name, two.name, three.name)
    check_voice(model, made)
    still = shift_voice(one, Shift([two], [three], 0.0), model)
    assert torch.equal(PromptBuilder(model).build("Yes.", still).embeds, PromptBuilder(model).build("Yes.", one).embeds)
    with pytest.raises(ValueError, match=r"\(CustomVoice\) cannot be blended with cloned voices"):
        shift_voice(one, Shift([clone("a", 1.0)], [clone("b", 2.0)]), model)
    with pytest.raises(ValueError, match="needs its checkpoint: connect Load Qwen3-TTS Model to model"):
        shift_voice(one, Shift([two], [three]))
