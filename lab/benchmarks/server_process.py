"""Start the real server in its own process, with a checkpoint whose lines never end by themselves."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.process.server import free_ports

import pack

from ..random_checkpoint import SHAPES, write_checkpoint
from .common import DEMO

VOICE = "ann"  # made of random numbers
HEAD = "talker.codec_head.weight"
CAPTURED, PLANNED = "morph_tts_captures_total", "morph_tts_captures_planned"
START_S = 300  # to load a model, compile and capture
WIDTHS = {"F32": 4, "BF16": 2, "F16": 2}  # bytes


def prepare_checkpoint(folder: Path, shape: str, preset: bool) -> tuple[Path, Path | None]:
    """Return a checkpoint's folder, and that of its voices: None for one with presets.

    A random checkpoint is written once, and cannot sample its EOS: a line has the frames that its request allows.
    """
    if shape == DEMO:
        return demo_voice(), None
    kind = "custom_voice" if preset else "base"
    path = folder / f"{shape}-{kind}-muted"
    if not path.is_dir():
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        write_checkpoint(unfinished, shape, kind, dtype=torch.bfloat16)
        mute(unfinished)
        unfinished.rename(path)
    return path, None if preset else write_voice(folder / f"{shape}-voices", shape)


def mute(checkpoint: Path) -> None:
    """Set the row of EOS in the talker's head to zero, in the file: other random logits exceed it."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["talker_config"]
    with (checkpoint / "model.safetensors").open("r+b") as file:
        [length] = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(length))[HEAD]
        row = entry["shape"][1] * WIDTHS[entry["dtype"]]
        file.seek(8 + length + entry["data_offsets"][0] + row * config["codec_eos_token_id"])
        file.write(bytes(row))


def write_voice(folder: Path, shape: str) -> Path:
    """Write an x-vector voice of random numbers into a folder; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = SHAPES[shape]
    embedding = torch.randn(sizes.talker["hidden_size"], generator=torch.Generator().manual_seed(0))
    save_voice(Voice("x_vector", sizes.size, VOICE, embedding), folder / f"{VOICE}.safetensors")
    return folder


@contextmanager
def serving(options: Sequence[str], module: str = "serve") -> Iterator[str]:
    """Start a server as ``started``; yield its address once all planned captures are done."""
    with started(options, module) as (address, _):
        while (now := read_metrics(address)).get(CAPTURED, 0) < now.get(PLANNED, 0):
            time.sleep(0.2)
        yield address


@contextmanager
def started(options: Sequence[str], module: str = "serve") -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start the server of the command line with these options; yield its address and process once it has spoken a line.

    ``module``: the module with the command line, "serve" or "lab.benchmarks.simulated".

    Raises:
        RuntimeError: with the end of its log, if it does not get ready.
    """
    port = free_ports(1)[0]
    command = [sys.executable, "-m", module, "serve", "--port", str(port), *options]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(command, cwd=pack.ROOT, stdout=log, stderr=subprocess.STDOUT)
        address = f"http://127.0.0.1:{port}"
        try:
            if not _wait_ready(address, process):
                log.seek(0)
                raise RuntimeError(f"the server did not get ready: {log.read()[-3000:]}")
            yield address, process
        finally:
            process.terminate()
            process.wait(60)


def _wait_ready(address: str, process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> bool:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/ready", timeout=5):
                return True
        except (urllib.error.URLError, OSError):  # it does not listen yet, or answers 503
            time.sleep(0.2)
    return False


def read_metrics(address: str) -> dict[str, float]:
    """Return the server's own figures, by their names with labels."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}
