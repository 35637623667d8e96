"""The trained tail: small weights that bring the crossbar nearer to the exact distributions, from a file.

The stock crossbar gives the last sequential state to heads that were trained on later states, and that state has not
seen the last sequential token. ``lab/training/crossbar`` trains, for a checkpoint and a SEQ_GROUPS, any of these parts
(G = 15 - SEQ_GROUPS; H, V the predictor's width and codebook):

- ``token`` ``[V, H]``: what the last sequential token adds to the state;
- ``mix_up`` ``[M, H]``, ``mix_down`` ``[H, M]``: a residual layer on the state, shared by all groups;
- ``group_up`` ``[M, H]``, ``group_down`` ``[G, H, M]``: a residual layer with an output of its own for each group;
- ``left`` ``[G, V, R]``, ``right`` ``[G, R, H]``: a low-rank correction to the stock heads;
- ``heads`` ``[G, V, H]``: heads in place of the stock ones.

Left out are parts that a variant does not have. One file, ``crossbar.safetensors`` beside the checkpoint's own, holds
the tails of one or several SEQ_GROUPS.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch.nn import functional

from ..checkpoint.find import weight_files
from ..checkpoint.tensor_file import read_tensors, write_tensors
from ..options import PREDICTED_GROUPS, check_seq_groups
from .linear import Weight, crossbar

FILE = "crossbar.safetensors"
FORMAT = "qwen3-tts-crossbar"
VERSION = "1"
COMMAND = "python -m lab.training.crossbar"
EPS = 1e-6
PAIRS = (("mix_up", "mix_down"), ("group_up", "group_down"), ("left", "right"))
MARK = "talker.code_predictor.lm_head.14.weight"  # what a predictor is known by


@dataclass(frozen=True)
class About:
    """What a tail is: its variant, and its held-out distance (see ``sweep.SweepRow``) beside the stock crossbar's.

    Both distances are means over the tail's groups alone.
    """

    variant: str
    distance: float
    stock_distance: float


def tail_logits(
    parts: Mapping[str, torch.Tensor], heads: Weight, states: torch.Tensor, tokens: torch.Tensor
) -> torch.Tensor:
    """Logits of the tail's groups; without parts they are the stock crossbar's.

    Args:
        parts: see the module.
        heads: the stock heads of the tail's groups, ``[G, V, H]``.
        states: ``[B, H]``, the last sequential state, which group S was drawn from.
        tokens: ``[B]``, group S as it was drawn.

    Returns:
        ``[B, G, V]``.
    """
    if "token" in parts:
        states = states + functional.embedding(tokens, parts["token"])
    if "mix_up" in parts:
        inner = _inner(states, parts["mix_up"])
        states = states + functional.linear(inner, parts["mix_down"])
    if "group_up" in parts:
        inner = _inner(states, parts["group_up"])
        states = states[:, None] + torch.einsum("ghm,bm->bgh", parts["group_down"], inner)
    logits = crossbar(parts.get("heads", heads), states)
    if "left" in parts:
        logits = logits + crossbar(parts["left"], crossbar(parts["right"], states))
    return logits


def _inner(states: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    normed = functional.rms_norm(states, states.shape[-1:], None, EPS)
    return functional.silu(functional.linear(normed, up))


class Tail(torch.nn.Module):
    """A tail in use: its parts move with the model that it belongs to.

    Raises:
        ValueError: for parts that are no tail of this SEQ_GROUPS and these stock heads ``[15, V, H]``.
    """

    def __init__(self, seq_groups: int, parts: Mapping[str, torch.Tensor], about: About, heads: Weight):
        super().__init__()
        check_parts(parts, seq_groups, heads)
        self.seq_groups, self.about = seq_groups, about
        with torch.inference_mode(False):
            for name, part in parts.items():
                fitting = part.detach().to(heads.device, heads.dtype, copy=True)
                self.register_parameter(name, torch.nn.Parameter(fitting, requires_grad=False))

    @property
    def parts(self) -> dict[str, torch.Tensor]:
        """The parts by name, where they are now."""
        return {name: part.detach() for name, part in self.named_parameters()}

    def logits(self, heads: Weight, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """``tail_logits`` with all stock heads ``[15, V, H]``."""
        return tail_logits(self.parts, heads[self.seq_groups :], states, tokens)

    def describe(self) -> str:
        """For reports: the variant and how near it came on lines that it was not trained on."""
        about = self.about
        return (
            f"trained tail {about.variant}, distance of its groups {about.distance:.3f} "
            f"(stock heads {about.stock_distance:.3f})"
        )


def check_parts(parts: Mapping[str, torch.Tensor], seq_groups: int, heads: Weight) -> None:
    """Raise ValueError for parts that do not fit a SEQ_GROUPS and stock heads ``[15, V, H]``, or are not finite."""
    if check_seq_groups(seq_groups) == PREDICTED_GROUPS:
        raise ValueError(f"SEQ_GROUPS {seq_groups} has no tail")
    if not parts:
        raise ValueError(f"the tail of SEQ_GROUPS {seq_groups} has no part")
    for pair in PAIRS:
        if (pair[0] in parts) != (pair[1] in parts):
            raise ValueError(f"{pair[0]} and {pair[1]} belong together")
    groups, vocab, width = len(heads) - seq_groups, *heads.shape[1:]
    inner = {name: part.shape[0] for name, part in parts.items() if name.endswith("_up")}
    rank = parts["left"].shape[-1] if "left" in parts else 0
    shapes = {
        "token": (vocab, width),
        "mix_up": (inner.get("mix_up", 0), width),
        "mix_down": (width, inner.get("mix_up", 0)),
        "group_up": (inner.get("group_up", 0), width),
        "group_down": (groups, width, inner.get("group_up", 0)),
        "left": (groups, vocab, rank),
        "right": (groups, rank, width),
        "heads": (groups, vocab, width),
    }
    for name, part in parts.items():
        if name not in shapes:
            raise ValueError(f"{name!r} is no part of a tail")
        if tuple(part.shape) != shapes[name] or not part.is_floating_point():
            raise ValueError(f"{name} is {part.dtype} {tuple(part.shape)}, expected floats {shapes[name]}")
        if not bool(part.isfinite().all()):
            raise ValueError(f"{name} holds numbers that are not finite")


def fingerprint(checkpoint: Path) -> str:
    """What a checkpoint folder's predictor is known by: SHA-256 of its last head, in bf16.

    Read from the file, not from the loaded model: it must not depend on the precision that is chosen.
    """
    try:
        for file in weight_files(checkpoint):
            with safe_open(file, framework="pt") as weights:
                if MARK in weights.keys():  # noqa: SIM118  (it is no mapping)
                    return _digest(weights.get_tensor(MARK))
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"checkpoint {checkpoint.name} cannot be read ({error}): download it again, whole"
        ) from error
    raise ValueError(f"checkpoint {checkpoint.name} lacks {MARK}: download it again, whole")


def _digest(head: torch.Tensor) -> str:
    return hashlib.sha256(
        head.to(torch.bfloat16).contiguous().view(torch.uint8).numpy().tobytes()
    ).hexdigest()


def describe_tails(tails: Mapping[int, Tail]) -> str:
    """One line on a checkpoint's trained tails."""
    if not tails:
        return f"crossbar with stock heads (no {FILE})"
    return "trained tails for SEQ_GROUPS " + ", ".join(map(str, tails))


