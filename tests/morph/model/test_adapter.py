"""A model with a LoRA speaks as a checkpoint into which it was merged; the model without it stays as it is."""

import logging
import shutil
import weakref
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.adapter_file import adapt, read_adapter
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.rows import LineRequest
from qwen3_tts_morph.morph.model.weights import Int8Linear, quantize
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from safetensors.torch import load_file, save_file

from tests.morph.adapters import ATTENTION, OTHERS, PREDICTOR, change_config, write_adapter
from tests.morph.decoding import guards_of, prompts_of

ALL = (*ATTENTION, *PREDICTOR, *OTHERS)
PEFT = Path(__file__).resolve().parents[2] / "data" / "peft_lora"


@pytest.fixture(scope="module")
def folders(checkpoint, tmp_path_factory) -> tuple[Path, Path]:
    """Return a checkpoint and an adapter for it, of talker and predictor."""
    path = checkpoint("tiny", "custom_voice")
    return path, write_adapter(tmp_path_factory.mktemp("adapters") / "anna", path, ALL, use_rslora=True)


def codes_of(model, engine: str, seq_groups: int = 15) -> list[torch.Tensor]:
    prompts = prompts_of(model)
    lines = [LineRequest(*line) for line in zip(prompts, guards_of(prompts), range(3), strict=True)]
    decoded = Engine(engine).decode(model, lines, GenerateOptions(seq_groups))
    return [one.codes for one in decoded]


