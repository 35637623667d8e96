import shutil

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.weights import join, joined, stack
from qwen3_tts_morph.morph.options import LoadOptions
from safetensors.torch import load_file, save_file

from tests.morph.model.moving import move
from tests.morph.model.stacking import stacked


def heads(kind: str = "linear", count: int = 15) -> torch.nn.ModuleList:
    torch.manual_seed(0)
    make = {
        "linear": lambda: torch.nn.Linear(7, 11, bias=False),
        "embedding": lambda: torch.nn.Embedding(11, 7),
    }
    return torch.nn.ModuleList(make[kind]() for _ in range(count))


def weights_of(modules: torch.nn.Module) -> list[torch.Tensor]:
    return [module.weight.detach().clone() for module in modules]


def storage_bytes(module: torch.nn.Module) -> int:
    """Return the bytes of all storages of the parameters, each counted once."""
    storages = [parameter.untyped_storage() for parameter in module.parameters()]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def test_weights_of_unequal_rows_are_joined_as_they_follow_each_other():
    modules = torch.nn.ModuleList(torch.nn.Linear(7, rows, bias=False) for rows in (6, 2, 2))
    values, before = weights_of(modules), storage_bytes(modules)
    home = join(modules)
    assert torch.equal(home, torch.cat(values)) and home.shape == (10, 7)
    assert storage_bytes(modules) == before == home.untyped_storage().nbytes()
    assert join(modules).data_ptr() == joined(modules).data_ptr() == modules[0].weight.data_ptr()
    move(modules)
    assert joined(modules) is None
    assert torch.equal(join(modules), torch.cat(values))


@pytest.mark.parametrize("kind", ["linear", "embedding"])
def test_stacking_adds_no_memory_and_keeps_the_parameters(kind):
    modules = heads(kind)
    parameters, values, before = list(modules.parameters()), weights_of(modules), storage_bytes(modules)
    home = stack(modules)
    assert home.shape == (15, 11, 7)
    assert torch.equal(home, torch.stack(values))
    assert storage_bytes(modules) == before == home.untyped_storage().nbytes()
    assert home.untyped_storage().data_ptr() == parameters[0].untyped_storage().data_ptr()
    assert all(new is old for new, old in zip(modules.parameters(), parameters, strict=True))


def test_the_stack_and_the_weights_are_the_same_numbers():
    modules = heads()
    home = stack(modules)
    with torch.no_grad():
        modules[4].weight.fill_(2.5)
    assert (home[4] == 2.5).all()
    assert torch.equal(stacked(modules), home)
    assert not stacked(modules).requires_grad


def test_stacking_twice_moves_nothing():
    modules = heads()
    first = stack(modules)
    assert stack(modules).data_ptr() == first.data_ptr() == modules[0].weight.data_ptr()


def test_a_move_is_noticed_and_stacked_again():
    modules = heads()
    values = weights_of(modules)
    old = stack(modules)
    move(modules)
    assert stacked(modules) is None
    new = stack(modules)
    assert new.data_ptr() != old.data_ptr()
    assert torch.equal(new, torch.stack(values))
    assert stacked(modules) is not None


def test_one_moved_weight_is_noticed():
    modules = heads()
    stack(modules)
    modules[14].weight.data = modules[14].weight.data.clone()
    assert stacked(modules) is None


def test_views_of_one_tensor_in_another_order_are_not_taken_for_a_stack():
    modules = heads(count=3)
    home = stack(modules)
    modules[0].weight.data, modules[1].weight.data = home[1], home[0]
    assert stacked(modules) is None
    assert torch.equal(stack(modules), home[[1, 0, 2]])


def test_weights_of_two_stacks_are_not_taken_for_one():
    """Each has the offset that it would have in a stack, but in a different storage."""
    one, two = heads(count=3), heads(count=3)
    stack(one), stack(two)
    mixed = torch.nn.ModuleList([one[0], two[1], one[2]])
    assert stacked(mixed) is None
    values = weights_of(mixed)
    assert torch.equal(stack(mixed), torch.stack(values))


def test_a_stack_inside_a_larger_storage_is_returned_as_a_part_of_it():
    modules = heads(count=3)
    shared = torch.randn(5, 11, 7)
    for module, place in zip(modules, shared[2:], strict=True):
        module.weight.data = place
    assert torch.equal(stacked(modules), shared[2:])


def test_under_inference_mode_the_weights_stay_ordinary():
    """ComfyUI runs nodes under inference_mode; inference tensors could not be moved or trained afterwards."""
    modules = heads()
    values = weights_of(modules)
    with torch.inference_mode():
        stack(modules)
    assert not any(weight.is_inference() for weight in modules.parameters())
    modules.to(torch.float64)
    assert all(torch.equal(a.float(), b) for a, b in zip(weights_of(modules), values, strict=True))
    modules[3].weight.sum().backward()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_stacked_model_saves_and_loads_back_bit_equal(checkpoint, tmp_path, precision):
    source, copy = checkpoint("tiny", "base"), tmp_path / "copy"
    model = load_model(source, LoadOptions(precision, "sdpa"))
    predictor = model.talker.code_predictor
    assert stacked(predictor.lm_head) is not None
    assert stacked(predictor.model.codec_embedding) is not None
    shutil.copytree(source, copy)
    (copy / "model.safetensors").unlink()
    # As upstream's fine-tuning saves
    save_file(model.network.state_dict(), copy / "model.safetensors", metadata={"format": "pt"})
    wanted = dict(model.network.state_dict())
    saved = load_file(copy / "model.safetensors")
    assert saved.keys() == wanted.keys()
    assert all(torch.equal(saved[key], wanted[key]) for key in wanted)
    again = load_model(copy, LoadOptions(precision, "sdpa")).network.state_dict()
    assert all(torch.equal(again[key], wanted[key]) for key in wanted)
