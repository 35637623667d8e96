"""Script From File in a real ComfyUI: read, read again when it has changed, refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.comfy.graphs import Graph, node, shown

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer


def read(name: str) -> Graph:
    return {
        "script": node("MorphTTSScriptFromFile", file=name),
        "text": node("PreviewAny", source=["script", 0]),
    }


def test_a_script_is_read_and_read_again_when_it_has_changed(server: ComfyServer, base_dir: Path) -> None:
    path = base_dir / "input" / "scene.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes("ANNA: Größe.\r\nBEN: 你好。".encode("utf-8-sig"))
    choices = server.object_info()["MorphTTSScriptFromFile"]["input"]["required"]["file"][1]["options"]
    assert "scene.txt" in choices
    result = server.run(read("scene.txt"))
    assert shown(result, "text") == "ANNA: Größe.\nBEN: 你好。"
    assert shown(result, "script") == "scene.txt: 2 lines, 21 characters"
    assert "script" in server.run(read("scene.txt")).cached_nodes()
    path.write_text("ANNA: New.", encoding="utf-16")
    assert shown(server.run(read("scene.txt")), "text") == "ANNA: New."


def test_the_packs_example_is_offered_where_the_input_folder_is_empty(server: ComfyServer) -> None:
    assert shown(server.run(read("example script (in the pack)")), "text").startswith("# The example script")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.txt", "file 'missing.txt' is not in ComfyUI's input folder"),
        ("../secret.txt", "is not in ComfyUI's input folder"),
        ("/etc/passwd", "is not in ComfyUI's input folder"),
        ("latin.txt", "latin.txt is not text in UTF-8 or UTF-16: save it as UTF-8"),
        ("empty.txt", "empty.txt is empty: write a text into it"),
        ("sound.wav", "file 'sound.wav' does not end in .txt or .md or .srt or .vtt"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(server, base_dir, name, reason) -> None:
    from tests.comfy.server import ComfyError

    (base_dir / "input").mkdir(exist_ok=True)
    (base_dir / "input" / "latin.txt").write_bytes("Größe".encode("latin-1"))
    (base_dir / "input" / "empty.txt").write_bytes(b"\xef\xbb\xbf \r\n")
    (base_dir / "input" / "sound.wav").write_bytes(b"RIFF")
    (base_dir / "secret.txt").write_text("secret")
    with pytest.raises(ComfyError) as error:
        server.run(read(name))
    assert reason in str(error.value.body)