def same(ones: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


def with_weights(path: Path, folder: Path, change) -> Path:
    """Copy a checkpoint with other weights: a function gets them."""
    shutil.copytree(path, folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def merged_by_hand(path: Path, adapter: Path, folder: Path, strength: float = 1.0) -> Path:
    """Write a checkpoint with an adapter merged by peft's formula, W + s B A."""
    pairs = load_file(adapter / "adapter_model.safetensors")

    def add(tensors: dict[str, torch.Tensor]) -> None:
        for layer in ALL:
            up, down = (pairs[f"base_model.model.{layer}.lora_{side}.weight"] for side in "BA")
            tensors[f"{layer}.weight"] += (up @ down) * (strength * 16 / 4**0.5)

    return with_weights(path, folder, add)


@pytest.mark.parametrize(("engine", "strength"), [("graph", -0.4), pytest.param("eager", 1.0, marks=pytest.mark.slow)])
def test_codes_are_those_of_a_merged_checkpoint_and_those_of_the_base_stay(folders, tmp_path, engine, strength):
    path, folder = folders
    base = load_model(path, LoadOptions("fp32"))
    state = {name: tensor.clone() for name, tensor in base.network.state_dict().items()}
    before = codes_of(base, engine)
    model = adapt(base, read_adapter(folder), strength, path)
    merged = load_model(merged_by_hand(path, folder, tmp_path / "merged", strength), LoadOptions("fp32"))
    found = codes_of(model, engine)
    assert same(found, codes_of(merged, engine)) and not same(found, before)
    assert same(codes_of(base, engine), before)
    after = base.network.state_dict()
    assert list(after) == list(state) and all(torch.equal(after[name], state[name]) for name in state)
    expected = merged.network.state_dict()
    assert all(torch.equal(one, expected[name]) for name, one in model.network.state_dict().items())


def test_codes_are_those_of_the_weights_that_peft_recorded(checkpoint, tmp_path):
    recorded = load_file(PEFT / "weights.safetensors")

    def written(when: str) -> Path:
        chosen = {name.removeprefix(f"{when}."): one for name, one in recorded.items() if name.startswith(when)}
        return with_weights(checkpoint("tiny", "custom_voice"), tmp_path / when, lambda all: all.update(chosen))

    path, options = written("before"), LoadOptions("fp32")
    model = adapt(load_model(path, options), read_adapter(PEFT), 1.0, path)
    assert same(codes_of(model, "eager"), codes_of(load_model(written("after"), options), "eager"))


def test_only_what_changes_is_copied_and_it_goes_with_the_model(folders):
    path, folder = folders
    base = load_model(path, LoadOptions("fp32"))
    model = adapt(base, read_adapter(folder), 1.0, path)
    own = {name for name, one in model.network.named_modules() if one is not base.network.get_submodule(name)}
    linears = {name for name in own if isinstance(model.network.get_submodule(name), torch.nn.Linear)}
    heads = {f"talker.code_predictor.lm_head.{index}" for index in range(15)}
    mlps = {"talker.model.layers.1.mlp.up_proj", "talker.code_predictor.model.layers.1.mlp.gate_proj"}
    assert linears == {*ALL, *heads, *mlps}  # with what is joined with them
    assert model.codec is base.codec and model.texts is base.texts
    copied = {one for one in base.module.merged.modules() if isinstance(one, torch.nn.Linear)}
    assert copied == {model.network.get_submodule(name) for name in linears}
    base.module.to(torch.bfloat16)  # as a move to another device
    assert {one.dtype for one in model.network.parameters()} == {torch.bfloat16}
    gone = weakref.ref(model.talker)
    del model
    assert gone() is None and not base.module.merged


def test_strength_0_is_the_model_itself(folders):
    path, folder = folders
    base = Synthesizer.load(path, LoadOptions("fp32"))
    assert base.with_adapter(read_adapter(folder), 0, path) is base


def test_a_second_adapter_is_added_to_the_first(folders, tmp_path):
    path, folder = folders
    second = write_adapter(tmp_path / "second", path, ATTENTION[:1], seed=5)
    base = load_model(path, LoadOptions("fp32"))
    one = adapt(base, read_adapter(folder), 1.0, path)
    both = adapt(one, read_adapter(second), 0.5, path)
    assert both.title == f"{path.name} + LoRA anna at 1 + LoRA second at 0.5" and both.title in both.summary()
    assert both.first is base and one.first is base
    weights = [model.network.get_submodule(ATTENTION[0]).weight for model in (one, both)]
    torch.testing.assert_close(weights[1], read_adapter(second).parts[ATTENTION[0]].added_to(weights[0], 0.5))


@pytest.mark.parametrize("prefix", ["talker.", "talker.model."])
def test_the_training_may_have_begun_with_a_part_of_the_model(folders, tmp_path, prefix):
    path = folders[0]
    base = load_model(path, LoadOptions("fp32"))
    models = [
        adapt(
            base,
            read_adapter(write_adapter(tmp_path / f"{len(one)}", path, ATTENTION, prefix=one)),
            1.0,
            path,
        )
        for one in ("", prefix)
    ]
    assert all(torch.equal(*(model.network.get_submodule(name).weight for model in models)) for name in ATTENTION)


def test_int8_weights_are_those_of_the_sum(folders):
    path, folder = folders
    base = load_model(path, LoadOptions("fp32", weights="int8"))
    adapter = read_adapter(folder)
    model = adapt(base, adapter, 1.0, path)
    file = load_file(path / "model.safetensors")
    name = ATTENTION[0]
    layer, expected = (
        model.network.get_submodule(name),
        quantize(adapter.parts[name].added_to(file[f"{name}.weight"], 1.0)),
    )
    assert isinstance(layer, Int8Linear) and torch.equal(layer.weight, expected.values)
    assert torch.equal(layer.scale, expected.scale) and model.weights == "int8"
    assert not same(codes_of(model, "graph"), codes_of(base, "graph"))
    with pytest.raises(ValueError, match="adapter anna is the second one and weights is int8, which takes one"):
        adapt(model, adapter, 1.0, path)


def test_int8_needs_the_files_that_were_loaded(folders, tmp_path):
    path = shutil.copytree(folders[0], tmp_path / "mine")
    base = load_model(path, LoadOptions("fp32", weights="int8"))
    (path / "config.json").touch()
    with pytest.raises(ValueError, match="checkpoint mine has changed on the disk since it was loaded"):
        adapt(base, read_adapter(folders[1]), 1.0, path)


def test_what_does_not_fit_is_named(checkpoint, folders, tmp_path):
    other = checkpoint("tiny-1.7B", "base")
    model = load_model(other, LoadOptions("fp32"))
    with pytest.raises(
        ValueError, match=r"anna has talker.*q_proj as 64 x 64 and tiny-1.7B-base has it as 64 x 96: it was"
    ):
        adapt(model, read_adapter(write_adapter(tmp_path / "anna", folders[0], ATTENTION[:1])), 1.0, other)
    deep = change_config(
        write_adapter(tmp_path / "flux", folders[0], OTHERS, prefix="talker."), base_model_name_or_path=None
    )
    tensors = {
        name.replace("codec_head", "proj_out"): one
        for name, one in load_file(deep / "adapter_model.safetensors").items()
    }
    save_file(tensors, deep / "adapter_model.safetensors")
    with pytest.raises(
        ValueError, match=r"flux changes proj_out, which tiny.* does not have: load the checkpoint that"
    ):
        adapt(model, read_adapter(deep), 1.0, other)


def test_layers_that_are_not_linear_are_refused(folders, tmp_path):
    path = folders[0]
    names = ("talker.model.codec_embedding",)
    adapter = read_adapter(write_adapter(tmp_path / "mine", path, names))
    with pytest.raises(ValueError, match=r"mine changes talker.model.codec_embedding, a Embedding: only linear layers"):
        adapt(load_model(path, LoadOptions("fp32")), adapter, 1.0, path)


def test_a_sum_that_overflows_is_refused(folders, tmp_path):
    path = folders[0]
    adapter = read_adapter(write_adapter(tmp_path / "loud", path, ATTENTION, lora_alpha=1e40))
    with pytest.raises(ValueError, match=r"adapter loud at strength 4 makes talker\S+ overflow: lower the strength"):
        adapt(load_model(path, LoadOptions("fp32")), adapter, 4.0, path)


def test_the_tails_of_a_predictor_that_changes_are_left_out(tmp_path, caplog):
    path = demo_voice()
    base = load_model(path, LoadOptions("fp32"))
    assert base.tails()
    kept = adapt(base, read_adapter(write_adapter(tmp_path / "talker", path, ATTENTION[:4])), 1.0, path)
    assert kept.tails() == base.tails()
    with caplog.at_level(logging.INFO):
        changed = adapt(base, read_adapter(write_adapter(tmp_path / "both", path, PREDICTOR)), 1.0, path)
    assert changed.tails() == {} and base.tails() and "trained tails do not fit" in caplog.text
