"""Tiny random checkpoints in the published format, written once per run, and models loaded from them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import LoadOptions
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from lab.random_checkpoint import write_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``checkpoint(shape, kind)``: a checkpoint folder, written on first use."""
    root = tmp_path_factory.mktemp("checkpoints")

    def get(shape: str = "tiny", kind: str = "base") -> Path:
        path = root / f"{shape}-{kind}"
        return path if path.is_dir() else write_checkpoint(path, shape, kind)

    return get


@pytest.fixture(scope="session")
def load(checkpoint: Callable[..., Path]) -> Callable[..., Model]:
    """``load(shape, kind, precision, attention)``: a model, loaded on first use."""
    loaded: dict[tuple[str, ...], Model] = {}

    def get(shape: str = "tiny", kind: str = "base", precision: str = "fp32", attention: str = "sdpa") -> Model:
        key = (shape, kind, precision, attention)
        if key not in loaded:
            loaded[key] = load_model(checkpoint(shape, kind), LoadOptions(precision, attention))
        return loaded[key]

    return get


@pytest.fixture
def model(load: Callable[..., Model]) -> Model:
    return load("tiny", "custom_voice")


@pytest.fixture
def voice(model: Model) -> Voice:
    return preset_voice(model, "ryan")


@pytest.fixture
def synthesizer(model: Model) -> Synthesizer:
    return Synthesizer(model, Engine("graph"))


@pytest.fixture(scope="session")
def recording() -> np.ndarray:
    """Return two seconds of a changing tone with noise at 24 kHz: enough to clone a voice with a random model."""
    time = np.arange(48000) / 24000
    noise = np.random.default_rng(0).normal(size=time.size)
    return (0.3 * np.sin(2 * np.pi * (150 + 40 * time) * time) + 0.05 * noise).astype(np.float32)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Use one thread: small models run faster, and sums have one order."""
    torch.set_num_threads(1)
