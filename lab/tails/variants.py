"""The variants of trained tails; each starts exactly as the stock crossbar.

A variant is words joined by "+": ``heads`` (separate heads, of the stock heads' size), ``rankN`` (a correction of rank
N to the stock heads), ``token`` (the last sequential token, added to the state), ``mix`` (a shared residual layer) and
``groups`` (a residual layer with one output per group). ``morph/model/tail.py`` computes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

WORDS = ("heads", "token", "mix", "groups")


def parse_variant(variant: str) -> dict[str, int]:
    """Return the words of a variant with the rank of "rank" (0 for the others); raises ValueError if invalid."""
    found: dict[str, int] = {}
    for word in variant.split("+"):
        rank = re.fullmatch("rank([1-9][0-9]{0,3})", word)
        name = "rank" if rank else word
        if name in found or not (rank or word in WORDS):
            raise ValueError(
                f"variant {variant!r}: join {', '.join(WORDS)} and rank16 (any rank), each at most once, with +"
            )
        found[name] = int(rank[1]) if rank else 0
    return found


@dataclass
class Trainable:
    """The trained parameters. ``weights`` are leaves; ``parts`` converts them to the input of ``tail_logits``.

    The token part is trained as a projection of the token's embedding plus a table, so that rare tokens benefit from
    the others; it is stored as one table, the sum of both.
    """

    weights: dict[str, torch.Tensor]
    embeddings: torch.Tensor

    def parts(self) -> dict[str, torch.Tensor]:
        """Return the tail's parts, with gradients."""
        parts = {name: value for name, value in self.weights.items() if name != "projection"}
        if "projection" in self.weights:
            parts["token"] = parts["token"] + functional.linear(self.embeddings, self.weights["projection"])
        return parts


def initial(variant: str, heads: torch.Tensor, embeddings: torch.Tensor, width: float, seed: int) -> Trainable:
    """Return a variant that computes the same as the stock crossbar.

    Args:
        variant: its words.
        heads: the stock heads of the tail's groups ``[G, V, H]``.
        embeddings: of the last sequential group's tokens ``[V, H_talker]``.
        width: of the residual layers, in units of H.
        seed: of the random side of each residual; the other side starts at zero.
    """
    words = parse_variant(variant)
    random = torch.Generator().manual_seed(seed)
    groups, vocab, hidden = heads.shape
    inner = max(1, round(width * hidden))

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random) / shape[-1] ** 0.5

    weights: dict[str, torch.Tensor] = {}
    if "token" in words:
        weights["token"] = torch.zeros(vocab, hidden)
        weights["projection"] = torch.zeros(hidden, embeddings.shape[-1])
    if "mix" in words:
        weights |= {"mix_up": noise(inner, hidden), "mix_down": torch.zeros(hidden, inner)}
    if "groups" in words:
        weights |= {"group_up": noise(inner, hidden), "group_down": torch.zeros(groups, hidden, inner)}
    if "rank" in words:
        rank = words["rank"]
        weights |= {"left": torch.zeros(groups, vocab, rank), "right": noise(groups, rank, hidden)}
    if "heads" in words:
        weights["heads"] = heads.detach().float().clone()
    device = heads.device
    leaves = {name: value.to(device).requires_grad_() for name, value in weights.items()}
    return Trainable(leaves, _unit(embeddings.detach().float()))


def _unit(embeddings: torch.Tensor) -> torch.Tensor:
    """Scale embeddings to unit mean square, so that the projection's learning rate suits any checkpoint."""
    return embeddings / embeddings.square().mean().sqrt().clamp(min=1e-12)


def count_bytes(parts: Mapping[str, torch.Tensor], stock: torch.Tensor) -> int:
    """Return the bytes in bf16 that a frame of one line reads for the tail, including the stock heads if it uses them.

    Of the token's table this is one row.
    """
    numbers = sum(part.numel() for name, part in parts.items() if name != "token")
    if "token" in parts:
        numbers += parts["token"].shape[1]
    if "heads" not in parts:
        numbers += stock.numel()
    return 2 * numbers
