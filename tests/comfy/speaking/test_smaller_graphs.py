"""Small graphs: nodes that speak are the last ones, and voices are found by name."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from tests.comfy.conftest import ROOT
from tests.comfy.graphs import DEMO_VOICE, Graph, load_model, node, place_checkpoints, sampling, shown

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer, Result

MODEL = {"model": node("MorphTTSLoadModel", checkpoint=DEMO_VOICE, precision="fp32", attention="sdpa", engine="eager")}
SAY = {"seq_groups": 5, "seed": 3, "language": "english"}
SCRIPT = {**SAY, "batch_size": 3, "gap": 0.2, "model": ["model", 0]}


@pytest.fixture(scope="module", autouse=True)
def recordings(base_dir: Path, server: ComfyServer) -> Iterator[None]:
    """A recording in the voice folder, with its words; the next module does not find it there."""
    folder = base_dir / "models" / "qwen3-tts-voices"
    folder.mkdir(parents=True, exist_ok=True)
    sound, rate = soundfile.read(ROOT / "recordings" / "austen.flac")
    soundfile.write(folder / "jane.wav", sound, rate)
    shutil.copy(ROOT / "recordings" / "austen.txt", folder / "jane.txt")
    yield
    for name in ("jane.wav", "jane.txt"):
        (folder / name).unlink()


def run(server: ComfyServer, graph: Graph) -> Result:
    result = server.run(MODEL | graph)
    assert result.ok, result.error
    return result


def clips(server: ComfyServer, result: Result, node_id: str) -> list[np.ndarray]:
    """Return the recordings that a node shows."""
    folder = server.base_dir / "temp"
    listed = result.outputs[node_id]["morph_clips"]
    return [soundfile.read(folder / one["subfolder"] / one["filename"])[0] for one in listed]


def test_a_text_is_said_by_three_nodes(server: ComfyServer) -> None:
    """As with a model at Preset Voice, to the sample."""
    preset = node("MorphTTSPresetVoice", speaker="emma")
    checked = node("MorphTTSPresetVoice", speaker="emma", model=["model", 0])
    speech = {"text": "Hello.", "model": ["model", 0], "voice": ["voice", 0], **SAY}
    said = [
        run(server, {"voice": voice, "speech": node("MorphTTSGenerateSpeech", reuse_lines=False, **speech)})
        for voice in (preset, checked)
    ]
    [[one], [other]] = [clips(server, result, "speech") for result in said]
    assert len(one) > 12000 and np.array_equal(one, other)
    for key in ("text", "morph_clips_report"):
        assert "Seed: 3." in said[0].outputs["speech"][key][0]
        assert "RTF" not in said[0].outputs["speech"][key][0]


def test_a_speaker_that_no_checkpoint_has_is_refused_at_its_node(server: ComfyServer) -> None:
    speech = node("MorphTTSGenerateSpeech", text="Hello.", model=["model", 0], voice=["voice", 0], **SAY)
    result = server.run(MODEL | {"voice": node("MorphTTSPresetVoice", speaker="ryan"), "speech": speech})
    known = "speaker 'ryan' is unknown to demo voice (in the pack): choose one of emma"
    assert known in result.error["exception_message"]
    assert result.error["node_id"] == "voice"


@pytest.fixture
def demo_alone(model_folders: Path) -> Iterator[None]:
    """No published checkpoint is on this machine."""
    hidden = model_folders.with_name("hidden")
    model_folders.rename(hidden)
    model_folders.mkdir()
    yield
    model_folders.rmdir()
    hidden.rename(model_folders)


def report(result: Result, node_id: str) -> str:
    return str(result.outputs[node_id]["morph_clips_report"][0])


@pytest.mark.usefixtures("demo_alone")
@pytest.mark.parametrize(
    ("kind", "text"),
    [("GenerateSpeech", "text"), ("RenderScript", "script"), ("Dub", "captions")],
)
def test_one_node_speaks_and_says_what_it_chose(server: ComfyServer, kind: str, text: str) -> None:
    said = "1\n00:00:00,000 --> 00:00:01,000\nHello.\n" if kind == "Dub" else "Hello."
    if kind == "RenderScript":  # it names nobody: nobody is connected
        said = server.object_info()["MorphTTSRenderScript"]["input"]["required"]["script"][1]["default"]
    more = {"batch_size": 1, "gap": 0.2, "max_speed": 1.2, "overrun": 0.5}
    results = []
    for seed in (7, 8):
        speech = node(f"MorphTTS{kind}", **{**SAY, "seed": seed, "reuse_lines": False, text: said}, **more)
        results.append(server.run({"speech": speech}))
        assert results[-1].ok, results[-1].error
        assert "No model is connected: demo voice (in the pack) speaks." in report(results[-1], "speech")
        assert "preset heart" in report(results[-1], "speech")
    assert not any(b"loading" in one for one in results[1].previews), "it is kept, as a load node's is"
    released = server.log().count("released demo_voice")
    server.free()
    until = time.monotonic() + 60
    while server.log().count("released demo_voice") == released:
        assert time.monotonic() < until, f"/free released no checkpoint:\n{server.log_tail()}"
        time.sleep(0.1)


def test_the_default_checkpoint_fits_the_voice(server: ComfyServer, model_folders: Path) -> None:
    place_checkpoints(model_folders)
    sampled = {"sampling": sampling()}
    speech = {"text": "Hello.", **SAY, "sampling": ["sampling", 0], "reuse_lines": False}
    alone = server.run(sampled | {"speech": node("MorphTTSGenerateSpeech", **speech)})
    assert "1.7B-CustomVoice speaks" in report(alone, "speech"), "the best of those on this machine"
    emma = {"voice": node("MorphTTSPresetVoice", speaker="emma")}
    result = server.run(sampled | emma | {"speech": node("MorphTTSGenerateSpeech", voice=["voice", 0], **speech)})
    assert "demo voice (in the pack) speaks" in report(result, "speech")
    base = {"model": load_model("0.6B-Base")}
    result = server.run(sampled | base | {"speech": node("MorphTTSGenerateSpeech", model=["model", 0], **speech)})
    assert "No voice is connected: recording austen speaks." in report(result, "speech")
    design = {"model": load_model("1.7B-VoiceDesign")}
    result = server.run(sampled | design | {"speech": node("MorphTTSGenerateSpeech", model=["model", 0], **speech)})
    assert "voice is not connected, and the model has no speakers" in result.error["exception_message"]


def test_a_clone_speaks_without_a_recording_of_yours(server: ComfyServer) -> None:
    graph = {
        "clone": node("MorphTTSCloneVoice", model=["model", 0], mode="ICL"),
        "speech": node("MorphTTSGenerateSpeech", text="Hello.", model=["model", 0], voice=["clone", 0], **SAY),
    }
    result = run(server, graph)
    assert shown(result, "clone").startswith("ICL voice cloned\naudio is not connected: cloned the pack's own")
    assert len(clips(server, result, "speech")[0]) > 12000


def test_a_dialogue_finds_its_voices_by_name(server: ComfyServer) -> None:
    script = "EMMA: Good morning.\njane: I am a recording.\nMICHAEL: So I hear."
    result = run(server, {"script": node("MorphTTSRenderScript", script=script, **SCRIPT)})
    report = result.outputs["script"]["morph_clips_report"][0]
    assert "Voices found by name: emma (preset), jane (saved voice), michael (preset)." in report
    assert re.search(r"^Seeds:\n1\. emma: \d+\n2\. jane: \d+\n3\. michael: \d+$", report, re.M)
    assert [one["name"] for one in result.outputs["script"]["morph_clips"]] == ["emma", "jane", "michael"]
    unknown = server.run(MODEL | {"script": node("MorphTTSRenderScript", script="ZOE: Hello.", **SCRIPT)})
    assert "'ZOE' is not in the cast: choose from " in unknown.error["exception_message"]


def test_captions_find_their_voices_by_name(server: ComfyServer) -> None:
    captions = "1\n00:00:00,500 --> 00:00:03,500\nEMMA: Good day.\n\n2\n00:00:04,000 --> 00:00:07,000\nHEART: Hi.\n"
    given = {key: value for key, value in SCRIPT.items() if key != "gap"}
    dub = node("MorphTTSDub", captions=captions, max_speed=1.25, overrun=0.5, **given)
    report = run(server, {"dub": dub}).outputs["dub"]["morph_clips_report"][0]
    assert "Voices found by name: emma (preset), heart (preset)." in report


def test_load_voice_lists_a_recording_and_needs_a_model_for_it(server: ComfyServer) -> None:
    [names, _] = server.object_info()["MorphTTSLoadVoice"]["input"]["required"]["name"]
    options = names if isinstance(names, list) else _["options"]
    assert "jane" in options
    speech = node("MorphTTSGenerateSpeech", text="Hello.", model=["model", 0], voice=["voice", 0], **SAY)
    run(server, {"voice": node("MorphTTSLoadVoice", name="jane", model=["model", 0]), "speech": speech})
    refused = server.run(MODEL | {"voice": node("MorphTTSLoadVoice", name="jane"), "speech": speech})
    assert "voice 'jane' is a recording: connect model" in refused.error["exception_message"]


def test_a_sweep_is_the_last_node(server: ComfyServer) -> None:
    graph = {
        "voice": node("MorphTTSPresetVoice", speaker="emma"),
        "sweep": node("MorphTTSSweep", model=["model", 0], voice=["voice", 0], text="Hello.", language="english",
                      seq_groups="1, 5", seed=3),
    }  # fmt: skip
    result = run(server, graph)
    assert [one["name"] for one in result.outputs["sweep"]["morph_clips"]] == [
        "SEQ_GROUPS 1",
        "SEQ_GROUPS 5",
    ]


def test_search_finds_what_people_type(server: ComfyServer) -> None:
    info = server.object_info()
    if "search_aliases" not in info["MorphTTSGenerateSpeech"]:
        pytest.skip("not run: this ComfyUI has no aliases in its schemas (0.3.75)")
    words = {word for name, one in info.items() if name.startswith("MorphTTS") for word in one["search_aliases"]}
    typed = "transcribe, asr, loudness, lufs, silence, crossfade, emotion, mix voices, temperature, read text file"
    assert {*typed.split(", "), "voice library", "streaming"} <= words
