"""Train Voice in a real ComfyUI, with a tiny checkpoint and a few updates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.comfy import graphs
from tests.comfy.graphs import Graph, load_model, node, samples, shown
from tests.morph.training.sounds import speech, write

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module", autouse=True)
def user_files(base_dir: Path, model_folders: Path) -> None:
    graphs.place_checkpoints(model_folders)
    graphs.place_recordings(base_dir / "input")
    for seed in range(5):
        write(base_dir / "input" / "anna", f"{seed}", speech(1.2, seed))
    write(base_dir / "input" / "anna", "short", speech(0.2))
    (base_dir / "input" / "broken").mkdir()
    (base_dir / "input" / "broken" / "a.wav").write_text("no sound")


def trained(**changes: Any) -> Graph:
    """Return a graph that trains a voice and speaks with it."""
    given: dict[str, Any] = {
        "model": ["model", 0], "name": "anna", "folder": "anna", "length": "quick", "consent": True,
        "language": "auto", "recogniser": "off", "layers": "talker", "rank": 2, "steps": 3, "rate": 0.01,
        "batch_size": 2,
    }  # fmt: skip
    return {
        "model": load_model(),
        "train": node("MorphTTSTrainVoice", **(given | changes)),
        "sampling": graphs.sampling(),
        "speech": node(
            "MorphTTSGenerateSpeech", model=["train", 0], voice=["train", 1], text="Hello.", language="auto",
            seq_groups=5, seed=1, sampling=["sampling", 0], batch_size=1,
        ),
        "file": node("SaveAudio", audio=["speech", 0], filename_prefix="speech"),
        "report": node("PreviewAny", source=["train", 2]),
        "plot": node("PreviewImage", images=["train", 3]),
    }  # fmt: skip


def test_a_voice_is_trained_spoken_with_and_found_in_the_lists(
    server: ComfyServer, base_dir: Path, model_folders: Path
) -> None:
    result = server.run(trained())
    assert result.ok, result.error
    report = shown(result, "report")
    assert report.startswith("trained anna on 4 recordings (5 s)") and "short: reference is 0.20 s long" in report
    assert len(samples(result)[0]) and result.outputs["plot"]["images"]
    assert result.progress("train")[-1] == (3, 3) and result.previews
    assert [one["name"] for one in result.outputs["train"]["morph_clips"]] == ["after 3 updates"]
    info = server.object_info()
    assert "qwen3-tts-loras/anna" in str(info["MorphTTSLoadLora"]["input"]["required"]["adapter"])
    assert "anna" in str(info["MorphTTSLoadVoice"]["input"]["required"]["name"])
    folder = base_dir / "models" / "qwen3-tts-loras" / "anna"
    saved = (folder / "adapter_model.safetensors").read_bytes()
    loaded = trained()
    del loaded["train"], loaded["report"], loaded["plot"]
    loaded["lora"] = node("MorphTTSLoadLora", model=["model", 0], adapter="qwen3-tts-loras/anna", strength=1.0)
    loaded["voice"] = node("MorphTTSLoadVoice", name="anna")
    loaded["speech"]["inputs"] |= {"model": ["lora", 0], "voice": ["voice", 0]}
    again = server.run(loaded)
    assert again.ok and (samples(again)[0] == samples(result)[0]).all()
    rerun = server.run_freed(trained())
    assert rerun.ok and "It was trained before with the same inputs." in shown(rerun, "report")
    assert (folder / "adapter_model.safetensors").read_bytes() == saved
    command = [
        *(sys.executable, ROOT / "speak.py", "--here", "train", base_dir / "input" / "anna"),
        *("--name", "anna", "--consent"),
        *("--recogniser", "off", "--layers", "talker", "--rank", "2", "--steps", "3", "--rate", "0.01", "--batch", "2"),
        *("--checkpoint", model_folders / "Qwen3-TTS-12Hz-0.6B-Base", "--device", "cpu", "--comfyui", base_dir),
    ]
    same = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "It was trained before with the same inputs." in same.stderr, "the command line has other settings"
    other = server.run(trained(rank=4))
    assert not other.ok and "a LoRA named anna exists already: choose another name" in str(other.error)


def test_cancel_keeps_the_best_weights_so_far(server: ComfyServer, base_dir: Path) -> None:
    def cancel(kind: str, data: dict[str, Any]) -> None:
        if kind == "progress" and data.get("value", 0) >= 30:
            server.interrupt()

    result = server.run(trained(name="ben", steps=2000), on_event=cancel)
    assert not result.ok
    folder = base_dir / "models" / "qwen3-tts-loras" / "ben"
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md"} <= {one.name for one in folder.iterdir()}
    assert (base_dir / "models" / "qwen3-tts-voices" / "ben.safetensors").exists()
    next_run = server.run(trained(name="ben", steps=2000))
    assert next_run.ok and "It ended early: it was stopped." in shown(next_run, "report")


def test_recordings_may_come_as_a_list_with_their_texts(server: ComfyServer) -> None:
    graph = trained(name="cora", folder="(no folder)", audio=["sound", 0], transcripts=["text", 0])
    graph["sound"] = node("LoadAudio", audio=graphs.RECORDING)
    graph["text"] = node("PrimitiveStringMultiline", value=graphs.WORDS)
    result = server.run(graph)
    assert result.ok, result.error
    assert shown(result, "report").startswith("trained cora on 1 recordings")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"consent": False}, "consent is off: a voice can be trained only if the speaker has agreed"),
        ({"name": "../up"}, "name"),
        ({"folder": "../models"}, "which has no recordings in ComfyUI's input folder: press R"),
        ({"folder": "(no folder)"}, "there are no recordings: choose a folder, or connect audio"),
        ({"folder": "broken"}, "no recording can be used: a.wav: cannot be read as a recording"),
        ({"transcripts": ["texts", 0]}, "transcripts are 1 and audio has 0 recordings: connect one for each"),
    ],
)
def test_bad_input_is_a_sentence(server: ComfyServer, changes: dict[str, Any], sentence: str) -> None:
    from tests.comfy.server import ComfyError

    graph = trained(**{"name": "dora", **changes})
    graph["texts"] = node("PrimitiveStringMultiline", value="")
    try:
        told = str(server.run(graph).error)
    except ComfyError as error:
        told = str(error)
    assert sentence in told


@pytest.mark.parametrize(
    ("checkpoint", "more", "sentence"),
    [
        (
            "1.7B-VoiceDesign",
            {},
            "is a VoiceDesign checkpoint and cannot clone voices: load a Base checkpoint",
        ),
        ("0.6B-Base", {"weights": "int8"}, "has int8 weights, which cannot be trained: choose weights full"),
    ],
)
def test_a_checkpoint_that_cannot_be_trained_is_a_sentence(server, checkpoint, more, sentence) -> None:
    graph = trained(name="emil") | {"model": load_model(checkpoint, **more)}
    result = server.run(graph)
    assert not result.ok and sentence in str(result.error)