def save_tails(path: Path, tails: Iterable[Tail], checkpoint: Path) -> None:
    """Write tails of a checkpoint folder to a file in bf16, whole or not at all."""
    tensors: dict[str, torch.Tensor] = {}
    about: dict[str, Any] = {}
    for tail in tails:
        about[str(tail.seq_groups)] = asdict(tail.about)
        for name, part in tail.parts.items():
            tensors[f"{tail.seq_groups}.{name}"] = part.to(torch.bfloat16)
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "predictor": fingerprint(checkpoint),
        "tails": json.dumps(about),
    }
    write_tensors(path, tensors, metadata)


def load_tails(path: Path, checkpoint: Path, heads: Weight) -> dict[int, Tail]:
    """Read a file of tails, by SEQ_GROUPS, rising.

    Args:
        path: the file.
        checkpoint: the folder of the model that they are to serve.
        heads: that model's stock heads ``[15, V, H]``: the tails take their device and dtype.

    Raises:
        ValueError: for a file that is damaged, foreign, of a later version, or of another checkpoint.
    """
    mend = f"delete it, or train it again with `{COMMAND} --checkpoint {checkpoint.name}`"
    try:
        tensors, metadata = read_tensors(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path.name} of {checkpoint.name} is damaged ({error}): {mend}") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path.name} of {checkpoint.name} is no file of trained tails: {mend}")
    if metadata.get("version") != VERSION:
        raise ValueError(
            f"{path.name} of {checkpoint.name} has format version {metadata.get('version')} and this pack reads "
            f"{VERSION}: update the pack, or {mend}"
        )
    if metadata.get("predictor") != fingerprint(checkpoint):
        raise ValueError(f"{path.name} of {checkpoint.name} was trained for another checkpoint: {mend}")
    try:
        return _tails(json.loads(metadata["tails"]), tensors, heads)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path.name} of {checkpoint.name} is damaged ({error}): {mend}") from error


def _tails(about: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], heads: Weight) -> dict[int, Tail]:
    parts: dict[str, dict[str, torch.Tensor]] = {key: {} for key in about}
    for name, tensor in tensors.items():
        seq_groups, _, part = name.partition(".")
        parts[seq_groups][part] = tensor
    return {
        int(key): Tail(int(key), parts[key], About(**about[key]), heads) for key in sorted(about, key=int)
    }
