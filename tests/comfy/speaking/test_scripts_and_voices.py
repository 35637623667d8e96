"""Scripts and the voice library in a real ComfyUI."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from qwen3_tts_morph.morph.voice.file import load_voice

from tests.comfy import graphs
from tests.comfy.graphs import SAMPLES_PER_FRAME, Graph, node, samples, shown, speech

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer, Result

pytestmark = pytest.mark.usefixtures("recordings")

RATE = 24000
SCRIPT = """\
# two people
ANNA: Good morning!
Ben: Not a minute. [pause 0.5]
[seed 7] ANNA: Then let us walk.
"""
SRT = """\
1
00:00:00,000 --> 00:00:00,160
ANNA: Good morning!

2
00:00:00,460 --> 00:00:00,620
BEN: Not a minute.

3
00:00:01,420 --> 00:00:01,580
ANNA: Then let us walk.
"""


def dialogue() -> Graph:
    """Return a dialogue of two cloned voices; each line is two frames long."""
    other = {"model": ["model", 0], "audio": ["other recording", 0], "mode": "ICL"}
    return graphs.cloned_voice() | {
        "sampling": graphs.sampling(),
        "other recording": node("LoadAudio", audio=graphs.OTHER_RECORDING),
        "other voice": node(
            "MorphTTSCloneVoice",
            transcript="He was not an ill-disposed young man.",
            pad_reference=True,
            **other,
        ),
        "first": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "cast": node("MorphTTSCast", name="BEN", voice=["other voice", 0], cast=["first", 0]),
        "script": graphs.render_script(SCRIPT),
        "again": node("MorphTTSJoinAudio", audio=["script", 0], gap=0.5, crossfade=0.0),
        "lines": node("SaveAudio", audio=["script", 0], filename_prefix="line"),
        "joined": node("SaveAudio", audio=["script", 1], filename_prefix="joined"),
        "rejoined": node("SaveAudio", audio=["again", 0], filename_prefix="rejoined"),
        "srt": node("PreviewAny", source=["script", 2]),
        "report": node("PreviewAny", source=["script", 3]),
        "subtitles": node("MorphTTSSaveSubtitles", srt=["script", 2], name="talk"),
    }


def test_a_script_becomes_files_a_joined_track_and_matching_subtitles(server, base_dir) -> None:
    result = server.run(dialogue())
    assert result.ok, result.error
    lines = samples(result, "lines")
    assert [line.shape for line in lines] == [(2 * SAMPLES_PER_FRAME, 1)] * 3
    [joined] = samples(result, "joined")
    assert len(joined) == sum(map(len, lines)) + round((0.3 + 0.3 + 0.5) * RATE)
    assert np.array_equal(joined[: len(lines[0])], lines[0])
    assert np.array_equal(joined[-len(lines[2]) :], lines[2])
    [rejoined] = samples(result, "rejoined")
    assert len(rejoined) == sum(map(len, lines)) + round(2 * 0.5 * RATE)
    assert shown(result, "srt") == SRT
    assert (base_dir / "output" / "talk_00001.srt").read_text(encoding="utf-8") == SRT
    assert shown(result, "subtitles") == "saved talk_00001.srt"
    assert len({line.tobytes() for line in lines}) == 3


def test_an_instruction_for_a_clone_is_refused_and_its_line_is_named(server: ComfyServer) -> None:
    graph = dialogue()
    graph["script"] = graphs.render_script("ANNA: Good morning.\nBEN (softly): Yes.\n")
    failed = server.run(graph)
    message = failed.error["exception_message"]
    assert "line 2: 'softly' is an instruction: " in message and "does not follow instructions" in message
    assert "give the clone a mood with Shift Voice; or name a voice 'BEN (softly)'" in message


def test_subtitles_are_never_overwritten(server: ComfyServer, base_dir: Path) -> None:
    first = base_dir / "output" / "kept_00001.srt"
    first.write_text("mine", encoding="utf-8")
    graph = dialogue()
    graph["subtitles"]["inputs"]["name"] = "kept"
    assert shown(server.run(graph), "subtitles") == "saved kept_00002.srt"
    assert first.read_text(encoding="utf-8") == "mine"


def test_subtitles_are_written_as_webvtt(server: ComfyServer, base_dir: Path) -> None:
    graph = dialogue()
    graph["subtitles"]["inputs"] |= {"name": "web", "format": "vtt"}
    assert shown(server.run(graph), "subtitles") == "saved web_00001.vtt"
    written = (base_dir / "output" / "web_00001.vtt").read_text(encoding="utf-8")
    assert written == "WEBVTT\n\n" + re.sub(r"(\d),(\d{3})", r"\1.\2", SRT)


def test_subtitles_that_cannot_be_written_leave_no_file(server: ComfyServer, base_dir: Path) -> None:
    graph = {
        "srt": node("PrimitiveStringMultiline", value="1\n00:00:00,000 --> 00:00:01,000\nhalf: \ud83d"),
        "subtitles": node("MorphTTSSaveSubtitles", srt=["srt", 0], name="half"),
    }
    result = server.run(graph)
    assert result.error and "srt contains half a character ('\\ud83d'" in result.error["exception_message"]
    assert not list((base_dir / "output").rglob("half*"))


def test_a_saved_voice_speaks_like_the_original(server: ComfyServer, base_dir: Path) -> None:
    def speak(**changes: Any) -> np.ndarray:
        result = server.run(speech(max_seconds=0.5) | changes)
        assert result.ok, result.error
        return samples(result)[0]

    icl = graphs.cloned_voice(mode="ICL")["voice"]
    save = node("MorphTTSSaveVoice", voice=["voice", 0], name="Anna K.2", overwrite=False)
    cloned = speak(voice=icl, save=save)
    assert (base_dir / "models" / "qwen3-tts-voices" / "Anna K.2.safetensors").is_file()
    choices = server.object_info()["MorphTTSLoadVoice"]["input"]["required"]["name"][1]["options"]
    assert "Anna K.2" in choices
    assert np.array_equal(speak(voice=node("MorphTTSLoadVoice", name="Anna K.2")), cloned)
    assert not np.array_equal(speak(), cloned)  # an x-vector voice of the same recording


def test_a_voice_is_overwritten_only_on_request_and_then_loaded_again(server: ComfyServer) -> None:
    def run(overwrite: bool, mode: str) -> Result:
        """Save "Twice", load it and save a copy, in one graph: ComfyUI drops cached nodes that the last graph lacks."""
        return server.run(
            graphs.cloned_voice(mode=mode)
            | {
                "save": node("MorphTTSSaveVoice", voice=["voice", 0], name="Twice", overwrite=overwrite),
                "loaded": node("MorphTTSLoadVoice", name="Twice"),
                "copy": node("MorphTTSSaveVoice", voice=["loaded", 0], name="Copy", overwrite=True),
            }
        )

    keep = node("MorphTTSSaveVoice", voice=["voice", 0], name="Twice", overwrite=False)
    assert server.run(graphs.cloned_voice() | {"save": keep}).ok
    refused = run(False, "ICL")
    assert "a voice named 'Twice' already exists" in refused.error["exception_message"]
    assert run(True, "ICL").ok
    assert "loaded" not in run(True, "ICL").cached_nodes()  # the previous run replaced the file
    assert "loaded" in run(True, "ICL").cached_nodes()


def test_presets_of_the_demo_voice_are_blended_with_each_other_and_with_a_clone(server, base_dir) -> None:
    def blend(**voices: Any) -> Graph:
        weights = {"weight_a": 1.0, "weight_b": 1.0}
        return {"blend": node("MorphTTSBlendVoices", **voices, **weights, model=["model", 0])}

    graph = graphs.speech(voice=["blend", 0]) | {
        "heart": node("MorphTTSPresetVoice", model=["model", 0], speaker="heart"),
        "george": node("MorphTTSPresetVoice", model=["model", 0], speaker="george"),
        "kept": node("MorphTTSSaveVoice", voice=["blend", 0], name="blended", overwrite=True),
    }
    graph["model"]["inputs"]["checkpoint"] = graphs.DEMO_VOICE
    for kind, other in (("blend", "george"), ("x_vector", "voice")):
        result = server.run(graph | blend(voice_a=["heart", 0], voice_b=[other, 0]))
        assert result.ok, result.error
        assert len(samples(result)[0]) == 2 * SAMPLES_PER_FRAME
        assert load_voice(base_dir / "models" / "qwen3-tts-voices" / "blended.safetensors").kind == kind
    refused = server.run(graph | {"blend": node("MorphTTSBlendVoices", voice_a=["heart", 0], voice_b=["george", 0],
                                                weight_a=1.0, weight_b=1.0)})  # fmt: skip
    assert "needs its checkpoint: connect Load Qwen3-TTS Model to model" in refused.error["exception_message"]
