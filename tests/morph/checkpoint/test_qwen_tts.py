"""Importing qwen_tts: broken packages that it does not need do no harm, and nothing is left changed."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap

import pytest
import qwen3_tts_morph
from qwen3_tts_morph.morph.checkpoint import qwen_tts as upstream
from qwen3_tts_morph.morph.checkpoint.qwen_tts import (
    StandIn,
    default_rope_registered,
    import_qwen_tts,
    stand_ins,
)

BROKEN = ("torchaudio", "sox", "onnxruntime")

SPEAK = """
import json, sys
from pathlib import Path
import numpy as np
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
before = dict(ROPE_INIT_FUNCTIONS)
import pack
pack.load()
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.render.lines import Line, render_lines
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
print(json.dumps({
    "frames": spoken.report.frames,
    "loudest": float(np.abs(spoken.waveform).max()),
    "stand-ins": [name for name, module in sys.modules.items() if isinstance(module, StandIn)],
    "left": [name for name in sys.modules if name.split(".")[0] in errors],
    "errors": errors,
    "rope unchanged": [before == after_import, before == after_load],
}))
"""


def test_broken_packages_do_no_harm_and_nothing_stays_changed(checkpoint, tmp_path):
    for name in BROKEN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            f'raise OSError("lib{name}.so: undefined symbol")', encoding="utf-8"
        )
    paths = [str(tmp_path), qwen3_tts_morph.__path__[0], os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SPEAK), str(checkpoint("tiny", "base"))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "flash-attn" not in ran.stdout, "upstream's warning about the 25 Hz tokenizer got through"
    told = json.loads(ran.stdout.splitlines()[-1])
    assert 2 <= told["frames"] <= 4 and told["loudest"] > 0.001
    assert told["stand-ins"] == [] and told["left"] == []
    # Other packs must meet the package's own error.
    assert told["errors"] == {name: f"lib{name}.so: undefined symbol" for name in BROKEN}
    assert told["rope unchanged"] == [True, True]


def test_importing_and_loading_restore_transformers_rope(load):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    before = dict(ROPE_INIT_FUNCTIONS)
    import_qwen_tts()
    load("tiny", "voice_design")
    assert before == ROPE_INIT_FUNCTIONS
    assert upstream._default_rope not in ROPE_INIT_FUNCTIONS.values()


@pytest.mark.parametrize("had_one", [True, False])
def test_the_rope_registry_is_restored_after_an_error(monkeypatch, had_one):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    def own(*_: object) -> None: ...

    if had_one:
        monkeypatch.setitem(ROPE_INIT_FUNCTIONS, "default", own)
    else:
        monkeypatch.delitem(ROPE_INIT_FUNCTIONS, "default", raising=False)
    with pytest.raises(RuntimeError), default_rope_registered():
        assert ROPE_INIT_FUNCTIONS["default"] is upstream._default_rope
        raise RuntimeError
    assert ROPE_INIT_FUNCTIONS.get("default") is (own if had_one else None)


def test_a_stand_in_says_why_when_it_is_used():
    stand_in = StandIn("sox", OSError("libsox.so not found"))
    with pytest.raises(ImportError, match=r"sox could not be imported \(libsox.so not found\).*25 Hz"):
        stand_in.Transformer  # noqa: B018
    assert not hasattr(stand_in, "__file__")  # what Python and inspect ask of any module
    assert stand_in.__spec__.name == "sox"


def test_stand_ins_exist_only_inside_the_with():
    with pytest.raises(KeyError), stand_ins(("no_such_package.inner.part", "json")) as placed:
        assert placed == ["no_such_package", "no_such_package.inner", "no_such_package.inner.part"]
        import no_such_package.inner.part as part

        with pytest.raises(ImportError, match="No module named"):
            part.anything  # noqa: B018
        raise KeyError
    assert not [name for name in sys.modules if name.startswith("no_such_package")]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_package")
    assert not isinstance(json, StandIn)


def test_a_stand_in_below_a_real_package_leaves_no_trace_on_it():
    """A torchaudio that imports but lacks ``compliance.kaldi`` is a real package that others use."""
    with stand_ins(("json.no_such_part",)) as placed:
        assert placed == ["json.no_such_part"]
    assert "json.no_such_part" not in sys.modules
    assert not hasattr(json, "no_such_part")


def test_a_qwen_tts_that_cannot_be_imported_names_the_mend(monkeypatch):
    imported = upstream.importlib.import_module

    def refuse(name: str, *more: str) -> object:
        if name == "qwen_tts":
            raise ImportError("cannot import name 'check_model_inputs'")
        return imported(name, *more)

    monkeypatch.delitem(sys.modules, "qwen_tts")
    monkeypatch.setattr(upstream.importlib, "import_module", refuse)
    with pytest.raises(ImportError, match=r"check_model_inputs.*Run this pack's install\.py"):
        import_qwen_tts()
    assert not [name for name, module in sys.modules.items() if isinstance(module, StandIn)]
