"""Characters with adapters of their own: their parts of the cast are marked, and stay as they are otherwise."""

import pytest
from qwen3_tts_morph.morph.voice.cast import GIVEN, SAVED, Cast, Character, join_characters, named_characters
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.scripts.backend import mark_adapters


def test_a_marked_character_keeps_its_voices_name() -> None:
    voice = Voice("preset", "", "Clara", speaker="heart")
    cast = mark_adapters(Cast({"Anna": Character(SAVED, lambda: voice, "Clara")}), ["anna"])
    assert cast["Anna"].by == "anna"
    assert cast.describe_found() == "Voices found by name: Anna (saved voice Clara)."


def speaker(name: str) -> Voice:
    return Voice("preset", "", name, speaker="heart")


def test_the_moods_of_a_character_are_spoken_with_its_adapter() -> None:
    saved = ["Anna (angry)", "Clara (sad)", "Ben (sad)", "Clara"]
    anna = {"ANNA": Character(GIVEN, lambda: speaker("Clara"), "Clara")}
    cast = join_characters(anna, named_characters(SAVED, saved, speaker))
    by = {name: voice.by for name, voice in mark_adapters(cast, ["anna"]).items()}
    assert {name for name, who in by.items() if who == "anna"} == {"ANNA", "Anna (angry)", "ANNA (sad)"}
    assert {name for name, who in by.items() if who is None} == {"Clara (sad)", "Ben (sad)", "Clara"}
    both = mark_adapters(cast, ["anna", "Anna (Angry)"])
    assert (both["Anna (angry)"].by, both["ANNA (sad)"].by) == ("Anna (Angry)", "anna")
    with pytest.raises(ValueError, match="--cast-lora names 'Eva', who is not in the cast: add --cast Eva=VOICE"):
        mark_adapters(cast, ["Eva"])
