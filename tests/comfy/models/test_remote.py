"""A real ComfyUI and a real server, two processes: a model speaks there; it is heard, kept, cancelled here."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from qwen3_tts_morph.serve.process.server import free_ports

from tests.comfy import graphs
from tests.comfy.conftest import ROOT
from tests.comfy.graphs import Graph, node, samples, shown
from tests.patience import PATIENCE, wait_until

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

KEY = "correct-horse"
CHECKPOINT = "0.6B-Base"
SPEAKERS = {"anna": 1001, "ben": 1002}  # as in the demo voice: a checkpoint that clones, and has speakers
TEXT = "The birds were singing in the garden all morning."
SCRIPT = "ANNA: Good morning!\nBEN: Hello. [pause 0.5]\n[gain -6] ANNA: It rains."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ComfyUI's base folder, with a tiny checkpoint and a recording."""
    from lab.random_checkpoint import write_checkpoint

    base = tmp_path_factory.mktemp("comfy_remote")
    path = write_checkpoint(checkpoint_in(base), *graphs.CHECKPOINTS[CHECKPOINT])
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config["talker_config"] |= {"spk_id": SPEAKERS, "spk_is_dialect": dict.fromkeys(SPEAKERS, False)}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    graphs.place_recordings(base / "input")
    return base


def checkpoint_in(base: Path) -> Path:
    return base / "models" / "qwen-tts" / f"Qwen3-TTS-12Hz-{CHECKPOINT}"


