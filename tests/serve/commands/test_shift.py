"""``voices shift``: from saved voices, recordings and presets; a script picks the mood by its name."""

import json
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.voice.file import load_voice, save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.commands import shift


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / ".qwen3-tts-morph" / "qwen3-tts-voices"
    for name, place in (("Anna", 0), ("Ben angry", 1), ("Ben calm", 2)):
        embedding = torch.zeros(64)
        embedding[place] = 1.0
        save_voice(Voice("x_vector", "0b6", name, embedding), folder / f"{name}.safetensors")
    return folder


MOOD = ("--of", "Anna", "--toward", "Ben angry", "--away", "Ben calm")


def test_saved_voices_are_shifted_without_a_model(run, library, monkeypatch) -> None:
    monkeypatch.setattr(shift, "load_synthesizer", lambda *_: pytest.fail("no model is needed"))
    done = run("voices", "shift", "Anna (angry)", *MOOD, "--strength", "-0.5")
    assert done.code == 0 and done.lines == [str(library / "Anna (angry).safetensors")], done.err
    made = load_voice(Path(done.lines[0]))
    assert made.speaker_embedding[:3].tolist() == [1.0, -0.5, 0.5] and made.name == "Anna (angry)"
    recipe = "Anna - 0.5 * (Ben angry - Ben calm)"
    assert made.recipe == recipe and f"made of: {recipe}" in done.err
    assert f"recipe: {recipe}" in run("voices", "show", "Anna (angry)").lines
    listed = run("voices", "list").lines
    assert any(row.startswith("Anna (angry)") and row.endswith(recipe) for row in listed)
    rows = json.loads(run("voices", "list", "--json").out)
    assert [row["recipe"] for row in rows] == [None, recipe, None, None]
    assert "exists already" in run("voices", "shift", "Anna (angry)", *MOOD).err
    assert not (library / "Anna (angry).pronunciation.txt").exists()
    (library / "Anna.pronunciation.txt").write_text("Nguyen = win", encoding="utf-8")
    assert run("voices", "shift", "Anna (angry)", *MOOD, "--strength", "-0.5", "--overwrite").code == 0
    words = (library / "Anna (angry).pronunciation.txt").read_text(encoding="utf-8")
    assert words == "Nguyen = win\n"
    assert run("voices", "rename", "Anna (angry)", "Anna (cold)").code == 0
    assert load_voice(library / "Anna (cold).safetensors").recipe == recipe


def test_a_script_speaks_with_a_mood_and_says_so(run, library, checkpoints, tmp_path) -> None:
    """ANNA's voice is Clara, and so is her mood; BEN has none, and an instruction is refused as before."""
    (library / "Anna.safetensors").rename(library / "Clara.safetensors")
    assert run("voices", "shift", "Clara (angry)", "--of", "Clara", *MOOD[2:]).code == 0
    (tmp_path / "scene.txt").write_text("ANNA: Good morning.\nANNA (Angry): Get out!\n", encoding="utf-8")
    tiny = ["--checkpoint", checkpoints("base"), "--max-seconds", "0.5", "--retries", "0"]
    done = run("script", "scene.txt", "--cast", "ANNA=Clara", *tiny)
    assert done.code == 0, done.err
    assert "Voices found by name: ANNA (angry) (saved voice Clara (angry))." in done.err
    subtitles = (tmp_path / "scene" / "scene.srt").read_text(encoding="utf-8")
    assert "ANNA: Good morning." in subtitles and "ANNA (angry): Get out!" in subtitles
    (tmp_path / "other.txt").write_text("ANNA (sad): Get out!\n", encoding="utf-8")
    refused = run("script", "other.txt", "--cast", "ANNA=Clara", *tiny)
    assert refused.code == 2 and "does not follow instructions" in refused.err
