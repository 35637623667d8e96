"""Upstream's code predictor with few groups and few codes, so that all its frames can be enumerated."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from qwen3_tts_morph.morph.checkpoint.qwen_tts import default_rope_registered, import_qwen_tts
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.sampling import distribution
from qwen3_tts_morph.morph.model.weights.joined_weights import stack
from qwen3_tts_morph.morph.options import TokenSampling

WIDTH = 24  # the talker's


@dataclass(frozen=True)
class Small:
    """A code predictor and one frame's inputs: the talker's state and group 0's embedding, ``[1, 1, WIDTH]``."""

    module: Any
    hidden: torch.Tensor
    embedding: torch.Tensor


@torch.inference_mode(False)
def make_small(groups: int, codes: int, attention: str = "sdpa", seed: int = 0) -> Small:
    """Return a predictor of ``groups`` groups with ``codes`` codes each; large weights make it far from uniform."""
    upstream = import_qwen_tts().core.models.modeling_qwen3_tts
    config = upstream.Qwen3TTSTalkerCodePredictorConfig(
        vocab_size=codes,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        num_code_groups=groups + 1,
        layer_types=["full_attention"] * 2,
    )
    config._attn_implementation = attention
    generator = torch.Generator().manual_seed(seed)
    with default_rope_registered():
        module = upstream.Qwen3TTSTalkerCodePredictorModelForConditionalGeneration(
            config, upstream.Qwen3TTSTalkerConfig(hidden_size=WIDTH)
        ).eval()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "norm" not in name:
                weight.copy_(
                    torch.randn(weight.shape, generator=generator) * (0.25 if "lm_head" in name else 0.7)
                )
    hidden, embedding = torch.randn(2, 1, 1, WIDTH, generator=generator)
    return Small(module.requires_grad_(False), hidden, embedding)


def all_frames(groups: int, codes: int) -> torch.Tensor:
    """Return every frame ``[codes ** groups, groups]``, in the order of ``number_of``."""
    return torch.tensor(list(product(range(codes), repeat=groups)))


def number_of(frames: torch.Tensor, codes: int) -> torch.Tensor:
    """Return the index of each frame in ``all_frames``."""
    return (frames * codes ** torch.arange(frames.shape[1]).flip(0)).sum(1)


@torch.inference_mode()
def exact_joint(small: Small, sampling: TokenSampling) -> torch.Tensor:
    """Return the probability of every frame in sequential decoding, ``[codes ** groups]``."""
    predictor = Predictor(small.module)
    groups, codes = predictor.heads.shape[:2]
    frames = all_frames(groups, codes)
    tables = stack(small.module.model.codec_embedding)
    rest = tables[torch.arange(groups - 1), frames[:, :-1]]
    inputs = torch.cat((small.embedding.expand(len(frames), 1, -1), rest), dim=1)
    states = predictor.teacher_force(small.hidden.expand(len(frames), 1, -1), inputs)
    probabilities = distribution(torch.einsum("gvh,bgh->bgv", predictor.heads, states), sampling)
    return probabilities.gather(-1, frames[..., None])[..., 0].double().prod(dim=1)
