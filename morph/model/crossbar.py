"""The crossbar: the logits of all remaining codebook groups from one hidden state, in one einsum.

After SEQ_GROUPS sequential passes of the code predictor, its last state is multiplied with the heads of all groups
above at once. A trained tail (``tail.py``) corrects that state and the heads.
"""

from collections.abc import Mapping

import torch
from torch.nn import functional

from .weights.int8 import Int8Weight
from .weights.linear import Weight

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
