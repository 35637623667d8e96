"""A LoRA adapter, merged into copies of the weights that it changes; all other weights are shared.

The base model keeps its weights and speaks as before, bit for bit; nothing has to be subtracted later. The copies join
its module, so that they move between devices together.
"""

import copy
import hashlib
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .finite import all_finite
from .model import AppliedAdapter, Model
from .weights import Int8Linear

log = logging.getLogger(__name__)

# The module that was trained: the network, its talker, or the talker's layers.
PREFIXES = ("", "talker.", "talker.model.")
PREDICTOR = "talker.code_predictor."
# Weights that are joined (``joined_weights``): all of them are copied if one is changed.
JOINED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
HEADS = "lm_head"

# Returns a layer's weight in full precision, from the checkpoint's files.
ReadWeight = Callable[[str], torch.Tensor]


@dataclass(frozen=True, eq=False)
class LowRank:
    """An update of a linear layer's weight ``[N, K]``: ``scale * up @ down``."""

    up: torch.Tensor  # [N, R], peft's ``lora_B``
    down: torch.Tensor  # [R, K], peft's ``lora_A``
    scale: float  # alpha over R or its root

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.up), self.down.shape[1]

    def added_to(self, weight: torch.Tensor, strength: float) -> torch.Tensor:
        """Return the sum with a weight as a new tensor: peft's ``merge_and_unload``."""
        # In float32 on the CPU, so that it is the same for models on any device.
        product = (self.up.float() @ self.down.float()) * (strength * self.scale)
        return (weight.detach().float() + product.to(weight.device)).to(weight.dtype)


@dataclass(frozen=True, eq=False)
class Adapter:
    """A LoRA: low-rank updates by layer name, as the training named them."""

    name: str  # of its folder
    digest: str  # SHA-256 of its files
    parts: Mapping[str, LowRank]
    trained_on: str = ""  # the base checkpoint that its config names


def merge(model: Model, adapter: Adapter, strength: float, read_weight: ReadWeight) -> Model:
    """Return a model that speaks with an adapter (strength 1: as trained); at strength 0 the same object.

    It shares the tokenizer, codec, lock and unchanged weights with ``model``. Free the engine of each before either
    moves to another device. INT8 models need ``read_weight``, as their own weights are rounded, and take one adapter.
    Raise ValueError for missing layers or other shapes, and for sums that are not finite.
    """
    parts = find_layers(model, adapter)
    if strength == 0:
        return model
    if model.weights == "int8" and model.adapters:
        raise ValueError(
            f"adapter {adapter.name} is the second one and weights is int8, which takes one: choose weights full"
        )
    with model.exclusive(), torch.inference_mode(False), torch.no_grad():
        changed = {name: _merged_layer(model, name, part, strength, read_weight) for name, part in parts.items()}
        for name, layer in changed.items():
            if not all_finite(layer.scale if isinstance(layer, Int8Linear) else layer.weight):
                raise ValueError(
                    f"adapter {adapter.name} at strength {strength:g} makes {name} overflow: lower the strength, or "
                    "choose precision bf16 or fp32"
                )
        for name in _joined_with(model, changed):
            changed[name] = _own(model.network.get_submodule(name))
        return _with_layers(model, changed, AppliedAdapter(adapter.name, adapter.digest, float(strength)))


def find_layers(model: Model, adapter: Adapter) -> dict[str, LowRank]:
    """Return an adapter's parts by the network's layer names; raise ValueError naming a layer that does not fit."""
    layers = dict(model.network.named_modules())
    for prefix in PREFIXES:
        if all(f"{prefix}{name}" in layers for name in adapter.parts):
            break
    else:
        unknown = next(name for name in adapter.parts if not any(f"{one}{name}" in layers for one in PREFIXES))
        raise ValueError(f"adapter {adapter.name} changes {unknown}, which {model.name} does not have: {_fix(adapter)}")
    parts = {f"{prefix}{name}": part for name, part in adapter.parts.items()}
    for name, part in parts.items():
        layer = layers[name]
        if not isinstance(layer, torch.nn.Linear | Int8Linear):
            raise ValueError(
                f"adapter {adapter.name} changes {name}, a {type(layer).__name__}: only linear layers can be changed; "
                "train it again with others as target_modules"
            )
        if (shape := tuple(layer.weight.shape)) != part.shape:
            raise ValueError(
                f"adapter {adapter.name} has {name} as {_by(part.shape)} and {model.name} has it as {_by(shape)}: "
                f"{_fix(adapter)}"
            )
    return parts


