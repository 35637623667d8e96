"""Pronunciation in a real ComfyUI: a box and a file, all nodes that speak, captions, and what is made again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.comfy.graphs import Graph, node, shown
from tests.comfy.speaking.test_word_captions import captions, checkpoints  # noqa: F401 - a fixture
from tests.comfy.speaking.test_word_captions import spoken as speaking

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

LIST = "SQL = sequel\n"


@pytest.fixture(scope="module", autouse=True)
def names(base_dir: Path) -> Iterator[Path]:
    path = base_dir / "input" / "names.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("Nguyen = win", encoding="utf-8")
    yield path
    path.unlink()


def pronounced(words: str = LIST, file: str = "names.txt") -> Graph:
    """Return a text, a script and a caption with listed words and a mark, and the words of each."""
    graph = speaking()
    for name, key, text in (
        ("speech", "text", "Nguyen knows <Rome|room>."),
        ("script", "script", "RYAN: It is SQL.\nSERENA: Hello there."),
        ("dub", "captions", "1\n00:00:01,000 --> 00:00:03,000\nAsk <Rome|room> and Nguyen.\n"),
    ):
        graph[name]["inputs"] |= {key: text, "pronunciation": ["pronunciation", 0]}
    graph["pronunciation"] = node("MorphTTSPronunciation", words=words, file=file)
    graph["of speech"] = captions("speech", 2)
    graph["speech text"] = node("PreviewAny", source=["of speech", 0])
    graph["subtitles"] = node("PreviewAny", source=["script", 2])
    return graph


def words(result: Any, name: str) -> list[str]:
    return [one["word"] for one in json.loads(shown(result, name))["words"]]


def test_listed_words_are_read_and_shown_and_only_their_lines_are_made_again(server, names) -> None:
    result = server.run(pronounced())
    assert result.ok, result.error
    assert shown(result, "pronunciation") == "2 words"
    reports = {name: result.outputs[name]["morph_clips_report"][0] for name in ("speech", "script", "dub")}
    assert "'Nguyen' read as 'win', 'Rome' read as 'room', spoken as 'win knows room.'" in reports["speech"]
    assert "'SQL' read as 'sequel', spoken as 'It is sequel.'" in reports["script"]
    assert "spoken as 'Ask room and win.'" in reports["dub"]
    assert words(result, "speech text") == ["Nguyen", "knows", "Rome."]
    assert words(result, "text") == ["It", "is", "SQL.", "Hello", "there."]
    assert words(result, "dub text") == ["Ask", "Rome", "and", "Nguyen."]
    assert "It is SQL." in shown(result, "subtitles")
    [clip] = result.outputs["speech"]["morph_clips"]
    assert clip["text"] == "Nguyen knows Rome." == "".join(word for word, _, _ in clip["words"])

    other = server.run(pronounced("SQL = S Q L"))
    assert other.ok, other.error
    assert "1 of 2 lines reused" in other.outputs["script"]["morph_clips_report"][0]
    assert "Reused from an earlier run" in other.outputs["speech"]["morph_clips_report"][0]
    names.write_text("Nguyen = new yen", encoding="utf-8")
    edited = server.run(pronounced("SQL = S Q L"))
    assert "'Nguyen' read as 'new yen'" in edited.outputs["speech"]["morph_clips_report"][0]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"words": "a = b\nNguyen win"}, "words cannot be read:\nline 2: 'Nguyen win' has no =: write word"),
        ({"file": "none.txt"}, "file 'none.txt' is not in ComfyUI's input folder"),
        ({"file": "../secret.txt"}, "is not in ComfyUI's input folder"),
    ],
)
def test_what_cannot_be_read_is_refused(server: ComfyServer, given: dict[str, str], reason: str) -> None:
    from tests.comfy.server import ComfyError

    with pytest.raises(ComfyError) as error:
        server.run(pronounced(**given))
    assert json.dumps(reason)[1:-1] in json.dumps(error.value.body)


def test_anything_else_in_its_place_is_refused(server: ComfyServer) -> None:
    graph = pronounced()
    graph["speech"]["inputs"]["pronunciation"] = "names.txt"
    result = server.run({key: graph[key] for key in ("model", "sampling", "voice", "speech")})
    assert result.status == "execution_error"
    assert "connect Pronunciation, or disconnect it" in result.error["exception_message"]
