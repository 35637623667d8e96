"""Scripts and the voice library in a real ComfyUI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.comfy import graphs
from tests.comfy.graphs import SAMPLES_PER_FRAME, Graph, node, samples, shown, speech

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

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


@pytest.fixture(scope="module", autouse=True)
def user_files(base_dir: Path, model_folders: Path) -> None:
    graphs.place_checkpoints(model_folders)
    graphs.place_recordings(base_dir / "input")


def dialogue() -> Graph:
    """Two cloned voices, each line two frames long."""
    other = {"model": ["model", 0], "audio": ["other recording", 0], "mode": "ICL"}
    render = {
        "model": ["model", 0], "cast": ["cast", 0], "script": SCRIPT, "seq_groups": 5, "seed": 0,
        "batch_size": 2, "language": "auto", "gap": 0.3, "sampling": ["sampling", 0],
    }  # fmt: skip
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
        "script": node("MorphTTSRenderScript", **render),
        "again": node("MorphTTSJoinAudio", audio=["script", 0], gap=0.5, crossfade=0.0),
        "lines": node("SaveAudio", audio=["script", 0], filename_prefix="line"),
        "joined": node("SaveAudio", audio=["script", 1], filename_prefix="joined"),
        "rejoined": node("SaveAudio", audio=["again", 0], filename_prefix="rejoined"),
        "srt": node("PreviewAny", source=["script", 2]),
        "report": node("PreviewAny", source=["script", 3]),
        "subtitles": node("MorphTTSSaveSubtitles", srt=["script", 2], name="talk"),
    }


def test_a_script_becomes_files_a_joined_track_and_subtitles_that_fit_it(
    server: ComfyServer, base_dir: Path
) -> None:
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
    assert shown(result, "report").count("frames,") == 3
    assert len({line.tobytes() for line in lines}) == 3


def test_subtitles_are_never_overwritten(server: ComfyServer, base_dir: Path) -> None:
    first = base_dir / "output" / "kept_00001.srt"
    first.write_text("mine", encoding="utf-8")
    graph = dialogue()
    graph["subtitles"]["inputs"]["name"] = "kept"
    assert shown(server.run(graph), "subtitles") == "saved kept_00002.srt"
    assert first.read_text(encoding="utf-8") == "mine"


def test_a_saved_voice_speaks_as_the_one_it_was_saved_from(server: ComfyServer, base_dir: Path) -> None:
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


def test_a_voice_is_replaced_only_when_asked_and_then_loaded_anew(server: ComfyServer) -> None:
    def save(overwrite: bool, **changes: Any) -> Graph:
        keep = node("MorphTTSSaveVoice", voice=["voice", 0], name="Twice", overwrite=overwrite)
        return graphs.cloned_voice(**changes) | {"save": keep}

    load = speech() | {"voice": node("MorphTTSLoadVoice", name="Twice")}
    assert server.run(save(False)).ok
    assert server.run(load).ok
    assert {"voice", "speech"} <= server.run(load).cached_nodes()
    refused = server.run(save(False, mode="ICL"))
    assert "a voice named 'Twice' is saved already" in refused.error["exception_message"]
    assert {"voice", "speech"} <= server.run(load).cached_nodes()
    assert server.run(save(True, mode="ICL")).ok
    assert "voice" not in server.run(load).cached_nodes()


def test_a_blend_of_all_of_one_voice_is_that_voice(server: ComfyServer) -> None:
    def speak(weight_a: float, weight_b: float) -> np.ndarray:
        other = {"model": ["model", 0], "audio": ["other recording", 0], "mode": "x-vector"}
        result = server.run(
            speech(voice=["blend", 0], max_seconds=0.5)
            | {
                "other recording": node("LoadAudio", audio=graphs.OTHER_RECORDING),
                "other": node("MorphTTSCloneVoice", **other),
                "blend": node(
                    "MorphTTSBlendVoices",
                    voice_a=["voice", 0],
                    voice_b=["other", 0],
                    weight_a=weight_a,
                    weight_b=weight_b,
                ),
            }
        )
        assert result.ok, result.error
        return samples(result)[0]

    alone = samples(server.run(speech(max_seconds=0.5)))[0]
    assert np.array_equal(speak(2.0, 0.0), alone)
    assert not np.array_equal(speak(0.0, 1.0), alone)
