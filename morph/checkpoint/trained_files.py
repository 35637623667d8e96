"""Load the files that training adds to a checkpoint.

``crossbar.safetensors`` has its tails for one or more SEQ_GROUPS; ``letters.safetensors`` the letter table that finds
wrong words.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ..model.tail import Tail, TailInfo
from ..model.weights import Weight
from ..words.guard import LETTERS, LetterTable
from .files import read_tensor, read_tensors
from .find import weight_files

TAIL_FILE, LETTER_FILE = "crossbar.safetensors", "letters.safetensors"
MOST_TAIL_BYTES, MOST_LETTER_BYTES = 4_000_000_000, 100_000_000
FORMAT = "qwen3-tts-crossbar"
VERSION = "1"
LAST_HEAD = "talker.code_predictor.lm_head.14.weight"  # identifies a predictor


def predictor_fingerprint(checkpoint: Path) -> str:
    """Return the SHA-256 of a checkpoint's last predictor head, in bf16; ValueError if it cannot be read.

    Read from the file, not the loaded model: the result must not depend on the chosen precision.
    """
    try:
        head = read_tensor(weight_files(checkpoint), LAST_HEAD)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"checkpoint {checkpoint.name} cannot be read ({error}): download all of it again") from error
    content = head.to(torch.bfloat16).contiguous().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(content).hexdigest()


def load_tails(path: Path, checkpoint: Path, heads: Weight) -> dict[int, Tail]:
    """Read a file of tails; return them by SEQ_GROUPS, in ascending order.

    ``heads`` ``[15, V, H]`` are the stock heads of the model in ``checkpoint``: the tails get their device and dtype.
    Raises ValueError for a file that is damaged, of another format or a later version, or of another checkpoint.
    """
    fix = f"delete it, or train it again with `python -m lab.tails --checkpoint {checkpoint.name}`"
    try:
        tensors, metadata = read_tensors(path, MOST_TAIL_BYTES)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path.name} of {checkpoint.name} is damaged ({error}): {fix}") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path.name} of {checkpoint.name} is not a file of trained tails: {fix}")
    if metadata.get("version") != VERSION:
        raise ValueError(
            f"{path.name} of {checkpoint.name} has format version {metadata.get('version')} and this pack reads "
            f"{VERSION}: update the pack, or {fix}"
        )
    if metadata.get("predictor") != predictor_fingerprint(checkpoint):
        raise ValueError(f"{path.name} of {checkpoint.name} was trained for another checkpoint: {fix}")
    try:
        return _tails(json.loads(metadata["tails"]), tensors, heads)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path.name} of {checkpoint.name} is damaged ({error}): {fix}") from error


def _tails(about: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], heads: Weight) -> dict[int, Tail]:
    parts: dict[str, dict[str, torch.Tensor]] = {key: {} for key in about}
    for name, tensor in tensors.items():
        seq_groups, _, part = name.partition(".")
        parts[seq_groups][part] = tensor
    return {int(key): Tail(int(key), parts[key], TailInfo(**about[key]), heads) for key in sorted(about, key=int)}


def load_letters(path: Path, codes: int) -> LetterTable:
    """Read a table; raise ValueError for a file that is damaged, or not of ``codes`` codes."""
    try:
        tensors, _ = read_tensors(path, MOST_LETTER_BYTES)
        table = LetterTable(**{name: one.float().numpy() for name, one in tensors.items()})
        if table.weights.shape != (3, codes + 1, 3, LETTERS) or table.prior.shape != (3, LETTERS):
            raise ValueError(f"its shapes are {table.weights.shape} and {table.prior.shape}")
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path.name} of {path.parent.name} is damaged or of another checkpoint ({error}): delete it, or make it "
            "again with `python -m lab.words letters`"
        ) from error
    return table
