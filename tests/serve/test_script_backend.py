"""Lines as JSON: where they end, and what is said of bad ones. Characters with adapters of their own are marked."""

import json

import pytest
from qwen3_tts_morph.morph.voice.cast import GIVEN, SAVED, Cast, Character, join_characters, named_characters
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.script_backend import mark_adapters, parse_lines


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_other_line_breaks_may_be_in_a_string(end: str) -> None:
    texts = ["One\u2028two.", "Three\x85four.", "Five\u2029six."]
    rows = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    lines = parse_lines(end.join([*rows, ""]))[0].lines
    assert [(line.number, line.text) for line in lines] == list(enumerate(texts, start=1))


@pytest.mark.parametrize("key", ["text", "voice", "name", "language", "instruct"])
def test_half_a_character_is_named_with_its_line_and_key(key: str) -> None:
    text = '{"text": "Hello."}\n' + json.dumps({"text": "Hello."} | {key: "An\ud83d"})
    with pytest.raises(ValueError, match=f"line 2: {key} contains half a character"):
        parse_lines(text)


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
