"""Random checkpoints: the published format, reproducible from the seed, and loud enough to hear."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import LoadOptions
from safetensors.torch import load_file

from lab.random_checkpoint import write_checkpoint

WEIGHTS = ("model.safetensors", "speech_tokenizer/model.safetensors")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    """Small models run faster on one thread."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("written") / "new" / "folder", "tiny", "base", seed=1)


@pytest.fixture(scope="module")
def load(tmp_path_factory) -> Callable[[str, str], Model]:
    """``load(shape, kind)``: a model, written and loaded on first use."""
    root, loaded = tmp_path_factory.mktemp("loaded"), {}

    def get(shape: str = "tiny", kind: str = "base") -> Model:
        if (shape, kind) not in loaded:
            path = write_checkpoint(root / f"{shape}-{kind}", shape, kind)
            loaded[shape, kind] = load_model(path, LoadOptions("fp32", "sdpa"))
        return loaded[shape, kind]

    return get


def weights(path: Path) -> dict[str, torch.Tensor]:
    return {f"{name}/{key}": value for name in WEIGHTS for key, value in load_file(path / name).items()}


def test_the_same_seed_gives_the_same_files_and_another_seed_other_weights(written, tmp_path):
    again = write_checkpoint(tmp_path / "again", "tiny", "base", seed=1)
    names = sorted(str(file.relative_to(written)) for file in written.rglob("*") if file.is_file())
    assert names == sorted(str(file.relative_to(again)) for file in again.rglob("*") if file.is_file())
    assert all((written / name).read_bytes() == (again / name).read_bytes() for name in names)
    other, ours = weights(write_checkpoint(tmp_path / "other", "tiny", "base", seed=2)), weights(written)
    talker = "model.safetensors/talker.model.layers.0.self_attn.q_proj.weight"
    assert other.keys() == ours.keys() and not torch.equal(other[talker], ours[talker])


@pytest.mark.parametrize("kind", ["base", "custom_voice", "voice_design"])
@pytest.mark.parametrize("shape", ["tiny", "tiny-1.7B"])
def test_each_kind_has_what_the_published_one_has(load, shape, kind):
    model = load(shape, kind)
    projection = model.talker.code_predictor.small_to_mtp_projection
    assert model.can_clone == (kind == "base")
    assert bool(model.speakers) == (kind == "custom_voice")
    assert isinstance(projection, torch.nn.Identity if shape == "tiny" else torch.nn.Linear)
    assert model.talker.code_predictor.model.codec_embedding[0].weight.shape[1] == model.width
