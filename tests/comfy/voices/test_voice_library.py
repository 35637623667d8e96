"""Save Voice and Load Voice in a real ComfyUI: repeated runs, and foreign or broken files in the library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open

from tests.comfy import graphs
from tests.comfy.graphs import Graph, node, samples, shown, speech

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer


def saving(name: str, overwrite: bool = False, mode: str = "x-vector") -> Graph:
    """Return a graph that clones a voice, saves it, and speaks with the output of Save Voice."""
    save = node("MorphTTSSaveVoice", voice=["clone", 0], name=name, overwrite=overwrite)
    clone = graphs.cloned_voice(mode=mode)["voice"]
    return speech(voice=["save", 0]) | {"clone": clone, "save": save}


def checksum(path: Path) -> str:
    """Return the checksum of a voice's texts and tensors; the bytes of the file have no fixed order."""
    with safe_open(path, framework="np") as file:
        return file.metadata()["sha256"]


def without_voice(graph: Graph) -> Graph:
    return {key: value for key, value in graph.items() if key != "voice"}


@pytest.mark.parametrize("mode", ["x-vector", "ICL"])
def test_the_same_workflow_runs_again_in_another_session(server, library, mode) -> None:
    graph = without_voice(saving("again", mode=mode))
    first = server.run(graph)
    assert first.ok, first.error
    assert shown(first, "save") == "saved qwen3-tts-voices/again.safetensors"
    before = (library / "again.safetensors").stat().st_mtime_ns
    second = server.run_freed(graph)
    assert second.ok, second.error
    assert second.cached_nodes() == set()
    assert shown(second, "save") == "qwen3-tts-voices/again.safetensors already contains this voice"
    assert (library / "again.safetensors").stat().st_mtime_ns == before
    assert np.array_equal(samples(first)[0], samples(second)[0])
    other = server.run(without_voice(saving("again", mode="ICL" if mode == "x-vector" else "x-vector")))
    assert "a voice named 'again' already exists" in other.error["exception_message"]
    assert (library / "again.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_voice_whose_file_was_deleted_is_saved_again(server, library, overwrite) -> None:
    graph = without_voice(saving("deleted", overwrite))
    path = library / "deleted.safetensors"
    assert server.run(graph).ok
    held = checksum(path)
    assert server.run(graph).cached_nodes() == set(graph), "its own file is no change"
    path.unlink()
    again = server.run(graph)
    assert again.ok, again.error
    assert server.run(graph).cached_nodes() == set(graph)
    assert shown(again, "save") == "saved qwen3-tts-voices/deleted.safetensors"
    assert checksum(path) == held


def choices(server: ComfyServer) -> list[str]:
    return server.object_info()["MorphTTSLoadVoice"]["input"]["required"]["name"][1]["options"]


def add_odd_files(library: Path, voice: bytes) -> list[str]:
    """Write files that are not voices; return their names."""
    (library / "folder.safetensors").mkdir()
    (library / "foreign.safetensors").write_bytes(b'\x11\0\0\0\0\0\0\0{"__metadata__":{}}'[: 8 + 0x11])
    (library / "empty.safetensors").touch()
    (library / "cut.safetensors").write_bytes(voice[:-1])
    (library / "text.txt").write_text("text", encoding="utf-8")
    try:
        (library / "dead.safetensors").symlink_to(library / "gone")
    except OSError:  # the system does not allow links
        return ["folder", "foreign", "empty", "cut"]
    return ["folder", "foreign", "empty", "cut", "dead"]


def test_only_voices_are_listed_and_other_files_are_rejected_before_the_run(server, library) -> None:
    from tests.comfy.server import ComfyError

    assert server.run(without_voice(saving("Voice.safetensors"))).ok
    voice = (library / "Voice.safetensors").read_bytes()
    assert not (library / "Voice.safetensors.safetensors").exists()
    odd = add_odd_files(library, voice)
    assert "Voice" in choices(server) and not set(odd) & set(choices(server))
    for name in odd:
        loading: dict[str, Any] = {"voice": node("MorphTTSLoadVoice", name=name)}
        with pytest.raises(ComfyError) as refused:
            server.run(speech() | loading)
        assert f"{name}.safetensors is" in str(refused.value.body)


def test_an_unreadable_library_does_not_remove_the_nodes(server: ComfyServer, base_dir: Path) -> None:
    folder = base_dir / "models" / "qwen3-tts-voices"
    aside = folder.rename(folder.with_name("aside")) if folder.exists() else None
    folder.write_text("a file where the folder should be", encoding="utf-8")
    try:
        assert choices(server) == ["(no voice is saved)"]
        assert server.run(speech()).ok
    finally:
        folder.unlink()
        if aside is not None:
            aside.rename(folder)
    assert f"cannot list the files in {folder}" in server.log()


def test_a_list_of_words_is_saved_with_the_voice_and_one_that_is_there_stays(server, library) -> None:
    assert server.run(without_voice(saving("first"))).ok
    (library / "first.pronunciation.txt").write_text("Nguyen = win", encoding="utf-8")
    beside = library / "second.pronunciation.txt"
    graph = {
        "load": node("MorphTTSLoadVoice", name="first"),
        "save": node("MorphTTSSaveVoice", voice=["load", 0], name="second", overwrite=False),
    }
    result = server.run(graph)
    assert result.ok, result.error
    assert beside.read_text(encoding="utf-8") == "Nguyen = win\n"
    assert server.run(graph).cached_nodes() == set(graph)
    beside.write_text("Nguyen = new yen", encoding="utf-8")
    again = server.run_freed(graph)
    assert shown(again, "save") == "qwen3-tts-voices/second.safetensors already contains this voice"
    assert beside.read_text(encoding="utf-8") == "Nguyen = new yen"


@pytest.mark.parametrize("linked", [False, True])
def test_a_script_is_spoken_again_when_a_saved_voice_changes_that_it_names(
    server: ComfyServer, library: Path, base_dir: Path, linked: bool
) -> None:
    """A script from a file may name any voice, so that it is read again when one it does not name is saved, too."""
    (base_dir / "input" / "dora.txt").write_text("DORA: Good morning.", encoding="utf-8")
    script = graphs.render_script("DORA: Good morning.")
    del script["inputs"]["cast"]
    graph = {"model": graphs.load_model(), "sampling": graphs.sampling(), "script": script}
    if linked:
        graph["file"] = node("MorphTTSScriptFromFile", file="dora.txt")
        script["inputs"]["script"] = ["file", 0]
    assert server.run(without_voice(saving("Dora"))).ok
    assert server.run(without_voice(saving("other", mode="ICL"))).ok
    other = (library / "other.safetensors").read_bytes()
    first = server.run(graph)  # ComfyUI keeps what the last graph made: from here on only this one runs
    assert first.ok, first.error
    assert server.run(graph).cached_nodes() == set(graph)
    (library / "Emil.safetensors").write_bytes(other)
    assert ("script" in server.run(graph).cached_nodes()) is not linked
    (library / "Dora.safetensors").write_bytes(other)
    again = server.run(graph)
    assert again.ok and "script" not in again.cached_nodes()
    assert server.run(graph).cached_nodes() == set(graph)
    (library / "Dora.pronunciation.txt").write_text("morning = evening", encoding="utf-8")
    assert "script" not in server.run(graph).cached_nodes()
