"""Compare a checkpoint's configs with its weight files before a model is loaded.

Models are built on torch's meta device, without memory, and their tensors' names and shapes are compared with the
files' headers. This finds damaged files, and absurd sizes before they allocate gigabytes.
"""

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ..model.network import Network
from ..model.tokens import TextTokenizer
from .configs import MODEL, check_ids, check_kind, check_layers, check_sizes, check_tables, check_types, fill_in
from .files import read_object
from .find import MERGE, MODEL_TYPE, weight_files

log = logging.getLogger(__name__)

CODEC, GENERATION = "speech_tokenizer", "generation_config.json"
FULL = ("not enough memory", "can't allocate memory", "out of memory")  # torch's messages on the CPU
# Not int8 or float8: such a tensor needs a scale, which is stored elsewhere.
FLOATS = ("F64", "F32", "F16", "BF16")
LONGEST_CAUSE = 400  # characters; transformers lists every known name
NAMED = 3  # at most this many tensors are named in a message
LORA = re.compile(r"(?:^|[._])(?:lora|lokr|loha|hada)_")  # in the name of an adapter's tensor
ENCODER = "speaker_encoder."  # only Base checkpoints have one
UNUSED = "quantizer"  # a codec may have more quantizers than the talker has groups


class UnmergedWeights(ValueError):
    """A checkpoint has an adapter's weights besides its own, without which it would speak as the base model."""


@contextmanager
def blame(path: Path) -> Iterator[None]:
    """Turn any error during loading into a ValueError that names the checkpoint; out of memory propagates unchanged.

    A damaged config may raise anything: KeyError, TypeError, RuntimeError.
    """
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"checkpoint {path.name} has a damaged weight file ({error}): download it again") from error
    except UnmergedWeights as error:
        raise ValueError(f"checkpoint {path.name} {error}") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ValueError(
            f"checkpoint {path.name} cannot be loaded ({_cause(error)}): download it again, or undo the changes to its "
            "files"
        ) from error


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means that GPU or CPU memory is full."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(one in str(error) for one in FULL)


def _cause(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0][:LONGEST_CAUSE]
    return first if isinstance(error, ValueError) and first else f"{type(error).__name__}: {first}"


def build_network(path: Path) -> tuple[Network, SimpleNamespace]:
    """Check a checkpoint's own config and weights; return its network on the meta device, and the config.

    Raises ValueError, naming the field or the tensor. A config that cannot be built may raise any other exception.
    """
    given = read_config(path, MODEL, MODEL_TYPE)
    check_tables(given)
    config = fill_in(given, MODEL)
    check_kind(config)
    with torch.device("meta"):
        network = Network(config)
    check_weights(path, network)
    check_layers(config.talker_config)
    check_layers(config.talker_config.code_predictor_config)
    check_ids(config)
    return network, config


def read_generation(path: Path) -> dict[str, Any]:
    """Return the object in GENERATION; trainers may leave it out: then that of the published checkpoints."""
    if (path / GENERATION).is_file():
        return read_object(path / GENERATION)
    log.warning("%s has no %s: the sampling is that of the published checkpoints", path.name, GENERATION)
    return {"max_new_tokens": 8192}


def read_config(folder: Path, defaults: Mapping[str, Any], kind: str, where: str = "") -> dict[str, Any]:
    """Return a folder's config.json, whose values have the types of ``defaults``."""
    given, name = read_object(folder / "config.json"), f"{where}config.json"
    if given.get("model_type") != kind:
        raise ValueError(f"model_type in {name} is {given.get('model_type')!r}: it must be {kind}")
    if given.get("quantization_config"):
        raise ValueError(f"{name} has a quantization_config: quantised checkpoints cannot be loaded")
    check_sizes(given, name)
    check_types(given, defaults, name)
    return given


def check_tokenizer(texts: TextTokenizer, config: Any) -> None:
    """Raise ValueError if a tokenizer has other ids than the config."""
    size = config.talker_config.text_vocab_size
    highest = max(texts.backend.get_vocab().values(), default=-1)
    if highest >= size:
        raise ValueError(f"the tokenizer has the id {highest} and text_vocab_size in config.json is {size}")
    for token, expected in (("<|im_start|>", config.im_start_token_id), ("<|im_end|>", config.im_end_token_id)):
        if texts.controls.get(token) != expected:
            raise ValueError(f"the tokenizer does not know {token} as {expected}, the id in config.json")


def read_headers(files: Collection[Path]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and type, as safetensors names it, of all tensors in files; SafetensorError for a damaged file."""
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  (not a mapping)
                part = opened.get_slice(name)
                found[name] = tuple(part.get_shape()), str(part.get_dtype())
    return found


def check_weights(folder: Path, model: torch.nn.Module, where: str = "") -> None:
    """Raise ValueError, naming the tensors, if a folder's weight files do not match a model.

    ``model`` is on the meta device; ``where`` prefixes file names in messages, such as "speech_tokenizer/".
    Tensors must not be missing, of another shape, not floating-point, or of layers that the config does not have; other
    unneeded tensors are logged. Raises UnmergedWeights for tensors of an adapter, such as a LoRA.
    """
    needed, found = model.state_dict(), read_headers(weight_files(folder))
    if adapter := [f"{where}{name}" for name in found if LORA.search(name) and name not in needed]:
        raise UnmergedWeights(f"has weights of an adapter that is not merged ({_some(adapter)}): {MERGE}")
    missing = [name for name in needed if name not in found]
    if missing and all(name.startswith(ENCODER) for name in missing):
        raise ValueError(
            f"tts_model_type in {where}config.json is base, and the files have no speaker encoder ({_some(missing)}): "
            "a model that was trained for speakers of its own is custom_voice"
        )
    if missing:
        raise ValueError(f"{where}config.json needs weights that the files lack: {_some(missing)}")
    for name, tensor in needed.items():
        _check_tensor(f"{where}{name}", tensor, *found[name])
    unneeded = [name for name in found if name not in needed]
    known = {_unnumbered(name) for name in needed}
    beyond = [name for name in unneeded if _unnumbered(name) in known and UNUSED not in name]
    if beyond:
        raise ValueError(f"{where}config.json does not use weights that the files have: {_some(beyond)}")
    if unneeded:
        log.info("%s: not needed: %s", folder.name, _some(unneeded))


def _check_tensor(name: str, needed: torch.Tensor, shape: tuple[int, ...], kind: str) -> None:
    if shape != (wanted := tuple(needed.shape)):
        raise ValueError(f"{name} has shape {list(shape)} and its config needs {list(wanted)}")
    if needed.is_floating_point() and kind not in FLOATS:
        raise ValueError(f"{name} is of type {kind}: only {', '.join(FLOATS)} can be loaded")


def _unnumbered(name: str) -> str:
    """Return a tensor's name without numbers, the same for all layers of a list."""
    return re.sub(r"\d+", "#", name)


def _some(names: list[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
