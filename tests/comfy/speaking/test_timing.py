"""Speed, pitch, subtitles per sentence and dubbing in a real ComfyUI."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.comfy.graphs import Graph, cloned_voice, node, samples, sampling, shown, speech

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

pytestmark = pytest.mark.usefixtures("recordings")

SRT = """\
1
00:00:01,000 --> 00:00:02,000
ANNA: Hello there.

2
00:00:02,500 --> 00:00:03,000
[a door]

3
00:00:03,000 --> 00:00:03,050
It is late.
"""


def changed(speed: float, pitch: float) -> Graph:
    return speech(max_seconds=0.5) | {
        "changed": node("MorphTTSSpeedPitch", audio=["speech", 0], speed=speed, pitch=pitch),
        "changed file": node("SaveAudio", audio=["changed", 0], filename_prefix="changed"),
    }


def dubbed(captions: Any = SRT, **inputs: Any) -> Graph:
    dub = {
        "model": ["model", 0], "captions": captions, "seq_groups": 5, "seed": 0, "batch_size": 8,
        "language": "auto", "max_speed": 1.25, "overrun": 0.5, "voice": ["voice", 0], "cast": ["cast", 0],
        "sampling": ["sampling", 0],
    }  # fmt: skip
    given = {key: value for key, value in (dub | inputs).items() if value is not None}
    return cloned_voice() | {
        "sampling": sampling(),
        "cast": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "dub": node("MorphTTSDub", **given),
        "file": node("SaveAudio", audio=["dub", 1], filename_prefix="dub"),
        "clips": node("SaveAudio", audio=["dub", 0], filename_prefix="dub clip"),
        "srt": node("PreviewAny", source=["dub", 2]),
        "misfits": node("PreviewAny", source=["dub", 3]),
        "report": node("PreviewAny", source=["dub", 4]),
    }


def test_speed_changes_the_length_exactly_and_nothing_changes_nothing(server: ComfyServer) -> None:
    result = server.run(changed(1.3, 2.0))
    assert result.ok, result.error
    [before], [after] = samples(result), samples(result, "changed file")
    assert len(after) == int(len(before) / 1.3 + 0.5)
    assert shown(result, "changed") == f"{len(before) / 24000:.3f} s became {len(after) / 24000:.3f} s"
    same = server.run(changed(1.0, 0.0))
    assert np.array_equal(samples(same, "changed file")[0], samples(result)[0])


def test_captions_are_spoken_at_their_times_and_misfits_are_listed(server: ComfyServer) -> None:
    result = server.run(dubbed(overrun=0.0))
    assert result.ok, result.error
    [track], clips = samples(result), samples(result, "clips")
    assert len(clips) == 2
    for start, clip in zip((24000, 72000), clips, strict=True):
        assert np.array_equal(track[start : start + len(clip)], clip)
    assert not track[:24000].any() and len(track) == 72000 + len(clips[1])
    misfits = shown(result, "misfits")
    assert misfits.startswith("Caption 3 (00:00:03,000, 'It is late.') is 0.")
    assert "too long at speed 1.25" in misfits and len(misfits.splitlines()) == 1
    on_node = shown(result, "dub")
    assert on_node.startswith(f"1 of 2 captions do not fit:\n{misfits}\n")
    assert f"Captions with nothing to speak: 2.\nThe track is {len(track) / 24000:.3f} s long." in on_node
    assert on_node.splitlines()[0] in shown(result, "report")
    problems = [clip["problems"] for clip in result.outputs["dub"]["morph_clips"]]
    assert problems == [["ran into its limit"], ["ran into its limit", "does not fit its caption"]]
    srt = shown(result, "srt")
    assert "ANNA: Hello there.\n" in srt and "\nIt is late.\n" in srt
    assert re.findall(r"(\S+) -->", srt)[1].startswith("00:00:03,0")


def test_sounds_are_read_where_that_is_wanted(server: ComfyServer) -> None:
    result = server.run(dubbed(read_sounds=True))
    assert result.ok, result.error
    assert len(samples(result, "clips")) == 3 and "\n(a door)\n" in shown(result, "srt")
    assert "nothing to speak" not in shown(result, "dub")


def test_an_srt_file_of_the_input_folder_is_dubbed(server: ComfyServer, base_dir: Path) -> None:
    (base_dir / "input" / "film.srt").write_bytes(SRT.replace("\n", "\r\n").encode("utf-8-sig"))
    read = {"script": node("MorphTTSScriptFromFile", file="film.srt")}
    result = server.run(dubbed(captions=["script", 0]) | read)
    assert result.ok, result.error
    assert shown(result, "misfits") == "" and len(samples(result, "clips")) == 2


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"overlap": "both"}, "both"),
        ({"captions": " "}, "captions is empty: paste the text of an SRT file"),
        ({"captions": "Hello."}, "captions has no caption: write a number"),
        ({"captions": SRT.replace("02,000", "01,000")}, "caption 1: it ends at its start (00:00:01,000)"),
        ({"captions": SRT.replace("ANNA", "ANNE")}, "caption 1: 'ANNE' is not in the cast: choose from "),
        ({"voice": None}, "caption 3: 'It is late.' names no character"),
    ],
)
def test_what_cannot_be_dubbed_is_refused(server: ComfyServer, inputs: dict[str, Any], reason: str) -> None:
    from tests.comfy.server import ComfyError

    try:
        result = server.run(dubbed(**inputs))
    except ComfyError as error:
        assert reason in str(error.body)
    else:
        assert reason in result.error["exception_message"]


def test_a_script_has_speed_and_a_subtitle_for_each_sentence(server: ComfyServer) -> None:
    render = {
        "model": ["model", 0], "cast": ["cast", 0], "seq_groups": 5, "seed": 0, "batch_size": 8,
        "language": "auto", "gap": 0.3, "sampling": ["sampling", 0], "sentence_subtitles": True,
    }  # fmt: skip
    script = "ANNA: This is the first one. [pause 0.5] This is the second.\nANNA: [speed 2] Yes."
    graph = cloned_voice() | {
        "sampling": sampling(max_seconds=60.0),
        "cast": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "script": node("MorphTTSRenderScript", **render, script=script),
        "file": node("SaveAudio", audio=["script", 0], filename_prefix="timed"),
        "srt": node("PreviewAny", source=["script", 2]),
    }
    result = server.run(graph)
    assert result.ok, result.error
    assert bytes(12000) in samples(result)[0].astype(bool).tobytes(), "the pause"
    assert re.findall(r"ANNA: (.*)", shown(result, "srt")) == [
        "This is the first one.", "This is the second.", "Yes."
    ]  # fmt: skip
    graph |= {
        "sampling": sampling(),
        "script": node("MorphTTSRenderScript", **render, script="ANNA: [speed 2] Yes."),
    }
    assert [len(clip) for clip in samples(server.run(graph))] == [1920], "two frames at twice the speed"
