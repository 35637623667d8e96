"""Loading: the chosen dtype, stacked weights, and clear errors for options that the machine does not support."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import choose_attention, choose_dtype, load_model
from qwen3_tts_morph.morph.options import LoadOptions
from safetensors.torch import load_file

from lab.random_checkpoint import write_checkpoint

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@pytest.fixture
def gpu(monkeypatch):
    """``gpu(capability, flash)``: makes torch and the installed packages report a GPU that does not exist."""

    def set_up(capability: tuple[int, int] = (8, 0), flash: bool = False) -> None:
        found = importlib.util.find_spec
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *more: (object() if flash else None) if name == "flash_attn" else found(name, *more),
        )

    return set_up


@pytest.fixture(scope="module")
def saved(tmp_path_factory, checkpoint):
    """``saved(dtype)``: a tiny checkpoint whose weights were saved in that dtype."""
    root = tmp_path_factory.mktemp("bf16")

    def get(dtype: str) -> Path:
        return checkpoint() if dtype == "fp32" else write_checkpoint(root, "tiny", "base", 0, torch.bfloat16)

    return get


def test_every_weight_is_the_files(checkpoint):
    """Before transformers 5.15 upstream's initialisation overwrote what had been loaded; nothing said so."""
    path = checkpoint("tiny", "base")
    model = load_model(path, LoadOptions("fp32", "sdpa"))
    for part, folder in ((model.network, path), (model.codec, path / "speech_tokenizer")):
        saved = load_file(folder / "model.safetensors")
        state = part.state_dict()
        wrong = [name for name, tensor in saved.items() if not torch.equal(state[name], tensor)]
        assert len(saved) > 50 and wrong == []


@pytest.fixture
def copied(checkpoint, tmp_path) -> Path:
    return shutil.copytree(checkpoint("tiny", "base"), tmp_path / "mine")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kept", ["fp32", "bf16"])
def test_weights_have_the_chosen_dtype(saved, kept, precision):
    model = load_model(saved(kept), LoadOptions(precision, "sdpa"))
    dtypes = {name: weight.dtype for name, weight in model.module.named_parameters()}
    assert {"talker", "codec"} == {name.split(".")[0] for name in dtypes}
    assert set(dtypes.values()) == {DTYPES[precision]}
    assert model.dtype == DTYPES[precision]


def test_a_loaded_model_is_for_speaking_only(load):
    model = load("tiny", "base")
    assert not any(weight.requires_grad for weight in model.module.parameters())
    assert not any(module.training for module in model.module.modules())
    # Inference tensors could not be moved by ComfyUI.
    assert not any(weight.is_inference() for weight in model.module.parameters())


@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_without_move_the_weights_stay_on_the_cpu(checkpoint, gpu, device):
    gpu((8, 0))
    model = load_model(checkpoint(), LoadOptions(), device, move=False)
    assert {weight.device.type for weight in model.module.parameters()} == {"cpu"}
    # Chosen for the device where it will run, not for the CPU.
    assert model.dtype == (torch.bfloat16 if device == "cuda" else torch.float32)


def test_with_move_talker_and_codec_go_together(checkpoint):
    model = load_model(checkpoint(), LoadOptions("fp32", "sdpa"), "meta")
    assert {weight.device.type for weight in model.module.parameters()} == {"meta"}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_reaches_talker_and_predictor(checkpoint, attention):
    model = load_model(checkpoint(), LoadOptions("fp32", attention))
    assert model.attention == attention
    assert model.talker.code_predictor.config.attention == attention


