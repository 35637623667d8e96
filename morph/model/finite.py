"""Errors for NaN and infinity: a damaged checkpoint or voice, or an overflow in fp16."""

import torch


class NotFinite(ValueError):
    """Numbers of a model or a codec are NaN or infinite."""


def not_finite(dtype: torch.dtype) -> NotFinite:
    if dtype == torch.float16:
        return NotFinite("the model's numbers overflow in fp16: load it with precision auto, fp32 or bf16")
    precision = {torch.float32: "fp32", torch.bfloat16: "bf16"}.get(dtype, str(dtype))
    return NotFinite(
        f"the model's numbers are not finite (NaN or infinite) in {precision}: its weights or the voice are damaged, "
        "so download the checkpoint again or make the voice again"
    )


def all_finite(tensor: torch.Tensor) -> bool:
    # ``isfinite`` took 0.65 s of CPU time for the demo voice's tails in bf16, this takes 0.02.
    return not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())


def of_voice(error: NotFinite, voice: str) -> NotFinite:
    return NotFinite(f"voice {voice}: {error}") if voice else error
