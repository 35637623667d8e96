"""Settings and logits that every sampler is tested with."""

import torch
from qwen3_tts_morph.morph.options import TokenSampling

VOCAB = 64
SETTINGS = [
    TokenSampling(),
    TokenSampling(top_p=0.8),
    TokenSampling(temperature=0.3, top_k=0, top_p=0.5),
    TokenSampling(temperature=1.0, top_k=5),
    TokenSampling(temperature=1.7, top_k=20, top_p=0.9),
    TokenSampling(temperature=1.0, top_k=0),
    TokenSampling(top_k=1000, top_p=0.999),
    TokenSampling(temperature=1.0, top_k=1),
    TokenSampling(temperature=1.0, top_k=0, top_p=1e-6),
    TokenSampling(do_sample=False, temperature=0.2, top_k=3, top_p=0.4),
]


def logits(kind: str, *shape: int) -> torch.Tensor:
    """Return logits ``[*shape, VOCAB]``; ``kind`` is "fp32", "bf16", or "ties" (integers)."""
    made = 4 * torch.randn(*shape, VOCAB, generator=torch.Generator().manual_seed(3))
    if kind == "ties":
        return made.round()
    return made.to(torch.bfloat16) if kind == "bf16" else made
