"""Read LoRA adapters as peft writes them: a folder with ``adapter_config.json`` and ``adapter_model.safetensors``."""

import hashlib
import math
import os
import re
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ...postprocess.checks import is_number, is_whole
from ..model.adapter import Adapter, LowRank, merge
from ..model.finite import all_finite
from ..model.model import Model
from ..options import check_strength
from ..runtime.atomic_file import TooLarge, read_limited
from .configs import UNSUPPORTED
from .files import read_object, read_tensor, unpack_tensors
from .find import ADAPTER, fingerprint_digest, weight_files

WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"  # never read: loading a pickle may run any program
MOST_BYTES = 4_000_000_000  # of its weights: the size of a 1.7B checkpoint in bf16
TENSOR = re.compile(r"(?:base_model\.model\.)?(?P<layer>.{1,300})\.lora_(?P<side>[AB])(?:\.default)?\.weight")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# peft matches its patterns as regular expressions, but writes names: their ends, or a complete one after ^. Other
# patterns are refused: matching one from outside may take for ever.
PATTERN = re.compile(r"(?:\.\*\\?\.)?(\^?(?:[\w-]|\\?\.)+)\$?")
MERGE = "merge it into its checkpoint where you trained it (merge_and_unload of peft), and load that as a checkpoint"
# Initializations that leave the checkpoint's weights unchanged.
BEGUN = (True, False, "gaussian", "eva", "orthogonal")


def read_adapter(folder: Path) -> Adapter:
    """Return the adapter in a folder; ValueError, naming it, if it is missing, damaged or no plain LoRA."""
    name = folder.resolve().name
    try:
        check_files(folder)
        config = read_object(folder / ADAPTER)
        _check_config(config)
        content = read_limited(folder / WEIGHTS, MOST_BYTES)
        tensors, _ = unpack_tensors(content)
        parts = _parts(config, tensors)
    except (OSError, SafetensorError, TooLarge) as error:
        raise ValueError(f"adapter {name} cannot be read ({error}): copy it again") from error
    except ValueError as error:
        raise ValueError(f"adapter {name} cannot be used: {error}") from error
    digest = hashlib.sha256((folder / ADAPTER).read_bytes() + content).hexdigest()
    trained_on = config.get("base_model_name_or_path")
    return Adapter(name, digest, parts, trained_on if isinstance(trained_on, str) else "")


def check_files(folder: Path) -> None:
    """Raise ValueError, without the adapter's name, if a folder lacks one of an adapter's two files."""
    if not os.path.isdir(folder):
        raise ValueError("its folder does not exist: choose another folder, or put it back")
    for name in (ADAPTER, WEIGHTS):
        if not os.path.isfile(folder / name):
            if name == WEIGHTS and os.path.isfile(folder / PICKLED):
                raise ValueError(
                    f"it has {PICKLED}, a pickle, which is never read: load it where you trained it and save it again "
                    "with save_pretrained, as safetensors"
                )
            raise ValueError(f"it lacks {name}: copy the folder that peft wrote, with both of its files")


def adapt(model: Model, adapter: Adapter, strength: float, folder: Path) -> Model:
    """Return a model that speaks with an adapter that was trained for it; strength 1 is as trained.

    ``folder`` is the checkpoint's: for INT8 models, whose own weights are rounded, it is read again.
    Raises ValueError as ``merge`` and ``check_strength``, and for INT8 models if the folder has changed.
    """

    def read_weight(layer: str) -> torch.Tensor:
        if fingerprint_digest(folder) != model.fingerprint:
            raise ValueError(f"checkpoint {model.name} has changed on the disk since it was loaded: load it again")
        return read_tensor(weight_files(folder), f"{layer}.weight")

    return merge(model, adapter, check_strength(strength), read_weight)


def _check_config(config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ValueError(f"it is of type {kind!r}: only LORA can be loaded; {MERGE}")
    for field, what in UNSUPPORTED.items():
        if config.get(field):
            raise ValueError(f"it has {what} ({field}), which cannot be loaded: {MERGE}")
    if config.get("bias", "none") != "none":
        raise ValueError(f"it has biases (bias is {config['bias']!r}), which cannot be loaded: {MERGE}")
    if (begun := config.get("init_lora_weights", True)) not in BEGUN:
        raise ValueError(
            f"it was begun with {begun!r}, which changes the checkpoint's own weights: save it again with "
            "save_pretrained's path_initial_model_for_weight_conversion, or merge it there"
        )


def _parts(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> dict[str, LowRank]:
    """Return the parts by layer; ValueError for tensors that are no pair of matrices of the config's rank."""
    sides: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in sorted(tensors.items()):
        found = TENSOR.fullmatch(name)
        if found is None:
            raise ValueError(f"it has {name[:300]}, which is not of a linear layer's LoRA: {MERGE}")
        if tensor.dtype not in FLOATS:
            raise ValueError(f"it has {name} of type {tensor.dtype}: save it as float32, float16 or bfloat16")
        if tensor.dim() != 2 or not all_finite(tensor):
            raise ValueError(
                f"it has {name} of shape {list(tensor.shape)}, or with numbers that are not finite: train it again, or "
                "copy it again"
            )
        sides.setdefault(found["layer"], {})[found["side"]] = tensor
    if not sides:
        raise ValueError("it has no weights: train it, and save it with save_pretrained")
    ranks, alphas = _patterns(config, "rank_pattern", "r"), _patterns(config, "alpha_pattern", "lora_alpha")
    rooted = bool(config.get("use_rslora"))
    return {
        layer: _part(layer, pair, _of_layer(ranks, layer), _of_layer(alphas, layer), rooted)
        for layer, pair in sides.items()
    }


def _part(layer: str, pair: Mapping[str, torch.Tensor], rank: Any, alpha: Any, rooted: bool) -> LowRank:
    if missing := {"A", "B"} - pair.keys():
        raise ValueError(f"it lacks lora_{missing.pop()} of {layer}: copy it again")
    up, down = pair["B"], pair["A"]
    if not is_whole(rank, 1) or not is_number(alpha):
        raise ValueError(f"it has r {rank!r} and lora_alpha {alpha!r} in {ADAPTER}: both must be numbers, r from 1")
    if (len(down), up.shape[1]) != (rank, rank):
        raise ValueError(
            f"it has {layer} of rank {len(down)} (A) and {up.shape[1]} (B), and {ADAPTER} says {rank}: copy both files "
            "of one training"
        )
    return LowRank(up, down, alpha / (math.sqrt(rank) if rooted else rank))


def _patterns(config: Mapping[str, Any], field: str, otherwise: str) -> dict[str, tuple[int, Any]]:
    """Return (index, value) of a config's patterns by name, and under "" those of all other layers."""
    given = config.get(field) or {}
    if not isinstance(given, Mapping):
        raise ValueError(f"it has {field} {given!r} in {ADAPTER}: it must be an object")
    found = {"": (len(given), config.get(otherwise, 8))}
    for place, (pattern, value) in enumerate(given.items()):
        for name in pattern.split("|"):
            if (parts := PATTERN.fullmatch(name)) is None:
                raise ValueError(
                    f"it has {pattern[:80]!r} in {field}: write names of layers, or their ends such as self_attn.q_proj"
                )
            found.setdefault(parts[1].replace("\\", ""), (place, value))
    return found


def _of_layer(patterns: Mapping[str, tuple[int, Any]], layer: str) -> Any:
    parts = layer.split(".")
    names = ["", f"^{layer}", *(".".join(parts[first:]) for first in range(len(parts)))]
    return min((patterns[name] for name in names if name in patterns), key=itemgetter(0))[1]
