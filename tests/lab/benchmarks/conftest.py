"""A tiny Base checkpoint, and a model of it with short lines."""

import dataclasses
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import LoadOptions

from lab.random_checkpoint import write_checkpoint

FRAMES = 7


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", "tiny", "base")


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cap the lines of the study's models: a random model may not end by itself."""
    from lab.benchmarks.quality import __main__ as command

    monkeypatch.setattr(command, "load_model", load_short)


def load_short(path: Path, options: LoadOptions | None = None, device: str = "cpu") -> Model:
    model = load_model(path, options, device)
    model.sampling = dataclasses.replace(model.sampling, max_new_tokens=FRAMES + 1)
    return model


@pytest.fixture(scope="session")
def model(tiny: Path) -> Model:
    torch.set_num_threads(1)
    return load_short(tiny)
