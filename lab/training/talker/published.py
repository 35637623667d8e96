"""Conversion of the trained weights to upstream's names, and back."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .config import PREDICTED
from .network import Network

# Our prefix -> upstream's; the tables and heads of groups 1-15 are one tensor here and 15 upstream.
PREFIXES = {
    "talker.layers.": "talker.model.layers.",
    "talker.norm.": "talker.model.norm.",
    "text_table": "talker.model.text_embedding.weight",
    "text_inner.": "talker.text_projection.linear_fc1.",
    "text_outer.": "talker.text_projection.linear_fc2.",
    "first_table": "talker.model.codec_embedding.weight",
    "first_head.": "talker.codec_head.",
    "predictor.": "talker.code_predictor.model.",
    "narrow.": "talker.code_predictor.small_to_mtp_projection.",
}
TABLES = "talker.code_predictor.model.codec_embedding.{}.weight"
HEADS = "talker.code_predictor.lm_head.{}.weight"
STACKS = {"tables": TABLES, "heads": HEADS}
ENCODER = "speaker_encoder."


def _renamed(name: str) -> str:
    for ours, theirs in PREFIXES.items():
        if name.startswith(ours):
            return theirs + name[len(ours) :]
    raise ValueError(f"weight {name} has no name in the published format: add it to published.PREFIXES")


def publish(network: Network, encoder: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return all weights under upstream's names, as float32 copies on the CPU."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in network.state_dict().items():
        copy = tensor.detach().float().cpu().clone()
        if name in STACKS:
            found |= {STACKS[name].format(group): copy[group].clone() for group in range(PREDICTED)}
        else:
            found[_renamed(name)] = copy
    for name, tensor in encoder.state_dict().items():
        found[ENCODER + name] = tensor.detach().float().cpu().clone()
    return found


def adopt(network: Network, encoder: torch.nn.Module, published: Mapping[str, torch.Tensor]) -> None:
    """Load weights with upstream's names; raises KeyError if one is missing, RuntimeError for a wrong shape."""
    own: dict[str, torch.Tensor] = {}
    for name in network.state_dict():
        if name in STACKS:
            own[name] = torch.stack([published[STACKS[name].format(group)] for group in range(PREDICTED)])
        else:
            own[name] = published[_renamed(name)]
    network.load_state_dict(own)
    encoder.load_state_dict({name: published[ENCODER + name] for name in encoder.state_dict()})
