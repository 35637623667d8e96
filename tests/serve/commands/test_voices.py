"""``voices``: the library of saved voices."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.voice.file import load_voice, save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.commands import voices
from qwen3_tts_morph.serve.terminal import console
from qwen3_tts_morph.serve.terminal.console import Console


@pytest.fixture
def comfyui(tmp_path: Path) -> Path:
    """Return a ComfyUI with two voices in its library."""
    library = tmp_path / "ComfyUI" / "models" / "qwen3-tts-voices"
    embedding = torch.arange(64, dtype=torch.float32) / 64
    save_voice(Voice("x_vector", "0b6", "Anna", embedding), library / "Anna.safetensors")
    codes = torch.zeros(25, 16, dtype=torch.int64)
    words = "Good morning, " * 10
    save_voice(Voice("icl", "0b6", "Bob", embedding, codes, words), library / "Bob.safetensors")
    (library / "other.safetensors").write_bytes(b"not a voice")
    return tmp_path / "ComfyUI"


def test_the_library_is_listed(run: Callable, comfyui: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("voices", "list", "--comfyui", comfyui)
    assert done.code == 0 and [line.split()[:3] for line in done.lines] == [
        ["Anna", "x_vector", "0.6B"],
        ["Bob", "icl", "0.6B"],
    ]
    assert done.lines[1].endswith("...")
    monkeypatch.setenv("COMFYUI_DIR", str(comfyui))
    rows = json.loads(run("voices", "list", "--json").out)
    assert [row["name"] for row in rows] == ["Anna", "Bob"] and rows[1]["reference_seconds"] == 2.0


def test_an_empty_library_says_so_and_prints_nothing(run: Callable) -> None:
    done = run("voices", "list")
    assert done.code == 0 and not done.out and "has no voices: save one with clone" in done.err


def test_a_voice_is_shown(run: Callable, comfyui: Path) -> None:
    done = run("voices", "show", "Anna", "--comfyui", comfyui)
    assert done.lines[:4] == ["name: Anna", "kind: x_vector", "model: 0.6B", "fits: 0.6B Base"]
    unknown = run("voices", "show", "Carl", "--comfyui", comfyui)
    assert unknown.code == 2 and "voice 'Carl' is not in" in unknown.err
    assert "choose one of Anna, Bob" in unknown.err


def test_a_voice_is_saved_from_a_file_and_from_a_preset(run, comfyui, checkpoints) -> None:
    library = comfyui / "models" / "qwen3-tts-voices"
    done = run("voices", "save", "Carl", "--voice", library / "Anna.safetensors", "--comfyui", comfyui)
    assert done.code == 0 and load_voice(library / "Carl.safetensors").name == "Carl", done.err
    preset = ["--speaker", "ryan", "--checkpoint", checkpoints(), "--comfyui", comfyui]
    assert run("voices", "save", "Ryan", *preset).code == 0
    assert load_voice(library / "Ryan.safetensors").speaker == "ryan"
    assert "exists already" in run("voices", "save", "Ryan", *preset).err
    assert "say which voice" in run("voices", "save", "Ryan").err


def test_voices_are_deleted_all_or_none(run: Callable, comfyui: Path) -> None:
    library = comfyui / "models" / "qwen3-tts-voices"
    assert run("voices", "delete", "Anna", "Carl", "--comfyui", comfyui).code == 2
    assert (library / "Anna.safetensors").exists()
    unasked = run("voices", "delete", "Anna", "Bob", "--comfyui", comfyui)
    assert unasked.code == 2 and "Delete Anna, Bob? There is no terminal to ask on: add --yes" in unasked.err
    assert (library / "Anna.safetensors").exists()
    assert run("voices", "delete", "Anna", "Bob", "--yes", "--comfyui", comfyui).code == 0
    assert [path.name for path in library.iterdir()] == ["other.safetensors"]
    assert run("voices", "delete", "../x", "--comfyui", comfyui).code == 2


def test_a_terminals_user_is_asked_before_voices_are_deleted(run, comfyui, monkeypatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Console, "agrees", lambda _, question: bool(asked.append(question)))
    done = run("voices", "delete", "Anna", "--comfyui", comfyui)
    assert done.code == 0 and asked == ["Delete Anna?"] and "deleted nothing" in done.err
    assert load_voice(comfyui / "models" / "qwen3-tts-voices" / "Anna.safetensors").name == "Anna"
    assert run("voices", "delete", "Anna", "--yes", "--comfyui", comfyui).code == 0 and len(asked) == 1


def test_a_voice_is_renamed_and_described(run: Callable, comfyui: Path) -> None:
    done = run("voices", "rename", "Anna", "Clara", "--comfyui", comfyui)
    assert done.code == 0 and "'Anna' is now 'Clara'" in done.err
    assert run("voices", "rename", "Bob", "Clara", "--comfyui", comfyui).code == 2
    assert run("voices", "describe", "Clara", "low and calm", "--comfyui", comfyui).code == 0
    lines = run("voices", "list", "--comfyui", comfyui).lines
    assert lines[1].split() == ["Clara", "x_vector", "0.6B", "Base", "low", "and", "calm"]
    assert "description: low and calm" in run("voices", "show", "Clara", "--comfyui", comfyui).lines
    assert "write at most 300" in run("voices", "describe", "Clara", "x" * 301, "--comfyui", comfyui).err


def test_a_voice_is_exported_and_imported(run, comfyui, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("voices", "export", "Anna", "--comfyui", comfyui)
    assert done.code == 0 and done.lines == [str(tmp_path / "Anna.safetensors")]
    assert "exists already" in run("voices", "export", "Anna", "--comfyui", comfyui).err
    assert run("voices", "export", "other", "--comfyui", comfyui).code == 2
    library = ["--comfyui", comfyui]
    done = run("voices", "import", "Anna.safetensors", "--name", "Carl", *library)
    assert done.code == 0 and [Path(line).name for line in done.lines] == ["Carl.safetensors"]
    assert load_voice(Path(done.lines[0])).name == "Carl"
    assert "already exists" in run("voices", "import", "Anna.safetensors", "--name", "Bob", *library).err
    odd = run("voices", "import", comfyui / "models" / "qwen3-tts-voices" / "other.safetensors", *library)
    assert odd.code == 2 and "other.safetensors is damaged" in odd.err


def test_a_recording_is_no_voice(run: Callable, comfyui: Path, tmp_path: Path, recording: Path) -> None:
    library = ["--comfyui", comfyui]
    renamed, other = tmp_path / "renamed.safetensors", tmp_path / "phone.m4a"
    renamed.write_bytes(recording.read_bytes())
    other.write_bytes(b"its own format")
    for file in (recording, renamed, other):
        for words in (
            ("voices", "import", file),
            ("voices", "show", file),
            ("voices", "save", "Carl", "--voice", file),
            ("speak", "Yes.", "--voice", file, "--out", tmp_path / "a.wav"),
        ):
            done = run(*words, *library)
            assert done.code == 2 and f"{file} is a recording, not a saved voice: save its voice with" in done.err


def test_a_voice_with_control_characters_does_not_reach_the_terminal(run, comfyui, monkeypatch) -> None:
    """Its transcript is another's; where the output is a pipe, other programs get it as it is."""
    library = comfyui / "models" / "qwen3-tts-voices"
    words, codes = "a\x1b[2Jb\x9b31m", torch.zeros(25, 16, dtype=torch.int64)
    save_voice(Voice("icl", "0b6", "Eve", torch.zeros(64), codes, words), library / "Eve.safetensors")
    assert "transcript: a [2Jb 31m" in run("voices", "show", "Eve", "--comfyui", comfyui).lines
    monkeypatch.setattr(console, "say", lambda text, _, exact=False: shown.append((text, exact)))
    shown: list[tuple[object, bool]] = []
    run("voices", "list", "--comfyui", comfyui)
    assert all(exact for _, exact in shown) and len(shown) == 3


def test_a_voice_is_previewed(run: Callable, comfyui: Path, checkpoints: Callable[..., Path]) -> None:
    model = ["--checkpoint", checkpoints("base"), "--max-seconds", "0.3", "--retries", "0"]
    done = run("voices", "preview", "Anna", "--text", "Yes.", "--out", "a.wav", "--comfyui", comfyui, *model)
    assert done.code == 0 and [Path(line).name for line in done.lines] == ["a.wav"], done.err


def test_a_folder_that_is_no_comfyui_is_refused(run: Callable, tmp_path: Path) -> None:
    done = run("voices", "list", "--comfyui", tmp_path)
    assert done.code == 2 and "has no folder models: give ComfyUI's folder" in done.err


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
    monkeypatch.setattr(voices, "load_synthesizer", lambda *_: pytest.fail("no model is needed"))
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
