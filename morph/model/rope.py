"""RoPE tables, computed in float32 from the config and then cast."""
# Not from a model's ``inv_freq`` buffer: transformers 5 can leave it zeroed after loading.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


def head_dim_of(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def inverse_frequencies(config: Any, device: torch.device | str | None = None) -> torch.Tensor:
    """Return ``theta ** (-2i / head_dim)``, float32 ``[head_dim / 2]``, as transformers' default RoPE computes it."""
    # transformers 5 has ``rope_parameters`` instead of ``rope_theta``.
    base = getattr(config, "rope_theta", None)
    if base is None:
        base = config.rope_parameters["rope_theta"]
    head_dim = head_dim_of(config)
    steps = torch.arange(0, head_dim, 2, dtype=torch.int64).to(device=device, dtype=torch.float32)
    return 1.0 / (base ** (steps / head_dim))


def require_default_rope(config: Any) -> None:
    """Raise ValueError for a config with scaled RoPE: these tables would be wrong for it."""
    scaling = getattr(config, "rope_scaling", None) or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise ValueError(f"the checkpoint's config has RoPE of type {kind!r}: only 'default' is supported")


@dataclass(frozen=True)
class RopeTable:
    """Cosines and sines ``[length, head_dim]`` in the model's dtype: the paper's morph cache."""

    cos: torch.Tensor
    sin: torch.Tensor

    @classmethod
    def build(cls, config: Any, length: int, device: torch.device, dtype: torch.dtype) -> RopeTable:
        """Compute the table; bit-equal to upstream's ``rotary_emb`` at the same positions."""
        # On the CPU, as upstream does when it loads a model, then moved.
        require_default_rope(config)
        frequencies = inverse_frequencies(config, "cpu").to(device)
        angles = torch.arange(length, device=device).float()[:, None] * frequencies[None, :]
        angles = torch.cat((angles, angles), dim=-1)
        return cls(angles.cos().to(dtype), angles.sin().to(dtype))

    def fits(self, length: int, device: torch.device, dtype: torch.dtype) -> bool:
        return len(self.cos) >= length and self.cos.device == device and self.cos.dtype == dtype
