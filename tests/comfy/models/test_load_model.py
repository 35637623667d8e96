"""Load Model with ComfyUI's modules: its schema survives broken model folders, and choices are checked early."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import comfy.cli_args
comfy.cli_args.args.cpu = True
import json, sys
from pathlib import Path
import folder_paths
import pack
pack.load()
from qwen3_tts_morph.morph.checkpoint.find import DEMO_VOICE, DEMO_VOICE_PATH, PUBLISHED
from qwen3_tts_morph.nodes.models import load
from qwen3_tts_morph.nodes.models.load import LoadModel

folder_paths.models_dir = sys.argv[1]
shown = lambda: LoadModel.define_schema().inputs[0].options
assert shown() == [DEMO_VOICE, "TTS/good", *PUBLISHED], shown()

valid = dict(checkpoint="TTS/good", precision="auto", attention="auto", engine="auto")
assert LoadModel.validate_inputs(**valid) is True
assert LoadModel.validate_inputs(**{name: None for name in valid}, weights=None) is True
said = [LoadModel.validate_inputs(**{**valid, name: value}) for name, value in json.loads(sys.argv[2])]
assert str(DEMO_VOICE_PATH / "morph.json") in [one[0] for one in LoadModel.fingerprint_inputs(DEMO_VOICE)]

assert LoadModel.fingerprint_inputs(None) == [], "wired: what it gets is no change of a file"

def fail(roots):
    raise RuntimeError("a listing that fails")

load.list_checkpoints = fail
assert shown() == [DEMO_VOICE, *PUBLISHED]
print(json.dumps(said))
"""
ODD = {"deep": "[" * 100_000, "cut": '{"model_type": "qwen3_tts"', "number": "9" * 10_000}
REFUSED = [
    ("precision", "fp8", "precision is 'fp8': choose one of auto, bf16"),
    ("precision", "fp16", "precision is fp16 and the device is the CPU: choose auto"),
    ("precision", 16, "precision is 16: choose one of"),
    ("attention", "sage", "attention is 'sage': choose one of auto"),
    ("attention", "flash_attention_2", "attention is flash_attention_2 and "),
    ("engine", "x", "engine is 'x': choose one of auto"),
    ("engine", {}, "engine is {}: choose one of auto"),
    ("weights", "int4", "weights is 'int4': choose one of full"),
    ("checkpoint", "TTS/gone", "checkpoint 'TTS/gone' no longer exists"),
    ("checkpoint", {}, "checkpoint is {}: choose one from the list"),
]


def test_the_schema_survives_broken_folders_and_choices_are_checked(
    comfy_dir: Path, comfy_python: str, tmp_path: Path
) -> None:
    for name, content in {**ODD, "good": '{"model_type": "qwen3_tts"}'}.items():
        (tmp_path / "TTS" / name).mkdir(parents=True)
        (tmp_path / "TTS" / name / "config.json").write_text(content, encoding="utf-8")
    asked = json.dumps([case[:2] for case in REFUSED])
    done = subprocess.run(
        [comfy_python, "-c", SCRIPT, str(tmp_path), asked],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(comfy_dir), str(ROOT)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    for (name, value, sentence), one in zip(REFUSED, said, strict=True):
        assert one is not True and sentence in one, (name, value, one)
    assert "a listing that fails" in done.stderr
    assert all(f"{name}' is left out" in done.stderr for name in ODD)
