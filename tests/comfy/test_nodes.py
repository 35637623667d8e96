"""The nodes in a real ComfyUI: their schemas, their results, progress, cancellation and memory."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile
from PIL import Image

from tests.comfy import graphs
from tests.comfy.conftest import ROOT
from tests.comfy.graphs import DEMO_VOICE, SAMPLES_PER_FRAME, node, samples, shown, speech

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

NODES = {
    "MorphTTSLoadModel", "MorphTTSCloneVoice", "MorphTTSPresetVoice", "MorphTTSDesignVoice", "MorphTTSBlendVoices",
    "MorphTTSSaveVoice", "MorphTTSLoadVoice", "MorphTTSSampling", "MorphTTSGenerateSpeech", "MorphTTSRenderScript",
    "MorphTTSCast", "MorphTTSWholeCast", "MorphTTSSmoothNormalize", "MorphTTSJoinAudio", "MorphTTSSweep",
    "MorphTTSSaveSubtitles", "MorphTTSSaveSpeech", "MorphTTSSpeechFromFile", "MorphTTSScriptFromFile",
    "MorphTTSWordCheck", "MorphTTSSpeedPitch", "MorphTTSDub", "MorphTTSRemoteModel",
    "MorphTTSWordCaptions", "MorphTTSTrimRecording", "MorphTTSPronunciation",
    "MorphTTSLoadLora", "MorphTTSShiftVoice", "MorphTTSTranscribe", "MorphTTSTrainVoice",
}  # fmt: skip
BASE = "Qwen3-TTS-12Hz-0.6B-Base"


@pytest.fixture(scope="module", autouse=True)
def user_files(base_dir: Path, model_folders: Path) -> None:
    graphs.place_checkpoints(model_folders)
    graphs.place_recordings(base_dir / "input")


def wait_for(condition: Callable[[], bool], seconds: float = 900) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def test_every_node_is_registered_and_every_input_has_a_tooltip(server: ComfyServer) -> None:
    assert "IMPORT FAILED" not in server.log()
    found = {name: info for name, info in server.object_info().items() if name.startswith("MorphTTS")}
    assert set(found) == NODES
    unexplained = []
    for name, info in found.items():
        assert info["display_name"] and info["description"] and info["category"] == "audio/Qwen3-TTS Morph"
        inputs = {**info["input"].get("required", {}), **info["input"].get("optional", {})}
        for key, (_, options) in inputs.items():
            tooltip = options.get("tooltip", "")
            if "Default: " not in tooltip and "Default, " not in tooltip and "Required" not in tooltip:
                unexplained.append(f"{name}.{key}: {tooltip!r}")
        unexplained += [f"{name} output {n}" for n, tip in enumerate(info["output_tooltips"]) if not tip]
    assert unexplained == []


def test_a_line_becomes_a_mono_file_of_its_length_and_is_cached_the_second_time(server) -> None:
    graph = speech(max_seconds=1.0)
    result = server.run(graph)
    assert result.ok, result.error
    frames = round(float(re.search(r"([\d.]+) s of audio", shown(result, "report"))[1]) / 0.08)
    [waveform] = samples(result)
    assert 2 <= frames <= 12
    assert waveform.shape == (frames * SAMPLES_PER_FRAME, 1)
    assert np.abs(waveform).max() > 0.01
    assert server.run(graph).cached_nodes() == set(graph)


def test_the_settings_reach_the_engine(server: ComfyServer) -> None:
    def speak(**changes: Any) -> np.ndarray:
        result = server.run(speech(**changes))
        assert result.ok, result.error
        return samples(result)[0]

    first = speak()
    assert len(first) == 2 * SAMPLES_PER_FRAME  # max seconds
    assert not np.array_equal(first, speak(seed=2))
    assert not np.array_equal(first, speak(seq_groups=1))
    assert np.array_equal(first, speak())


def test_a_workflow_with_what_was_removed_speaks_and_the_report_says_so(server: ComfyServer) -> None:
    result = server.run(speech(decoding="lossless", continuity=True, seq_groups=1))
    assert result.ok, result.error
    report = shown(result, "report")
    assert report.count("decoding is ignored: it was removed (lossless).") == 1
    assert report.count("continuity is ignored: it was removed (True).") == 1
    assert len(samples(result)[0]) == 2 * SAMPLES_PER_FRAME


def test_the_graph_engine_speaks_and_the_report_says_what_ran(server: ComfyServer) -> None:
    chosen = server.run(speech())
    assert "engine: graph (faster for a small model on a CPU;" in shown(chosen, "report")
    eager = server.run({**speech(), "model": graphs.load_model(engine="eager")})
    assert "engine: eager (as chosen)" in shown(eager, "report")
    graph = {**speech(), "model": graphs.load_model(engine="graph")}
    result = server.run(graph)
    assert result.ok, result.error
    assert "engine: graph (as chosen; op by op, without CUDA graphs: no CUDA)" in shown(result, "report")
    assert len(samples(result)[0]) == 2 * SAMPLES_PER_FRAME
    again = server.run_freed(graph)
    assert again.ok and again.cached_nodes() == set()
    assert np.array_equal(samples(result)[0], samples(again)[0])


@pytest.mark.parametrize("engine", ["auto", pytest.param("graph", marks=pytest.mark.slow)])
def test_int8_weights_are_reported_and_reload_after_free(server: ComfyServer, engine: str) -> None:
    full = server.run(speech(seq_groups=15))  # like a graph that was saved before the weights input existed
    assert "weights" not in speech()["model"]["inputs"]
    graph = {**speech(seq_groups=15), "model": graphs.load_model(engine=engine, weights="int8")}
    result = server.run(graph)
    assert result.ok, result.error
    assert "SEQ_GROUPS 15 (exact)" in shown(full, "report")
    report = shown(result, "report")
    assert ", int8 weights, " in report and "SEQ_GROUPS 15 (exact but for its int8 weights)" in report
    assert len(samples(result)[0]) == 2 * SAMPLES_PER_FRAME
    again = server.run_freed(graph)
    assert again.ok and again.cached_nodes() == set()
    assert np.array_equal(samples(result)[0], samples(again)[0])


def test_progress_rises_and_ends_full(server: ComfyServer) -> None:
    result = server.run(speech(max_seconds=1.0, seed=3, retries=0))
    values = [value for value, _ in result.progress("speech")]
    frames = round(float(re.search(r"([\d.]+) s of audio", shown(result, "report"))[1]) / 0.08)
    assert values == sorted(values)
    assert set(values[:-1]) <= set(range(frames + 1))
    assert result.progress("speech")[-1][0] == result.progress("speech")[-1][1]


def test_cancelling_within_a_line_stops_it_and_the_next_run_works(server: ComfyServer) -> None:
    # Many pieces, so that the random model cannot finish before the cancel arrives.
    long = speech(max_seconds=600.0, text="Go on and on. " * 200, seed=4, split_chars=40)
    after: list[float] = []  # completed share of the work, for each event after the cancel was sent
    asked = []

    def cancel(kind: str, data: dict[str, Any]) -> None:
        if kind == "progress" and data["node"] == "speech":
            if asked:
                after.append(data["value"] / data["max"])
            else:
                asked.append(data["value"])
                server.interrupt()

    result = server.run(long, on_event=cancel)
    assert result.status == "execution_interrupted"
    assert result.files == []
    assert max(after, default=0.0) < 0.5  # frames that were decoded before the cancel arrived
    assert server.run(speech(seed=5)).ok


def test_free_releases_the_model_and_the_next_run_loads_it_again(server: ComfyServer) -> None:
    assert server.run(speech()).ok
    before = server.log().count(f"released {BASE}")
    server.free()
    assert wait_for(lambda: server.log().count(f"released {BASE}") > before)
    result = server.run(speech())
    assert result.ok and result.cached_nodes() == set()


def test_free_also_works_after_a_failed_run(server: ComfyServer) -> None:
    assert server.run(speech(text="word " * 9000, split_chars=0)).status == "execution_error"
    before = server.log().count(f"released {BASE}")
    server.free()
    assert wait_for(lambda: server.log().count(f"released {BASE}") > before)


def test_a_replaced_checkpoint_is_loaded_again(server: ComfyServer, model_folders: Path) -> None:
    assert server.run(speech()).ok
    os.utime(model_folders / BASE / "model.safetensors")
    cached = server.run(speech()).cached_nodes()
    assert "model" not in cached and "recording" in cached


def defaults(info: dict[str, Any]) -> dict[str, Any]:
    return {key: options["default"] for key, (_, options) in info["input"]["required"].items() if "default" in options}


def test_new_nodes_speak_with_their_default_values(server: ComfyServer) -> None:
    info = server.object_info()
    model, preset, generate = (
        defaults(info[name]) for name in ("MorphTTSLoadModel", "MorphTTSPresetVoice", "MorphTTSGenerateSpeech")
    )
    graph = {
        "model": node("MorphTTSLoadModel", **model),
        "voice": node("MorphTTSPresetVoice", model=["model", 0], **preset),
        "sampling": graphs.sampling(),
        "speech": node(
            "MorphTTSGenerateSpeech",
            model=["model", 0],
            voice=["voice", 0],
            sampling=["sampling", 0],
            **generate,
        ),
        "file": node("SaveAudio", audio=["speech", 0], filename_prefix="demo"),
    }
    result = server.run(graph)
    assert result.ok, result.error
    assert len(samples(result)[0]) == 2 * SAMPLES_PER_FRAME


def test_the_demo_voice_and_its_speakers_come_first(server: ComfyServer) -> None:
    info = server.object_info()
    checkpoints = info["MorphTTSLoadModel"]["input"]["required"]["checkpoint"][1]
    assert checkpoints["options"][0] == checkpoints["default"] == DEMO_VOICE
    config = json.loads((ROOT / "demo_voice" / "config.json").read_text(encoding="utf-8"))
    named = list(config["talker_config"]["spk_id"])
    assert info["MorphTTSPresetVoice"]["input"]["required"]["speaker"][1]["options"][:4] == named


def test_smoothing_keeps_rate_and_channels_and_sets_the_level(server: ComfyServer, base_dir: Path) -> None:
    time_s = np.arange(44100) / 44100
    tone = 0.1 * np.sin(2 * np.pi * 440 * time_s)
    soundfile.write(base_dir / "input" / "tone.wav", np.stack([tone, 0.5 * tone], axis=1), 44100)
    inputs = {
        "audio": ["recording", 0], "low_pass": True, "order": 2, "cutoff": 11000.0, "zero_phase": False,
        "normalize": "peak", "peak_db": -6.0, "lufs": -16.0, "trim_silence": False,
    }  # fmt: skip
    result = server.run(
        {
            "recording": node("LoadAudio", audio="tone.wav"),
            "smooth": node("MorphTTSSmoothNormalize", **inputs),
            "file": node("SaveAudio", audio=["smooth", 0], filename_prefix="smooth"),
        }
    )
    waveform, rate = soundfile.read(result.files[0].path, always_2d=True)
    assert rate == 44100 and waveform.shape == (44100, 2)
    assert np.abs(waveform).max(axis=0) == pytest.approx([10 ** (-6 / 20), 0.5 * 10 ** (-6 / 20)], rel=1e-3)


def texts_of(folder: Path, *texts: str) -> graphs.Graph:
    """Return a node ``texts`` whose second output is a list of texts (captions of pictures in an input folder)."""
    folder.mkdir(parents=True)
    for number, text in enumerate(texts):
        Image.new("RGB", (8, 8)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    return {"texts": node("LoadImageTextDataSetFromFolder", folder=folder.name)}


def test_each_text_of_a_list_is_spoken(server: ComfyServer, base_dir: Path) -> None:
    graph = speech(text=["texts", 1]) | texts_of(base_dir / "input" / "three", "One.", "Two.", "Three.")
    result = server.run(graph)
    assert result.ok, result.error
    assert [len(waveform) for waveform in samples(result)] == [2 * SAMPLES_PER_FRAME] * 3
    assert len(result.outputs["speech"]["text"][0].splitlines()) == 9, (
        "three lines for each: the result, the speed and the seed"
    )


def test_all_texts_of_a_list_are_checked_before_the_first_is_spoken(server, base_dir) -> None:
    texts = texts_of(base_dir / "input" / "one empty", "One.", "", "Three.")
    result = server.run(speech(text=["texts", 1]) | texts)
    assert result.status == "execution_error" and re.search(r"text \d of 3 is empty", str(result.error))
    assert result.progress("speech") == []