@pytest.fixture(scope="module")
def speech_url(comfy_python: str, base: Path) -> Iterator[str]:
    """The speech server, with the same checkpoint and a key."""
    port = free_ports(1)[0]
    command = [comfy_python, "-m", "serve", "serve", "--port", str(port), "--device", "cpu"]
    command += ["--checkpoint", str(checkpoint_in(base))]
    environment = {**os.environ, "MORPH_TTS_API_KEY": KEY, "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_ready(f"http://127.0.0.1:{port}", process))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture(scope="module")
def comfy(start_server: Callable[..., ComfyServer], base: Path, speech_url: str) -> ComfyServer:
    """A ComfyUI whose owner has listed the server, and one that is not there."""
    listed = f"studio={speech_url}, farm=http://127.0.0.1:9"
    return start_server(base, env={"MORPH_TTS_SERVERS": listed, "MORPH_TTS_KEY_STUDIO": KEY})


def is_ready(url: str, process: subprocess.Popen) -> bool:
    assert process.poll() is None, "the speech server has ended"
    try:
        with urllib.request.urlopen(f"{url}/ready") as answer:
            return bool(answer.status == 200)
    except OSError:  # not there yet, or 503
        return False


def remote(server: str = "studio", consent: bool = False) -> dict[str, Any]:
    return node("MorphTTSRemoteModel", server=server, voice_consent=consent)


def local() -> dict[str, Any]:
    return graphs.load_model(CHECKPOINT)


def speaker(name: str) -> dict[str, Any]:
    """Return the node of a speaker that is in no list: later versions of ComfyUI refuse another in the list's input."""
    preset = {"speaker": "heart", "custom_speaker": name, "instruct": ""}
    return node("MorphTTSPresetVoice", model=["model", 0], **preset)


def speech(model: dict[str, Any], text: str = TEXT, **changes: Any) -> Graph:
    inputs = {
        "model": ["model", 0], "voice": ["voice", 0], "text": text, "language": "english", "seq_groups": 15,
        "seed": 3, "retries": 0,
    }  # fmt: skip
    return {
        "model": model,
        "voice": speaker("anna"),
        "speech": node("MorphTTSGenerateSpeech", **(inputs | changes)),
        "file": node("SaveAudio", audio=["speech", 0], filename_prefix="remote"),
        "report": node("PreviewAny", source=["speech", 1]),
    }


def test_it_sounds_as_the_local_model_does(comfy: ComfyServer, speech_url: str) -> None:
    there, here = comfy.run(speech(remote())), comfy.run(speech(local()))
    assert there.ok and here.ok, there.error or here.error
    [far], [near] = samples(there), samples(here)
    assert len(far) == len(near) and np.abs(far).max() > 0.05
    assert np.corrcoef(far[:, 0], near[:, 0])[0, 1] > 0.999
    said, known = shown(there, "report"), shown(here, "report")
    assert said.splitlines()[0] == known.splitlines()[0], "the same outcome"
    assert "SEQ_GROUPS 15 (exact)" in said and f"server studio ({speech_url}), qwen3-tts-morph" in said
    assert KEY not in said
    alone = comfy.run(speech(remote(), voice=None, reuse_lines=False))
    assert "No voice is connected: preset " in shown(alone, "report"), "the server's first"
    done = [value for value, _ in there.progress("speech")]
    assert len(done) > 1 and done == sorted(done)  # how many come in time depends on the machine


WHOLE_CAST = node(
    "MorphTTSWholeCast", names="ANNA\nBEN", **{"voices.voice_1": ["voice", 0], "voices.voice_2": ["ben", 0]}
)


@pytest.mark.parametrize("whole", [False, True])
def test_a_script_with_a_cast(comfy: ComfyServer, whole: bool) -> None:
    graph = speech(remote()) | {
        "ben": speaker("ben"),
        "anna": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "cast": node("MorphTTSCast", name="BEN", voice=["ben", 0], cast=["anna", 0]),
        "script": node(
            "MorphTTSRenderScript", model=["model", 0], cast=["cast", 0], script=SCRIPT, seq_groups=5, seed=3,
            batch_size=2, language="english", gap=0.3,
        ),
        "lines": node("SaveAudio", audio=["script", 0], filename_prefix="line"),
        "track": node("SaveAudio", audio=["script", 1], filename_prefix="track"),
        "srt": node("PreviewAny", source=["script", 2]),
        "report": node("PreviewAny", source=["script", 3]),
    }  # fmt: skip
    for name in ("speech", "file"):
        del graph[name]
    if whole:
        graph["cast"] = WHOLE_CAST
    result = comfy.run(graph)
    assert result.ok, result.error
    lines, [track] = samples(result, "lines"), samples(result, "track")
    assert len(lines) == 3 and len(track) == sum(map(len, lines)) + round((0.3 + 0.8) * 24000)
    assert "It rains." in shown(result, "srt")
    again = comfy.run(graph | {"extra": node("PreviewAny", source=["script", 3])})
    assert "script" in again.cached_nodes()


def test_a_cloned_voice_needs_consent(comfy: ComfyServer) -> None:
    def cloned(consent: bool) -> Graph:
        return speech(remote(consent=consent)) | {
            "here": local(),
            "recording": node("LoadAudio", audio=graphs.RECORDING),
            "voice": node(
                "MorphTTSCloneVoice",
                model=["here", 0],
                audio=["recording", 0],
                mode="x-vector",
                transcript="",
            ),
        }

    refused = comfy.run(cloned(False))
    assert refused.error is not None
    assert "turn on voice_consent in Remote Model" in refused.error["exception_message"]
    result = comfy.run(cloned(True))
    assert result.ok, result.error
    assert np.abs(samples(result)[0]).max() > 0.05
    assert comfy.run(cloned(True)).cached_nodes() == set(cloned(True)), "the server has one more voice now"


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (speech(remote("farm")), "server farm (http://127.0.0.1:9) cannot be reached"),
        (speech(remote()) | {"voice": node("MorphTTSDesignVoice", model=["model", 0], description="A calm man.")},
         "has no VoiceDesign checkpoint"),
        (speech(remote()) | {
            "recording": node("LoadAudio", audio=graphs.RECORDING),
            "voice": node("MorphTTSCloneVoice", model=["model", 0], audio=["recording", 0], mode="x-vector",
                          transcript=""),
        }, "connect Load Qwen3-TTS Model"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(comfy: ComfyServer, graph: Graph, words: str) -> None:
    result = comfy.run(graph)
    assert result.error is not None and words in result.error["exception_message"]
    assert KEY not in str(result.error)


def test_a_graph_cannot_name_an_address(comfy: ComfyServer, speech_url: str) -> None:
    from tests.comfy.server import ComfyError

    with pytest.raises(ComfyError) as caught:
        comfy.run(speech(remote(speech_url)))
    assert "is not listed in MORPH_TTS_SERVERS: choose one of studio, farm" in str(caught.value.body)
