"""The files of a user (checkpoints, recordings), and the graphs that the node tests queue."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tests.comfy.server import Result

Graph = dict[str, dict[str, Any]]

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDING = "austen-0870.flac"
OTHER_RECORDING = "austen-0880.flac"
WORDS = (
    "And Mister John Dashwood had then leisure to consider how much there might be prudently in his power "
    "to do for them."
)
CHECKPOINTS = {
    "0.6B-Base": ("tiny", "base"),
    "0.6B-CustomVoice": ("tiny", "custom_voice"),
    "1.7B-Base": ("tiny-1.7B", "base"),
    "1.7B-CustomVoice": ("tiny-1.7B", "custom_voice"),
    "1.7B-VoiceDesign": ("tiny-1.7B", "voice_design"),
}
DEMO_VOICE = "demo voice (in the pack)"
TWO_FRAMES = 0.16  # seconds; a line never ends before its third frame, so this cap makes it two frames long
SAMPLES_PER_FRAME = 1920


def place_checkpoints(model_folder: Path) -> None:
    """Write tiny random checkpoints under the names of the published ones, so that nothing is downloaded."""
    from lab.random_checkpoint import write_checkpoint

    for name, (shape, kind) in CHECKPOINTS.items():
        path = model_folder / f"Qwen3-TTS-12Hz-{name}"
        if not path.is_dir():
            write_checkpoint(path, shape, kind)


def place_recordings(input_folder: Path) -> None:
    """Copy human speech to the folder that Load Audio reads."""
    input_folder.mkdir(parents=True, exist_ok=True)
    for name in (RECORDING, OTHER_RECORDING):
        shutil.copy(DATA / name, input_folder)


def node(kind: str, **inputs: Any) -> dict[str, Any]:
    """Return a node of an API-format graph. A link is ``[node id, output]``."""
    return {"class_type": kind, "inputs": inputs}


def load_model(checkpoint: str = "0.6B-Base", **changes: Any) -> dict[str, Any]:
    name = f"Qwen/Qwen3-TTS-12Hz-{checkpoint}"
    defaults = {"checkpoint": name, "precision": "auto", "attention": "auto", "engine": "auto"}
    return node("MorphTTSLoadModel", **(defaults | changes))


def sampling(max_seconds: float = TWO_FRAMES, **changes: Any) -> dict[str, Any]:
    """Return a Sampling node with default values, except for the maximum length."""
    defaults = {
        "temperature": 0.9, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.05,
        "subtalker_temperature": 0.9, "subtalker_top_k": 50, "subtalker_top_p": 1.0,
        "greedy": False, "subtalker_greedy": False, "max_seconds": max_seconds,
    }  # fmt: skip
    return node("MorphTTSSampling", **(defaults | changes))


def cloned_voice(checkpoint: str = "0.6B-Base", **changes: Any) -> Graph:
    """Return the nodes ``model``, ``recording`` and ``voice``."""
    clone = {"model": ["model", 0], "audio": ["recording", 0], "mode": "x-vector", "transcript": WORDS}
    return {
        "model": load_model(checkpoint),
        "recording": node("LoadAudio", audio=RECORDING),
        "voice": node("MorphTTSCloneVoice", **(clone | changes)),
    }


def render_script(script: str, **changes: Any) -> dict[str, Any]:
    """Return a Render Script node that is connected to ``model``, ``cast`` and ``sampling``."""
    defaults = {
        "model": ["model", 0], "cast": ["cast", 0], "script": script, "seq_groups": 5, "seed": 0, "batch_size": 2,
        "language": "auto", "gap": 0.3, "sampling": ["sampling", 0],
    }  # fmt: skip
    return node("MorphTTSRenderScript", **(defaults | changes))


def speech(max_seconds: float = TWO_FRAMES, **changes: Any) -> Graph:
    """Return ``cloned_voice`` plus ``speech`` (with changed inputs), ``sampling``, ``file`` and ``report``."""
    inputs = {
        "model": ["model", 0], "voice": ["voice", 0], "sampling": ["sampling", 0],
        "text": "He was not an ill-disposed young man.", "language": "english", "seq_groups": 5, "seed": 1,
    }  # fmt: skip
    return {
        **cloned_voice(),
        "sampling": sampling(max_seconds),
        "speech": node("MorphTTSGenerateSpeech", **(inputs | changes)),
        "file": node("SaveAudio", audio=["speech", 0], filename_prefix="speech"),
        "report": node("PreviewAny", source=["speech", 1]),
    }


def shown(result: Result, node_id: str) -> str:
    return str(result.outputs[node_id]["text"][0])


def samples(result: Result, node_id: str = "file") -> list[np.ndarray]:
    """Return the recordings that a Save Audio or Save Speech node wrote, each ``[T, C]`` at 24 kHz."""
    files = [file for file in result.files if file.node_id == node_id and file.kind == "audio"]
    read = [soundfile.read(file.path, always_2d=True) for file in files]
    if any(rate != 24000 for _, rate in read):
        raise ValueError(f"sample rates are {[rate for _, rate in read]}, not 24000")
    return [waveform for waveform, _ in read]
