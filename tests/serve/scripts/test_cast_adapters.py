"""Characters with adapters of their own: their parts of the cast are marked, and stay as they are otherwise."""

from __future__ import annotations

from qwen3_tts_morph.morph.model.adapter import Adapter
from qwen3_tts_morph.morph.voice.cast import SAVED, Cast, Part
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.scripts.cast_adapters import CastAdapters


def test_a_marked_character_keeps_its_voices_name() -> None:
    voice = Voice("preset", "", "Clara", speaker="heart")
    adapters = CastAdapters({"anna": (Adapter("anna", "0", {}), 1.0)})
    cast = adapters.mark(Cast({"Anna": Part(SAVED, lambda: voice, "Clara")}))
    assert cast["Anna"].by == "anna"
    assert cast.describe_found() == "Voices found by name: Anna (saved voice Clara)."
