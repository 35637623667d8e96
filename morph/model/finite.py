"""Numbers that are not finite: a damaged checkpoint or voice, or fp16 that overflows."""

from __future__ import annotations

import numpy as np
import torch


def not_finite(dtype: torch.dtype) -> ValueError:
    """Return the error for numbers of a model or a codec, computed in ``dtype``, that are NaN or infinite."""
    if dtype == torch.float16:
        return ValueError("the model's numbers overflow in fp16: load it with precision auto, fp32 or bf16")
    precision = {torch.float32: "fp32", torch.bfloat16: "bf16"}.get(dtype, str(dtype))
    return ValueError(
        f"the model's numbers are not finite (NaN or infinite) in {precision}: its weights or the voice are damaged, "
        "so download the checkpoint again or make the voice again"
    )


def check_samples(samples: np.ndarray, dtype: torch.dtype) -> None:
    """Raise ``not_finite`` if a codec that computes in ``dtype`` has made a sample that is NaN."""
    if not np.isfinite(samples.sum()):
        raise not_finite(dtype)
