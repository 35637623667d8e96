"""ComfyUI's memory management and the graph engine: evicting the model frees the engine's caches."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import comfy.cli_args
comfy.cli_args.args.cpu = True
import sys
from pathlib import Path
import comfy.model_management as management
import torch
import pack
pack.load()
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.batch.stream import render_lines
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.nodes.models.memory import ManagedModel, load_managed
from lab.random_checkpoint import write_checkpoint

options = LoadOptions(engine="graph", weights=sys.argv[2])
loaded = load_managed(write_checkpoint(Path(sys.argv[1]), "tiny", "custom_voice"), options)
state = loaded.synthesizer.model.module.state_dict().values()
assert loaded.patcher.model_size() == sum(tensor.nbytes for tensor in state)
assert any(tensor.dtype == torch.int8 for tensor in state) == (sys.argv[2] == "int8")

def speak():
    with ManagedModel([loaded]).use() as synthesizer:
        options = GenerateOptions(sampling=Sampling(max_new_tokens=9))
        voice = preset_voice(synthesizer.model, "ryan")
        spoken = render_lines(synthesizer, [Line("One.", voice), Line("Two.", voice)], options)
        return synthesizer, [one.waveform.tobytes() for one in spoken]

synthesizer, first = speak()
kept = list(synthesizer.engine._graphs._decoders.values())
assert len(kept) == 1
assert speak()[1] == first
assert list(synthesizer.engine._graphs._decoders.values()) == kept, "rebuilt although the model was not evicted"
management.unload_all_models()
assert not synthesizer.engine._graphs._decoders and kept[0]._slots is None, "the caches were not freed with the model"
assert speak()[1] == first
print("all is well")
"""


@pytest.mark.parametrize("weights", ["full", pytest.param("int8", marks=pytest.mark.slow)])
def test_the_engines_caches_stay_between_runs_and_are_freed_with_the_model(
    comfy_dir: Path, comfy_python: str, tmp_path: Path, weights: str
) -> None:
    paths = os.pathsep.join([str(comfy_dir), str(ROOT)])
    done = subprocess.run(
        [comfy_python, "-c", SCRIPT, str(tmp_path / "checkpoint"), weights],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0 and "all is well" in done.stdout, done.stderr
