"""A tiny random checkpoint in a folder, and a command line run inside this process with files for its streams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.speech import Speech
from qwen3_tts_morph.morph.hearing import whisper
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.serve import cli

from lab.random_checkpoint import write_checkpoint

TINY_SECONDS = "0.5"  # a random model seldom ends by itself


@dataclass(frozen=True)
class Done:
    """How a run ended: its exit code, stdout as bytes, and stderr."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``checkpoints(kind, shape)``: a checkpoint folder with random weights, written on first use."""
    root = tmp_path_factory.mktemp("checkpoints")

    def get(kind: str = "custom_voice", shape: str = "tiny") -> Path:
        path = root / f"{shape}-{kind}"
        return path if path.is_dir() else write_checkpoint(path, shape, kind)

    return get


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recording of two seconds of a changing tone: enough to clone a voice with a random model."""
    time = np.arange(48000) / 24000
    path = tmp_path_factory.mktemp("recordings") / "a tone.wav"
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * (150 + 40 * time) * time), 24000)
    return path


@pytest.fixture
def spoken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts that are spoken from now on, in the order of their queuing."""
    texts: list[str] = []
    speak = Batch.speak_all

    def watched(self: Batch, lines: Sequence[Line], *more: object) -> list[Speech]:
        texts.extend(line.text for line in lines)
        return speak(self, lines, *more)

    monkeypatch.setattr(Batch, "speak_all", watched)
    return texts


@pytest.fixture
def hears(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """``hears(*words)``: let a recogniser hear these, one after another, and then the last ones; return its sizes."""

    def hear(*words: str) -> list[str]:
        sizes: list[str] = []
        left = list(words)

        def load(size: str, _: Path) -> SimpleNamespace:
            sizes.append(size)
            return SimpleNamespace(name=size, transcribe=lambda *_: left.pop(0) if len(left) > 1 else left[0])

        monkeypatch.setattr(whisper, "load_whisper", load)
        return sizes

    return hear


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use no ComfyUI, a home of the test's own, and one thread."""
    monkeypatch.delenv("COMFYUI_DIR", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    torch.set_num_threads(1)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """``run(*words)``: a command line inside this process."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path) -> Done:
        with (
            (tmp_path / ".out").open("w+") as out,
            (tmp_path / ".err").open("w+") as err,
            monkeypatch.context() as patch,
        ):
            patch.setattr(cli.sys, "stdout", out)
            patch.setattr(cli.sys, "stderr", err)
            try:
                code = cli.main([str(word) for word in words], "speak.py")
            except SystemExit as ended:
                code = int(ended.code or 0)
        done = Done(code, (tmp_path / ".out").read_bytes(), (tmp_path / ".err").read_text())
        (tmp_path / ".out").unlink(), (tmp_path / ".err").unlink()
        return done

    return call


@pytest.fixture
def tiny(checkpoints: Callable[..., Path]) -> list[str]:
    """Return the options that speak short lines with a random model."""
    return ["--checkpoint", str(checkpoints()), "--max-seconds", TINY_SECONDS, "--retries", "0"]
