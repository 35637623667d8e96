"""Load LoRA in a real ComfyUI, and with its modules: adapters are found, shared, moved and freed with the model."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.comfy import graphs
from tests.comfy.graphs import Graph, node, samples, shown, speech
from tests.morph.adapters import change_config, write_adapter

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import comfy.cli_args
comfy.cli_args.args.cpu = True
import gc
import sys
from pathlib import Path
import comfy.model_management as management
import torch
import pack
pack.load()
from lab.streams import render_lines
from qwen3_tts_morph.morph.checkpoint.adapter_file import read_adapter
from qwen3_tts_morph.morph.frame.buffers import Buffers
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.nodes.models.load import check_same
from qwen3_tts_morph.nodes.models.values import ManagedModel, load_managed
from qwen3_tts_morph.nodes.models.values import ServedModel

base = ManagedModel([load_managed(Path(sys.argv[1]), LoadOptions(engine="graph"))])
adapter = read_adapter(Path(sys.argv[2]))
patcher = base.models[0].patcher

def speak(model):
    with model.use() as synthesizer:
        options = GenerateOptions(sampling=Sampling(max_new_tokens=9))
        [spoken] = render_lines(synthesizer, [Line("One.", preset_voice(synthesizer.model, "ryan"))], options)
        return synthesizer, spoken.waveform.tobytes()

def caches():
    return sum(type(one) is Buffers for one in gc.get_objects())

with torch.inference_mode():  # as ComfyUI runs nodes
    size = patcher.model_size()
    adapted = base.with_adapter(adapter, 1.0)
    assert base.with_adapter(adapter, 1.0).models == adapted.models, "kept once"
    assert base.with_adapter(adapter, 0.5).models != adapted.models
    assert base.with_adapter(adapter, 0.0).models == base.models
    assert adapted.models[0].patcher is patcher and size < patcher.model_size() < 2 * size
    try:
        check_same(Path(sys.argv[1]), LoadOptions(engine="graph"), adapted.models)
    except ValueError as error:
        assert "more_models is checkpoint + LoRA anna at 1, which has an adapter" in str(error)
    else:
        raise AssertionError("a model with an adapter may be among those of more devices")
    try:
        ServedModel("http://studio").with_adapter(adapter, 1.0)
    except ValueError as error:
        assert "start it with --lora" in str(error)
    else:
        raise AssertionError("a server takes an adapter")
    plain, trained = speak(base), speak(adapted)
    assert plain[1] != trained[1]
    assert caches() == 2
    management.unload_all_models()
    assert not caches(), "caches stay without the model"
    assert speak(base)[1] == plain[1] and speak(adapted)[1] == trained[1]
    del adapted, trained
    gc.collect()
    assert not patcher.model.merged, "the copies were not freed"
    assert speak(base)[1] == plain[1]
print("all is well")
"""


@pytest.fixture(scope="module", autouse=True)
def user_files(base_dir: Path, model_folders: Path) -> None:
    graphs.place_checkpoints(model_folders)
    graphs.place_recordings(base_dir / "input")
    loras, base = base_dir / "models" / "loras", model_folders / "Qwen3-TTS-12Hz-0.6B-Base"
    write_adapter(loras / "qwen3" / "anna", base)
    write_adapter(base_dir / "models" / "qwen3-tts-loras" / "ben", base, seed=1)
    write_adapter(loras / "large", model_folders / "Qwen3-TTS-12Hz-1.7B-Base")
    change_config(write_adapter(loras / "dora", base), use_dora=True)


def with_lora(adapter: str = "loras/qwen3/anna", strength: float = 1.0, **changes: Any) -> Graph:
    lora = node("MorphTTSLoadLora", model=["model", 0], adapter=adapter, strength=strength)
    return speech(model=["lora", 0], **changes) | {"lora": lora}


def test_a_model_and_its_adapters_share_weights_and_memory(comfy_dir, comfy_python, tmp_path) -> None:
    from lab.random_checkpoint import write_checkpoint

    path = write_checkpoint(tmp_path / "checkpoint", "tiny", "custom_voice")
    done = subprocess.run(
        [comfy_python, "-c", SCRIPT, str(path), str(write_adapter(tmp_path / "anna", path))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(comfy_dir), str(ROOT)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0 and "all is well" in done.stdout, done.stderr


def test_a_line_is_spoken_with_an_adapter(server: ComfyServer, base_dir: Path) -> None:
    offered = server.object_info()["MorphTTSLoadLora"]["input"]["required"]["adapter"]
    assert "qwen3-tts-loras/ben" in str(offered) and "loras/qwen3/anna" in str(offered)
    plain = samples(server.run(speech()))[0]
    result = server.run(with_lora(strength=0.6))
    assert result.ok, result.error
    trained = samples(result)[0]
    assert not np.array_equal(trained, plain) and "LoRA anna at 0.6" in shown(result, "report")
    assert np.array_equal(samples(server.run(with_lora(strength=0.0)))[0], plain)
    again = server.run_freed(with_lora(strength=0.6, reuse_lines=False))
    assert again.ok and np.array_equal(samples(again)[0], trained)
    folder = base_dir / "models" / "loras" / "qwen3" / "anna"
    other = base_dir / "models" / "qwen3-tts-loras" / "ben"
    shutil.copy(other / "adapter_model.safetensors", folder)
    replaced = server.run(with_lora(strength=0.6))
    assert replaced.ok and not np.array_equal(samples(replaced)[0], trained), "the file was replaced"


def test_a_character_has_a_model_of_its_own(server: ComfyServer) -> None:
    graph = with_lora()
    del graph["speech"], graph["file"], graph["report"]
    graph["anna"] = node("MorphTTSCast", name="ANNA", voice=["voice", 0], model=["lora", 0])
    graph["cast"] = node("MorphTTSCast", name="BEN", voice=["voice", 0], cast=["anna", 0])
    script = "[seed 1] ANNA: Yes.\n[seed 1] BEN: Yes."
    graph["script"] = graphs.render_script(script)
    graph["file"] = node("SaveAudio", audio=["script", 0], filename_prefix="speech")
    graph["report"] = node("PreviewAny", source=["script", 3])
    result = server.run(graph)
    assert result.ok, result.error
    anna, ben = samples(result)
    assert not np.array_equal(anna, ben)
    assert "characters with models of their own: " in shown(result, "report")
    graph["anna"]["inputs"]["model"] = ["model", 0]
    same = samples(server.run(graph))
    assert np.array_equal(*same) and np.array_equal(same[1], ben)
    graph["other"] = graphs.load_model("0.6B-CustomVoice")
    graph["anna"]["inputs"]["model"] = ["other", 0]
    assert "ANNA's model is of another checkpoint than the one that speaks" in str(server.run(graph).error)


@pytest.mark.parametrize(
    ("adapter", "sentence"),
    [
        (
            "loras/dora",
            "adapter dora cannot be used: it has DoRA (use_dora), which cannot be loaded: merge it",
        ),
        ("loras/large", "adapter large has talker.model.layers.0.self_attn.k_proj as 32 x 96 and"),
    ],
)
def test_what_cannot_be_added_is_a_sentence(server: ComfyServer, adapter: str, sentence: str) -> None:
    result = server.run(with_lora(adapter))
    assert not result.ok and sentence in str(result.error)


def test_no_path_is_an_adapter(server: ComfyServer) -> None:
    from tests.comfy.server import ComfyError

    with pytest.raises(ComfyError, match="which is not there: press R to reload the list"):
        server.run(with_lora("../secret"))
