"""``voices``: the library of saved voices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.voice.file import load_voice, save_voice
from qwen3_tts_morph.morph.voice.voice import Voice


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
    assert done.lines[:3] == ["name: Anna", "kind: x_vector", "model: 0.6B"]
    unknown = run("voices", "show", "Carl", "--comfyui", comfyui)
    assert unknown.code == 2 and "voice 'Carl' is not in" in unknown.err
    assert "choose one of Anna, Bob" in unknown.err


def test_a_voice_is_saved_from_a_file_and_from_a_preset(
    run: Callable, comfyui: Path, checkpoints: Callable[..., Path]
) -> None:
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
    assert run("voices", "delete", "Anna", "Bob", "--comfyui", comfyui).code == 0
    assert [path.name for path in library.iterdir()] == ["other.safetensors"]
    assert run("voices", "delete", "../x", "--comfyui", comfyui).code == 2


def test_a_voice_is_previewed(run: Callable, comfyui: Path, checkpoints: Callable[..., Path]) -> None:
    model = ["--checkpoint", checkpoints("base"), "--max-seconds", "0.3", "--retries", "0"]
    done = run("voices", "preview", "Anna", "--text", "Yes.", "--out", "a.wav", "--comfyui", comfyui, *model)
    assert done.code == 0 and [Path(line).name for line in done.lines] == ["a.wav"], done.err


def test_a_folder_that_is_no_comfyui_is_refused(run: Callable, tmp_path: Path) -> None:
    done = run("voices", "list", "--comfyui", tmp_path)
    assert done.code == 2 and "has no folder models: give ComfyUI's folder" in done.err
