"""Speaking and cloning import torch and the pack's own code: a broken transformers or librosa cannot stop them."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pack
from tests.patience import PATIENCE

sf = pytest.importorskip("soundfile", reason="not run: the package soundfile is not installed")

# The demo voice clones a recording, and speaks with a preset, with the saved voice, on both engines, a script, and as
# a server, which a client in a thread asks and ends.
PROGRAM = """
import importlib.abc, json, os, signal, sys, threading, time, urllib.request
REFUSED = "transformers qwen_tts librosa sklearn numba pandas torch._dynamo torch.distributed.tensor".split()

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if any(name == one or name.startswith(one + ".") for one in REFUSED):
            raise ImportError(f"{name} is imported")

sys.meta_path.insert(0, Refuse())
import pack
pack.load()
from qwen3_tts_morph.serve.cli import main
from qwen3_tts_morph.serve.process.server import free_ports

def run(*words):
    assert main(["--here", *words], "speak.py") == 0, words

def ask(port):
    address = f"http://127.0.0.1:{port}"
    while True:
        try:
            if urllib.request.urlopen(address + "/ready").status == 200:
                break
        except OSError:
            time.sleep(0.1)
    request = urllib.request.Request(
        address + "/v1/audio/speech",
        json.dumps({"input": "Yes.", "voice": "anna"}).encode(),
        {"Content-Type": "application/json"},
    )
    before = set(sys.modules)
    with open("served.wav", "wb") as file:
        file.write(urllib.request.urlopen(request).read())
    with open("late.json", "w") as file:
        json.dump(sorted(set(sys.modules) - before), file)
    signal.raise_signal(signal.SIGINT)

run("clone", "recording.wav", "--transcript", "A tone.", "--out", "voices/anna.safetensors")
run("Yes.", "--speaker", "michael", "--out", "preset.wav")
run("Yes.", "--voice", "voices/anna.safetensors", "--engine", "eager", "--out", "saved.wav")
run("script", "lines.txt", "--out", "script")
[port] = free_ports(1)
threading.Thread(target=ask, args=(port,), daemon=True).start()
main(["--here", "serve", "--port", str(port), "--voices", "voices"], "speak.py")
"""


def test_speech_needs_no_upstream(tmp_path: Path) -> None:
    (tmp_path / "voices").mkdir()
    (tmp_path / "lines.txt").write_text("Yes.\nNo.\n")
    time = np.arange(2 * 44100) / 44100
    sf.write(tmp_path / "recording.wav", 0.3 * np.sin(2 * np.pi * (150 + 40 * time) * time), 44100)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(pack.ROOT)},
        capture_output=True,
        text=True,
        timeout=20 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "late.json").read_text()) == [], "the first request imports nothing"
    for name in ("preset.wav", "saved.wav", "script/lines.wav", "served.wav"):
        assert (tmp_path / name).is_file(), done.stderr
        waveform, rate = sf.read(tmp_path / name)
        assert rate == 24000 and abs(waveform).max() > 0.01


def test_every_import_of_the_pack_finds_its_module() -> None:
    """Those within functions too, which fail only when they run; mypy ignores modules that it does not find."""
    lost = []
    for top in ("morph", "nodes", "postprocess", "serve"):
        for path in (pack.ROOT / top).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.level and node.module:
                    found = path.parents[node.level - 1].joinpath(*node.module.split("."))
                    if not (found.is_dir() or found.with_suffix(".py").is_file()):
                        lost.append(f"{path.relative_to(pack.ROOT)}:{node.lineno}: {node.module}")
    assert lost == []
