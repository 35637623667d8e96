"""Where checkpoints and voices are."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.terminal import folders as module
from qwen3_tts_morph.serve.terminal.folders import OWN, Folders, exclusive, pack_version

from pack import ROOT

VOICE = Voice("x_vector", "0b6", "Anna", torch.ones(8))
CONFIG = """\
mine:
    base_path: {base}
    is_default: true
    TTS: speech
    qwen3-tts-voices: |
        voices
        more/voices
other:
    TTS: {base}/absolute
empty:
"""


@pytest.fixture
def comfyui(tmp_path: Path) -> Path:
    (tmp_path / "ComfyUI" / "models").mkdir(parents=True)
    return tmp_path / "ComfyUI"


def test_the_comfyui_given_comes_before_that_of_the_environment(comfyui: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "models").mkdir(parents=True)
    environment = {"COMFYUI_DIR": str(other)}
    assert Folders.choose(comfyui, environment).models == comfyui / "models"
    assert Folders.choose(None, environment).models == other / "models"
    assert Folders.choose(None, {"COMFYUI_DIR": ""}).models == Path.home() / OWN
    with pytest.raises(ValueError, match="has no folder models"):
        Folders.choose(None, {"COMFYUI_DIR": str(tmp_path)})


def test_a_pack_among_custom_nodes_uses_that_comfyui(comfyui: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACK", comfyui / "custom_nodes" / "any name")
    assert Folders.choose(None, {}).models == comfyui / "models"


def test_the_folders_of_extra_model_paths_are_searched(comfyui: Path, tmp_path: Path) -> None:
    base = tmp_path / "disk"
    (comfyui / "extra_model_paths.yaml").write_text(CONFIG.format(base=base.as_posix()), encoding="utf-8")
    folders = Folders.choose(comfyui, {})
    assert {base / "speech", base / "absolute", comfyui / "models" / "TTS"} <= set(folders.checkpoints)
    save_voice(VOICE, base / "more" / "voices" / "Anna.safetensors")
    save_voice(VOICE, base / "voices" / "Bob.safetensors")
    save_voice(VOICE, folders.library.folder / "Bob.safetensors")
    assert folders.library.voices() == {
        "Anna": base / "more" / "voices" / "Anna.safetensors",
        "Bob": folders.library.folder / "Bob.safetensors",
    }


@pytest.mark.parametrize("text", ["- a list", "a: [", "a: {TTS: 3}", "a: text"])
def test_a_damaged_extra_model_paths_is_one_sentence(comfyui: Path, text: str) -> None:
    (comfyui / "extra_model_paths.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"extra_model_paths.yaml cannot be read .*: correct it"):
        Folders.choose(comfyui, {})


@pytest.mark.parametrize("name", ["../x", "", "a/b", "CON"])
def test_a_voice_is_saved_only_inside_the_library(comfyui: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        Folders.choose(comfyui, {}).library.path(name)


def test_the_version_is_the_projects() -> None:
    assert pack_version().count(".") == 2


HOLD = """
import sys
import pack
pack.load()
from pathlib import Path
from qwen3_tts_morph.serve.terminal.folders import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_run_is_refused_until_the_first_one_is_gone(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline().strip() == b"held"
        with (
            pytest.raises(ValueError, match="is in use by another run: wait for its end"),
            exclusive(tmp_path),
        ):
            pass
        other.kill()
    with exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        pass


def test_a_folder_in_use_is_one_sentence_of_the_command_line(run, tiny, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("RYAN: Hello.", encoding="utf-8")
    (tmp_path / "a.srt").write_text("1\n00:00:00,000 --> 00:00:02,000\nRYAN: Hello.\n", encoding="utf-8")
    (tmp_path / "out").mkdir()
    with exclusive(tmp_path / "out"):
        for words in (("script", "a.txt"), ("dub", "a.srt")):
            done = run(*words, "--out", "out", *tiny)
            assert done.code == 2 and "is in use by another run" in done.err
    assert list((tmp_path / "out").iterdir()) == []
