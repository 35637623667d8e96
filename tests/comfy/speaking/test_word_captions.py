"""Words with their times in a real ComfyUI: from the nodes that speak to caption files, and where there are none."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.comfy import graphs
from tests.comfy.graphs import Graph, node, samples, shown

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

NAME = "with a head"
LINES = {"RYAN": "At 10:30 we paid $5.", "SERENA": "Hello, [pause 0.2] you."}
SCRIPT = "\n".join(f"{name}: {text}" for name, text in LINES.items())
SRT = "1\n00:00:01,000 --> 00:00:03,000\nRYAN: Hello there.\n"


@pytest.fixture(scope="module", autouse=True)
def checkpoints(model_folders: Path) -> Iterator[None]:
    """Tiny checkpoints, one of which names an alignment head; the next module does not find that."""
    from lab.random_checkpoint import write_checkpoint

    graphs.place_checkpoints(model_folders)
    path = write_checkpoint(model_folders / NAME, "tiny", "custom_voice")
    (path / "morph.json").write_text('{"alignment": {"layer": 1, "head": 3}}', encoding="utf-8")
    yield
    shutil.rmtree(path)


def captions(source: str, output: int, **changes: Any) -> dict[str, Any]:
    defaults = {
        "words": [source, output], "name": "heard", "format": "json", "unit": "phrase", "characters": 42,
    }  # fmt: skip
    return node("MorphTTSWordCaptions", **(defaults | changes))


def spoken(checkpoint: str = f"qwen-tts/{NAME}") -> Graph:
    """Return a script, a caption and a text that a checkpoint speaks, with the captions of each."""
    given = {
        "model": ["model", 0],
        "sampling": ["sampling", 0],
        "seq_groups": 5,
        "seed": 0,
        "language": "auto",
    }
    return {
        "model": node("MorphTTSLoadModel", checkpoint=checkpoint, precision="auto", attention="auto", engine="auto"),
        "sampling": graphs.sampling(2.0),
        "voice": node("MorphTTSPresetVoice", model=["model", 0], speaker="ryan"),
        "script": node("MorphTTSRenderScript", **given, script=SCRIPT, batch_size=2, gap=0.3, trim_silence=True),
        "dub": node(
            "MorphTTSDub",
            **given,
            captions=SRT,
            voice=["voice", 0],
            batch_size=1,
            max_speed=1.25,
            overrun=0.5,
        ),
        "speech": node("MorphTTSGenerateSpeech", **given, voice=["voice", 0], text="Hello there."),
        "track": node("SaveAudio", audio=["script", 1], filename_prefix="track"),
        "dub track": node("SaveAudio", audio=["dub", 1], filename_prefix="track"),
        "of script": captions("script", 4),
        "of dub": captions("dub", 5),
        "of speech": captions("speech", 2, format="srt", unit="sentence"),
        "text": node("PreviewAny", source=["of script", 0]),
        "dub text": node("PreviewAny", source=["of dub", 0]),
    }


def test_the_words_of_a_script_a_dub_and_a_text_become_captions_in_their_sound(server, base_dir) -> None:
    result = server.run(spoken())
    assert result.ok, result.error
    said = json.loads(shown(result, "text"))
    words = said["words"]
    assert [(one["line"], one["word"]) for one in words] == [
        (number, word) for number, text in enumerate(LINES.values()) for word in text.replace("[pause 0.2]", "").split()
    ]
    times = [time for one in words for time in (one["start"], one["end"])]
    [track], [dub] = samples(result, "track"), samples(result, "dub track")
    assert times == sorted(times) and 0 <= times[0] < times[-1] <= len(track) / 24000
    second = len(samples_of(server, result, 0)) / 24000 + 0.3
    assert max(one["end"] for one in words if one["line"] == 0) <= second - 0.3
    assert min(one["start"] for one in words if one["line"] == 1) >= second
    assert {one["speaker"] for one in said["segments"]} == {"ryan", "serena"}

    [file] = re.findall(r"^saved (heard_\d{5}\.json)$", shown(result, "of script"), re.M)
    assert (base_dir / "output" / file).read_text(encoding="utf-8") == shown(result, "text")
    dubbed = json.loads(shown(result, "dub text"))["words"]
    assert [one["word"] for one in dubbed] == ["Hello", "there."]
    assert 1.0 <= dubbed[0]["start"] <= dubbed[-1]["end"] <= len(dub) / 24000
    assert shown(result, "of speech").endswith("\nHello there.\n")


def samples_of(server: ComfyServer, result: Any, line: int) -> Any:
    """Return the samples of a line that Render Script lists, whose words are at their times in it."""
    import soundfile

    clip = result.outputs["script"]["morph_clips"][line]
    sound, _ = soundfile.read(server.base_dir / "temp" / clip["subfolder"] / clip["filename"])
    assert "".join(word for word, _, _ in clip["words"]) == clip["text"]
    times = [time for _, *both in clip["words"] for time in both]
    assert times == sorted(times) and times[-1] <= len(sound) / 24000
    return sound


def test_without_an_alignment_head_the_report_says_so_and_only_captions_fail(server: ComfyServer) -> None:
    graph = spoken("Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice")
    why = r"Qwen3-TTS-12Hz-0\.6B-CustomVoice has no attention head .*, or do without them"
    heard = server.run({key: one for key, one in graph.items() if key not in ("of script", "of dub", "of speech",
                                                                             "text", "dub text")})  # fmt: skip
    assert heard.ok, heard.error
    for name in ("script", "dub", "speech"):
        assert re.search(rf"^No word times: {why}\.$", heard.outputs[name]["morph_clips_report"][0], re.M)
        assert all("words" not in clip for clip in heard.outputs[name]["morph_clips"])
    failed = server.run(graph)
    assert failed.status == "execution_error"
    assert re.fullmatch(rf"words is empty: {why}", failed.error["exception_message"].strip())


def test_anything_else_in_the_place_of_words_is_refused(server: ComfyServer) -> None:
    graph = {"bad": captions("", 0, words="../../etc/passwd", name="heard")}
    result = server.run(graph)
    assert result.status == "execution_error"
    assert "connect the words of Generate Speech, Render Script, Dub Captions or Transcribe" in str(result.error)
