"""Shift Voice in a real ComfyUI: the sum, its recipe in the saved file, and a script that is spoken with the mood."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from qwen3_tts_morph.morph.voice.file import load_voice

from tests.comfy import graphs
from tests.comfy.graphs import Graph, node, shown

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

RECIPE = "Clara + 1.5 * (Ben - Clara)"


def saved(voice: str, name: str) -> dict[str, Any]:
    return node("MorphTTSSaveVoice", voice=[voice, 0], name=name, overwrite=True)


def shifting(**more: Any) -> Graph:
    """Return a graph that clones two voices, saves them as Clara and Ben, and saves Clara's mood."""
    other = {"model": ["model", 0], "audio": ["other recording", 0], "mode": "x-vector"}
    given = {"voice": ["clara", 0], "toward": ["ben", 0], "away": ["clara", 0], "strength": 1.5}
    return graphs.cloned_voice() | {
        "other recording": node("LoadAudio", audio=graphs.OTHER_RECORDING),
        "other": node("MorphTTSCloneVoice", **other),
        "clara": saved("voice", "Clara"),
        "ben": saved("other", "Ben"),
        "shift": node("MorphTTSShiftVoice", **(given | more)),
        "mood": saved("shift", "Clara (angry)"),
    }


def test_a_mood_is_made_saved_and_spoken_with(server: ComfyServer, library: Path) -> None:
    result = server.run(shifting())
    assert result.ok, result.error
    assert shown(result, "shift") == RECIPE
    clara, ben, mood = (load_voice(library / f"{name}.safetensors") for name in ("Clara", "Ben", "Clara (angry)"))
    first, second, made = (one.speaker_embedding.numpy() for one in (clara, ben, mood))
    assert np.allclose(made, first + 1.5 * (second - first), rtol=1e-5, atol=1e-5)
    assert (mood.kind, mood.name, mood.recipe) == ("x_vector", "Clara (angry)", RECIPE)
    script = graphs.render_script("ANNA: Good morning.\nANNA (Angry): Get out!\n")
    spoken = server.run({
        "model": graphs.load_model(),
        "sampling": graphs.sampling(),
        "clara": node("MorphTTSLoadVoice", name="Clara"),
        "mood": node("MorphTTSLoadVoice", name="Clara (angry)"),
        "seen": node("MorphTTSCast", name="EVA", voice=["mood", 0]),
        "cast": node("MorphTTSCast", name="ANNA", voice=["clara", 0], cast=["seen", 0]),
        "script": script,
        "report": node("PreviewAny", source=["script", 3]),
    })  # fmt: skip
    assert spoken.ok, spoken.error
    assert shown(spoken, "mood") == RECIPE
    report = shown(spoken, "report")
    assert "Voices found by name: ANNA (angry) (saved voice Clara (angry))." in report
    assert "ANNA (angry)" in report.partition("2. ")[2].splitlines()[0]


def test_the_means_of_pairs_are_taken_and_nothing_is_refused_with_a_sentence(server, library) -> None:
    result = server.run(shifting(toward_2=["clara", 0], away_3=["ben", 0], strength=-2.0))
    assert not result.ok and "have the same speaker embedding" in result.error["exception_message"]
    result = server.run(shifting(toward_3=["clara", 0]))
    assert result.ok and shown(result, "shift") == "Clara + 1.5 * (mean(Ben, Clara) - Clara)"
