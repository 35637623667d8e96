"""Characters with adapters of their own: their parts of the cast are marked, and stay as they are otherwise."""

import pytest
from qwen3_tts_morph.morph.model.adapter import Adapter
from qwen3_tts_morph.morph.voice.cast import GIVEN, SAVED, Cast, Part, join_parts, named_parts
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.scripts.opened import mark_adapters


def test_a_marked_character_keeps_its_voices_name() -> None:
    voice = Voice("preset", "", "Clara", speaker="heart")
    own = {"anna": (Adapter("anna", "0", {}), 1.0)}
    cast = mark_adapters(Cast({"Anna": Part(SAVED, lambda: voice, "Clara")}), own)
    assert cast["Anna"].by == "anna"
    assert cast.describe_found() == "Voices found by name: Anna (saved voice Clara)."


def speaker(name: str) -> Voice:
    return Voice("preset", "", name, speaker="heart")


def test_the_moods_of_a_character_are_spoken_with_its_adapter() -> None:
    saved = ["Anna (angry)", "Clara (sad)", "Ben (sad)", "Clara"]
    anna = {"ANNA": Part(GIVEN, lambda: speaker("Clara"), "Clara")}
    cast = join_parts(anna, named_parts(SAVED, saved, speaker))
    one = (Adapter("one", "0", {}), 1.0)
    by = {name: voice.by for name, voice in mark_adapters(cast, {"anna": one}).items()}
    assert {name for name, who in by.items() if who == "anna"} == {"ANNA", "Anna (angry)", "ANNA (sad)"}
    assert {name for name, who in by.items() if who is None} == {"Clara (sad)", "Ben (sad)", "Clara"}
    both = mark_adapters(cast, {"anna": one, "Anna (Angry)": one})
    assert (both["Anna (angry)"].by, both["ANNA (sad)"].by) == ("Anna (Angry)", "anna")
    with pytest.raises(
        ValueError, match="--cast-lora names 'Eva', who is not in the cast: add --cast Eva=VOICE"
    ):
        mark_adapters(cast, {"Eva": one})
