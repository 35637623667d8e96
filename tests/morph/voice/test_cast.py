"""Voices that are found by name: who comes first, when they are made, and what the report says of them."""

from dataclasses import replace

import pytest
from qwen3_tts_morph.morph.voice.cast import (
    PRESET,
    SAVED,
    given_characters,
    join_characters,
    named_characters,
)
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice, check_voice


def preset(name: str) -> Voice:
    return Voice("preset", "0b6", name, speaker=name)


def test_the_cast_comes_before_saved_voices_and_presets_and_each_is_made_once():
    made: list[str] = []

    def make(name: str) -> Voice:
        made.append(name)
        return preset(name)

    given = preset("mine")
    cast = join_characters(
        given_characters({"Anna": given}),
        named_characters(SAVED, ["anna", "Ben", "a:b"], make),
        named_characters(PRESET, ["BEN", "ryan"], make),
    )
    assert list(cast) == ["Anna", "Ben", "ryan"] and made == [], "no voice is made before a line names it"
    assert cast["Anna"] is given and cast["Ben"] is cast["Ben"] and cast["ryan"].name == "ryan"
    assert made == ["Ben", "ryan"]
    assert cast.describe_found() == "Voices found by name: Ben (saved voice), ryan (preset)."
    assert (cast.spelled("BEN"), cast.spelled("nobody")) == ("Ben", None)


def test_a_character_has_the_moods_of_its_voice():
    cast = join_characters(
        given_characters({"ANNA": preset("Clara"), "BEN": preset("Ben"), "BEN (tired)": preset("x")}),
        named_characters(SAVED, ["Clara (angry)", "clara (sad)", "Ben (tired)", "Ben (sad)", "Eva (sad)"], preset),
    )
    found = [name for name in cast if name not in ("ANNA", "BEN")]
    assert found == ["BEN (tired)", "Clara (angry)", "clara (sad)", "Ben (sad)", "Eva (sad)",
                     "ANNA (angry)", "ANNA (sad)"]  # fmt: skip
    assert cast["ANNA (angry)"].name == "Clara (angry)" and cast["Ben (sad)"].name == "Ben (sad)"
    assert cast.describe_found() == (
        "Voices found by name: ANNA (angry) (saved voice Clara (angry)), Ben (sad) (saved voice)."
    )


def test_nothing_is_said_of_voices_that_were_given():
    cast = join_characters(given_characters({"Anna": preset("x")}), named_characters(SAVED, ["ben"], preset))
    assert cast["Anna"].name == "x" and cast.describe_found() == ""


def test_a_preset_of_any_checkpoint_fits_those_that_have_the_speaker(load):
    anybody = Voice("preset", "", "ryan", speaker="ryan")
    for shape in ("tiny", "tiny-1.7B"):
        model = load(shape, "custom_voice")
        check_voice(model, anybody)
        assert preset_voice(model, "ryan").speaker == anybody.speaker
    with pytest.raises(ValueError, match="speaker 'heart' is unknown to"):
        check_voice(load("tiny", "custom_voice"), Voice("preset", "", "heart", speaker="heart"))
    with pytest.raises(ValueError, match="was made for a"):  # only presets are of any checkpoint
        check_voice(load("tiny", "voice_design"), Voice("design", "", "x", instruct="an old man"))


def test_a_voice_that_says_who_speaks_it_stays_the_same_object():
    model = object()
    anna, ben = (replace(preset(name), by=by) for name, by in (("Anna", model), ("Ben", None)))
    voices = {"ANNA": anna, "BEN": ben}
    cast = join_characters(given_characters(voices), named_characters(SAVED, ["Anna (angry)", "Ben (sad)"], preset))
    spoken = cast.spoken_by({"ANNA": model})
    assert spoken["ANNA"] is anna and spoken["BEN"] is ben
    assert spoken["Anna (angry)"].by is model and spoken["Ben (sad)"].by is None