def _fix(adapter: Adapter) -> str:
    if adapter.trained_on:
        return f"it was trained on {adapter.trained_on}; load that checkpoint"
    return "load the checkpoint that it was trained on"


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _merged_layer(model: Model, name: str, part: LowRank, strength: float, read_weight: ReadWeight) -> Any:
    layer: Any = model.network.get_submodule(name)
    if not isinstance(layer, Int8Linear):
        return _linear(part.added_to(layer.weight, strength), layer.bias)
    full = part.added_to(read_weight(name).to(model.dtype), strength)
    return Int8Linear(_linear(full, layer.bias)).to(layer.weight.device)


def _linear(weight: torch.Tensor, bias: torch.nn.Parameter | None) -> torch.nn.Linear:
    layer: Any = torch.nn.Linear(weight.shape[1], len(weight), bias=False, device="meta")
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.bias = bias
    layer.eval()
    return layer


def _own(layer: Any) -> torch.nn.Module:
    if not isinstance(layer, Int8Linear):
        return _linear(layer.weight.detach().clone(), layer.bias)
    other = copy.copy(layer)
    other._buffers = {name: None if one is None else one.clone() for name, one in layer._buffers.items()}
    return other


def _joined_with(model: Model, names: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        parent, _, last = name.rpartition(".")
        if parent.endswith(HEADS):
            heads = model.talker.code_predictor.lm_head
            found |= dict.fromkeys(f"{parent}.{index}" for index in range(len(heads)))
        for group in JOINED:
            if last in group:
                found |= dict.fromkeys(f"{parent}.{one}" for one in group)
    return [name for name in found if name not in names]


def _with_layers(model: Model, changed: Mapping[str, torch.nn.Module], applied: AppliedAdapter) -> Model:
    network: Any = replace_layers(model.network, changed)
    tails = dict(model.module.tails.items())
    if tails and any(name.startswith(PREDICTOR) for name in changed):
        log.info("%s: its trained tails do not fit the predictor that %s changes: left out", model.name, applied.name)
        tails = {}
    other = model.with_network(network, tails)
    other.adapters = (*model.adapters, applied)
    if model.fingerprint:
        said = f"{model.fingerprint} {applied.digest} {applied.strength!r}"
        other.fingerprint = hashlib.sha256(said.encode()).hexdigest()
    merged, key = model.first.module.merged, str(id(other))
    merged[key] = torch.nn.ModuleList(changed.values())
    weakref.finalize(other, _forget, merged, key).atexit = False
    return other


def replace_layers(module: torch.nn.Module, changed: Mapping[str, torch.nn.Module]) -> torch.nn.Module:
    """Return a copy of a module with some modules below it replaced. It shares all others and its tensors."""
    if "" in changed:
        return changed[""]
    below: dict[str, dict[str, torch.nn.Module]] = {}
    for name, layer in changed.items():
        first, _, rest = name.partition(".")
        below.setdefault(first, {})[rest] = layer
    other = copy.copy(module)  # its own tensors stay in the same dicts: a move of one is seen by the other
    other._modules = dict(module._modules)
    for name, layers in below.items():
        other._modules[name] = replace_layers(module.get_submodule(name), layers)
    return other


def _forget(merged: torch.nn.ModuleDict, key: str) -> None:
    """Remove copies. The garbage collector may call this during an iteration over the modules: they get a new dict."""
    left = dict(merged._modules)
    left.pop(key, None)
    merged._modules = left