@pytest.mark.parametrize(
    ("precision", "device", "capability", "dtype"),
    [
        ("auto", CPU, (0, 0), torch.float32),
        ("auto", CUDA, (8, 0), torch.bfloat16),
        ("auto", CUDA, (9, 0), torch.bfloat16),
        ("auto", CUDA, (12, 0), torch.bfloat16),
        ("auto", CUDA, (7, 5), torch.float32),
        ("auto", torch.device("mps"), (0, 0), torch.float32),
        ("bf16", CPU, (0, 0), torch.bfloat16),
        ("bf16", CUDA, (8, 6), torch.bfloat16),
        ("fp32", CUDA, (7, 5), torch.float32),
        ("fp16", CUDA, (7, 5), torch.float16),
        ("fp16", CUDA, (8, 0), torch.float16),
    ],
)
def test_the_dtype_fits_the_device(gpu, precision, device, capability, dtype):
    gpu(capability)
    assert choose_dtype(precision, device) == dtype


def test_dtypes_that_a_device_cannot_do_are_refused(gpu, checkpoint):
    gpu((7, 5))
    with pytest.raises(ValueError, match="bf16 and Tesla T4 does not support it: choose auto"):
        choose_dtype("bf16", CUDA)
    with pytest.raises(ValueError, match="fp16 and the device is the CPU"):
        load_model(checkpoint(), LoadOptions("fp16", "sdpa"))


@pytest.mark.parametrize(
    ("attention", "device", "flash", "chosen"),
    [
        ("auto", CUDA, True, "sdpa"),
        ("auto", CPU, False, "sdpa"),
        ("flash_attention_2", CUDA, True, "flash_attention_2"),
        ("sdpa", CUDA, True, "sdpa"),
        ("eager", CPU, False, "eager"),
    ],
)
def test_the_attention_fits_the_machine(gpu, attention, device, flash, chosen):
    gpu(flash=flash)
    assert choose_attention(attention, device, torch.bfloat16) == chosen


@pytest.mark.parametrize(("device", "flash"), [(CUDA, False), (CPU, True), (CPU, False)])
def test_flash_attention_that_cannot_run_is_refused(gpu, checkpoint, device, flash):
    gpu(flash=flash)
    reason = "the device is cpu, not CUDA" if flash else "flash-attn is not installed"
    with pytest.raises(ValueError, match=f"flash_attention_2 and {reason}: choose auto or sdpa"):
        load_model(checkpoint(), LoadOptions("fp32", "flash_attention_2"), device)


def test_flash_attention_does_not_do_fp32(gpu, checkpoint):
    gpu(flash=True)
    with pytest.raises(ValueError, match="flash_attention_2 and precision is fp32"):
        load_model(checkpoint(), LoadOptions("fp32", "flash_attention_2"), CUDA)


def test_flash_attention_needs_compute_capability_8(gpu, checkpoint):
    gpu((7, 5), flash=True)
    with pytest.raises(ValueError, match=r"flash_attention_2 and .* is too old for flash-attn"):
        load_model(checkpoint(), LoadOptions("fp16", "flash_attention_2"), CUDA, move=False)


def test_missing_files_are_named_before_anything_is_loaded(copied):
    (copied / "speech_tokenizer" / "model.safetensors").unlink()
    (copied / "merges.txt").unlink()
    with pytest.raises(ValueError, match=r"mine lacks merges\.txt, speech_tokenizer/model\.safetensors"):
        load_model(copied)
    with pytest.raises(ValueError, match="folder gone does not exist"):
        load_model(copied.parent / "gone")


def change(path: Path, **fields: str) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, **fields}), encoding="utf-8")


@pytest.mark.parametrize("codec_too", [False, True], ids=["its word alone", "its codec too"])
def test_a_25_hz_checkpoint_is_refused(copied, codec_too):
    change(copied / "config.json", tokenizer_type="qwen3_tts_tokenizer_25hz")
    if codec_too:
        change(copied / "speech_tokenizer" / "config.json", model_type="qwen3_tts_tokenizer_25hz")
    with pytest.raises(ValueError, match="checkpoint mine uses qwen3_tts_tokenizer_25hz: only 12 Hz"):
        load_model(copied)


@pytest.mark.parametrize(("field", "value"), [("precision", "int8"), ("attention", "sage")])
def test_unknown_options_are_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} is '{value}': choose one of auto"):
        LoadOptions(**{field: value})
