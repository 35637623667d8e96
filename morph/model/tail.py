"""The crossbar: the logits of all remaining codebook groups from one hidden state, in one einsum.

After SEQ_GROUPS sequential passes of the code predictor, its last state is multiplied with the heads of all groups
above at once. Those heads were trained on later states, and that state has not seen the last sequential token. A
trained tail is a small set of weights that brings the distributions closer to the exact ones. ``lab/tails`` trains it
for one checkpoint and one SEQ_GROUPS. It has any of these parts (G = 15 - SEQ_GROUPS; H and V are the predictor's width
and codebook size):
- ``token`` ``[V, H]``: added to the state, an embedding of the last sequential token;
- ``mix_up`` ``[M, H]``, ``mix_down`` ``[H, M]``: a residual layer on the state, shared by all groups;
- ``group_up`` ``[M, H]``, ``group_down`` ``[G, H, M]``: a residual layer with a separate output for each group;
- ``left`` ``[G, V, R]``, ``right`` ``[G, R, H]``: a low-rank correction of the stock heads;
- ``heads`` ``[G, V, H]``: heads that replace the stock ones.
``tail_logits`` applies them; ``checkpoint/trained_files.py`` saves and loads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from ..options import PREDICTED_GROUPS, GenerateOptions, check_seq_groups
from .finite import all_finite
from .weights import Int8Weight, Weight

PAIRS = (("mix_up", "mix_down"), ("group_up", "group_down"), ("left", "right"))
EPS = 1e-6  # of the residual layers' RMSNorm


def crossbar(heads: Weight, states: torch.Tensor) -> torch.Tensor:
    """Return logits ``[B, G, V]`` for heads ``[G, V, H]`` and shared states ``[B, H]`` or ``[B, G, H]``."""
    shared = states.dim() == 2
    if not isinstance(heads, Int8Weight):
        return torch.einsum("gvh,bh->bgv" if shared else "gvh,bgh->bgv", heads, states)
    if shared:
        return heads.flatten(0, 1).linear(states).unflatten(-1, heads.shape[:2])
    return torch.stack([heads[group].linear(states[:, group]) for group in range(len(heads))], dim=1)


def tail_logits(
    parts: Mapping[str, torch.Tensor], heads: Weight, states: torch.Tensor, tokens: torch.Tensor
) -> torch.Tensor:
    """Return the logits ``[B, G, V]`` of the groups above SEQ_GROUPS = S, with the parts of a trained tail or none.

    ``heads`` ``[G, V, H]`` are the stock heads. Group S's ``tokens`` ``[B]`` were sampled from ``states`` ``[B, H]``.
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


@dataclass(frozen=True)
class TailInfo:
    """A tail's variant, and its distance from the exact distributions on held-out lines (``sweep.SweepRow``)."""

    variant: str
    distance: float  # mean over the tail's groups only
    stock_distance: float  # the same of the stock crossbar


class Tail(torch.nn.Module):
    """A trained tail as a module, so that it moves between devices with its model; it must pass ``check_parts``."""

    def __init__(self, seq_groups: int, parts: Mapping[str, torch.Tensor], info: TailInfo, heads: Weight):
        super().__init__()
        check_parts(parts, seq_groups, heads)
        self.seq_groups, self.info = seq_groups, info
        with torch.inference_mode(False):
            for name, part in parts.items():
                fitting = part.detach().to(heads.device, heads.dtype, copy=True)
                self.register_parameter(name, torch.nn.Parameter(fitting, requires_grad=False))

    @property
    def parts(self) -> dict[str, torch.Tensor]:
        return {name: part.detach() for name, part in self.named_parameters()}

    def logits(self, heads: Weight, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return tail_logits(self.parts, heads[self.seq_groups :], states, tokens)

    def describe(self) -> str:
        info = self.info
        return (
            f"trained tail {info.variant}, distance of its groups {info.distance:.3f} "
            f"(stock heads {info.stock_distance:.3f})"
        )


def check_parts(parts: Mapping[str, torch.Tensor], seq_groups: int, heads: Weight) -> None:
    """Raise ValueError for parts that are not finite or do not fit SEQ_GROUPS and the stock heads ``[15, V, H]``."""
    if check_seq_groups(seq_groups) == PREDICTED_GROUPS:
        raise ValueError(f"SEQ_GROUPS {seq_groups} has no tail")
    if not parts:
        raise ValueError(f"the tail of SEQ_GROUPS {seq_groups} has no part")
    for pair in PAIRS:
        if (pair[0] in parts) != (pair[1] in parts):
            raise ValueError(f"{pair[0]} and {pair[1]} belong together")
    shapes = _expected_shapes(parts, seq_groups, heads)
    for name, part in parts.items():
        if name not in shapes:
            raise ValueError(f"{name!r} is not a part of a tail")
        if tuple(part.shape) != shapes[name] or not part.is_floating_point():
            raise ValueError(f"{name} is {part.dtype} {tuple(part.shape)}, expected floats {shapes[name]}")
        if not all_finite(part):
            raise ValueError(f"{name} contains numbers that are not finite")


def _expected_shapes(parts: Mapping[str, torch.Tensor], seq_groups: int, heads: Weight) -> dict[str, tuple[int, ...]]:
    groups, vocab, width = len(heads) - seq_groups, *heads.shape[1:]
    inner = {name: part.shape[0] for name, part in parts.items() if name.endswith("_up")}
    rank = parts["left"].shape[-1] if "left" in parts else 0
    return {
        "token": (vocab, width),
        "mix_up": (inner.get("mix_up", 0), width),
        "mix_down": (width, inner.get("mix_up", 0)),
        "group_up": (inner.get("group_up", 0), width),
        "group_down": (groups, width, inner.get("group_up", 0)),
        "left": (groups, vocab, rank),
        "right": (groups, rank, width),
        "heads": (groups, vocab, width),
    }


def describe_groups(options: GenerateOptions, tail: Tail | None = None, weights: str = "full") -> str:
    """Return SEQ_GROUPS in words, the source of the groups above it, and the effect of INT8 weights."""
    is_int8 = weights == "int8"
    if options.seq_groups == PREDICTED_GROUPS:
        return f"SEQ_GROUPS {options.seq_groups} (exact{' but for its int8 weights' * is_int8})"
    heads = "stock heads" if tail is None else tail.describe()
    int8 = "; int8 weights, which are approximate at 15 too" * is_int8
    return f"SEQ_GROUPS {options.seq_groups} (approximate: groups above it come from the crossbar; {heads}{int8})"
