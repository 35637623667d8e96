"""Importing qwen_tts: broken packages that it does not need do no harm, and nothing is left changed."""

import json
import os
import subprocess
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import qwen3_tts_morph
from qwen3_tts_morph.morph.checkpoint import qwen_tts as upstream
from qwen3_tts_morph.morph.checkpoint.qwen_tts import StandIn, default_rope_registered, import_qwen_tts

BROKEN = ("torchaudio", "sox", "onnxruntime")

# Speaks beside another pack that has a ``qwen_tts`` of its own, and packages that cannot be imported.
SPEAK = """
import json, sys
from pathlib import Path
import numpy as np
import pack
pack.load()
from transformers import AutoConfig, AutoModel, PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.auto.configuration_auto import CONFIG_MAPPING


def other_pack():
    import qwen_tts

    qwen_tts.register()
    return qwen_tts


first = other_pack() if sys.argv[2] == "first" else None
before = dict(ROPE_INIT_FUNCTIONS)
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from lab.streams import render_lines
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.checkpoint.qwen_tts import StandIn, import_qwen_tts
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice

import_qwen_tts()
after_import = dict(ROPE_INIT_FUNCTIONS)
model = load_model(Path(sys.argv[1]), LoadOptions("fp32", "sdpa"))
after_load = dict(ROPE_INIT_FUNCTIONS)
sound = np.random.default_rng(0).normal(0, 0.1, 24000).astype(np.float32)
voice = clone_voice(model, sound, 24000, CloneOptions("icl", "noise"))
options = GenerateOptions(sampling=Sampling(max_new_tokens=5))
spoken = render_lines(Synthesizer(model), [Line("Hello.", voice)], options)[0]
errors = {}
for name in ("torchaudio", "sox", "onnxruntime"):
    try:
        __import__(name)
    except OSError as error:
        errors[name] = str(error)
theirs = first or other_pack()
again = load_model(Path(sys.argv[1]), LoadOptions("fp32", "sdpa"))
print(json.dumps({
    "frames": spoken.report.frames,
    "loudest": float(np.abs(spoken.waveform).max()),
    "stand-ins": [name for name, module in sys.modules.items() if isinstance(module, StandIn)],
    "left": [name for name in sys.modules if name.split(".")[0] in errors],
    "errors": errors,
    "rope unchanged": [before == after_import, before == after_load],
    "other pack": {
        "their package": sys.modules["qwen_tts"].__file__ == theirs.__file__ and theirs.name,
        "their parts": sorted(name for name in sys.modules if name.startswith("qwen_tts.")),
        "their config": CONFIG_MAPPING["qwen3_tts"] is theirs.Config,
        "their model": type(AutoModel.from_config(theirs.Config())).__module__,
        "speakers": [model.can_clone, again.can_clone],
    },
}))
"""
VENDORED = """
import torch
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel

name = "vendored"


class Config(PretrainedConfig):
    model_type = "qwen3_tts"


class Qwen3TTSForConditionalGeneration(PreTrainedModel):
    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(1, 1)
        self.post_init()


def register():
    AutoConfig.register("qwen3_tts", Config)
    AutoModel.register(Config, Qwen3TTSForConditionalGeneration)
"""


@pytest.fixture(scope="module")
def tell(checkpoint, tmp_path_factory):
    """``tell(when)``: what a process said in which the other pack came "first" or "last"; it runs once for each."""
    said: dict[str, dict[str, Any]] = {}

    def get(when: str) -> dict[str, Any]:
        if when not in said:
            folder = tmp_path_factory.mktemp("packages")
            sources = {name: f'raise OSError("lib{name}.so: undefined symbol")' for name in BROKEN}
            for name, source in (sources | {"qwen_tts": VENDORED}).items():
                (folder / name).mkdir()
                (folder / name / "__init__.py").write_text(source, encoding="utf-8")
            said[when] = run_alone(SPEAK, checkpoint("tiny", "base"), folder, when)
        return said[when]

    return get


def test_broken_packages_do_no_harm_and_nothing_stays_changed(tell):
    told = tell("first")
    assert 2 <= told["frames"] <= 4 and told["loudest"] > 0.001
    assert told["stand-ins"] == [] and told["left"] == []
    # Other packs must meet the package's own error.
    assert told["errors"] == {name: f"lib{name}.so: undefined symbol" for name in BROKEN}
    assert told["rope unchanged"] == [True, True]


@pytest.mark.parametrize("when", ["first", pytest.param("last", marks=pytest.mark.slow)])
def test_another_packs_qwen_tts_is_not_taken_and_not_disturbed(tell, when):
    """Packs that bring a copy of ``qwen_tts`` put it into ``sys.modules``, before or after this one loads a model."""
    assert tell(when)["other pack"] == {
        "their package": "vendored",
        "their parts": [],
        "their config": True,
        "their model": "qwen_tts",
        "speakers": [True, True],
    }


def run_alone(program: str, checkpoint: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a program in a Python of its own that finds a folder's packages first; return the JSON that it prints."""
    paths = [str(folder), qwen3_tts_morph.__path__[0], os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(checkpoint), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "flash-attn" not in ran.stdout, "upstream's warning about the 25 Hz tokenizer got through"
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


def test_importing_and_loading_restore_transformers_rope(load):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    before = dict(ROPE_INIT_FUNCTIONS)
    import_qwen_tts()
    load("tiny", "voice_design")
    assert before == ROPE_INIT_FUNCTIONS


@pytest.mark.parametrize("had_one", [True, False])
def test_the_rope_registry_is_restored_after_an_error(monkeypatch, had_one):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    def own(*_: object) -> None: ...

    if had_one:
        monkeypatch.setitem(ROPE_INIT_FUNCTIONS, "default", own)
    else:
        monkeypatch.delitem(ROPE_INIT_FUNCTIONS, "default", raising=False)
    with pytest.raises(RuntimeError), default_rope_registered():
        assert ROPE_INIT_FUNCTIONS["default"] is not own
        raise RuntimeError
    assert ROPE_INIT_FUNCTIONS.get("default") is (own if had_one else None)


def test_a_stand_in_says_why_when_it_is_used():
    stand_in = StandIn("sox", OSError("libsox.so not found"))
    with pytest.raises(ImportError, match=r"sox could not be imported \(libsox.so not found\).*25 Hz"):
        stand_in.Transformer  # noqa: B018
    assert not hasattr(stand_in, "__file__")  # what Python and inspect ask of any module
    assert stand_in.__spec__.name == "sox"


def test_a_qwen_tts_that_cannot_be_imported_names_the_mend(monkeypatch):
    def refuse(*_: object) -> None:
        raise ImportError("cannot import name 'check_model_inputs'")

    for name in [one for one in sys.modules if one.partition(".")[0] == upstream.NAME]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(upstream, "keep_loaded_weights", refuse)
    with pytest.raises(
        ImportError, match=r"check_model_inputs.*Run this pack's install\.py.*Tested: transf"
    ) as error:
        import_qwen_tts()
    assert f"transformers {version('transformers')}" in str(error.value)
    assert not [name for name in sys.modules if name.startswith(upstream.NAME)]
    assert not [name for name, module in sys.modules.items() if isinstance(module, StandIn)]
