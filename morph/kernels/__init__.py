"""Fused Triton kernels of a frame, instead of the torch operations of ``frame/step.py``.

Nothing here imports Triton before ``available`` returns None. Each kernel of a dependent chain costs 2 to 3 us however
small it is. Hence few kernels, which load their weights before they wait for their input and do little work after: a
warp takes about two cycles per instruction. See ``docs/kernels.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from ..model.layers import TORCH_OPS, LayerOps
from ..model.weights import Int8Weight

if TYPE_CHECKING:
    from ..frame.buffers import Buffers, LastPositions, PrefillBatch
    from ..frame.weights import Weights


log = logging.getLogger(__name__)

OLDEST_CAPABILITY = (8, 0)


def available(device: torch.device | str) -> str | None:
    """Return why the kernels cannot run on a device, or None if they can."""
    device = torch.device(device)
    if device.type != "cuda":
        return f"the Triton kernels run on CUDA devices, not on {device.type}"
    if torch.version.hip is not None:
        return "the Triton kernels are written for NVIDIA GPUs"
    try:
        import triton
        import triton.language as language
    except ImportError:
        return "triton is not installed"
    if not (hasattr(language, "gather") and hasattr(language, "tuple")):
        return f"triton {triton.__version__} is too old for the kernels: install 3.3 or later"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_CAPABILITY:
        return f"the Triton kernels need compute capability 8.0, this GPU has {capability[0]}.{capability[1]}"
    return None


def unsupported(weights: Weights) -> str | None:
    """Return why the kernels cannot run a model, or None if they can."""
    for decoder in (weights.talker, weights.predictor):
        group = decoder.heads // decoder.kv_heads
        if decoder.head_dim & (decoder.head_dim - 1) or decoder.head_dim < 16 or group & (group - 1):
            return (
                f"the Triton kernels need a head size that is a power of two, at least 16, and a power of two of heads "
                f"per key head, not {decoder.heads} heads of {decoder.head_dim} over {decoder.kv_heads} key heads"
            )
        for layer in decoder.layers:
            for weight in (layer.qkv, layer.out, layer.gate_up, layer.down):
                if isinstance(weight, Int8Weight) and weight.shape[1] % 4:
                    return (
                        f"the Triton kernels read four INT8 weights at once: a row must have a multiple of 4, not "
                        f"{weight.shape[1]}"
                    )
    return None


def compile_passes(device: torch.device, *passes: Callable[..., None]) -> None:
    """Compile the kernels of passes of ``choose_frame``, given with all arguments but the plan, in parallel."""
    from .plan import Plan
    from .precompile import compile_in_parallel, compile_only

    plan = replace(Plan.of(device), start=compile_only)
    compile_in_parallel(*(partial(one, plan=plan) for one in passes))


@dataclass(frozen=True)
class Passes:
    """The functions of a frame and the operations of a prefill, as kernels or torch operations."""

    decode: Callable[[Weights, Buffers, int, int], None]
    predict: Callable[[Weights, Buffers, int], None]  # the first part of ``decode``
    advance: Callable[[Weights, Buffers, int], None]  # the second part
    begin: Callable[[Weights, Buffers, LastPositions, int], None]
    start: Callable[[Weights, Buffers, torch.Tensor], None]
    ops: LayerOps
    # A single line's short prompt, in fewer launches
    prompt: Callable[[Weights, Buffers, PrefillBatch], None] | None = None


def torch_passes() -> Passes:
    from ..frame import step

    return Passes(step.decode_frame, step.predict_codes, step.advance, step.begin_lines, step.start_lines, TORCH_OPS)


def choose_frame(weights: Weights) -> tuple[Passes, str | None]:
    """Return the kernels and None, or the torch operations and the reason."""
    reason = available(weights.first_head.device) or unsupported(weights)
    if reason is not None:
        return torch_passes(), reason
    try:
        from .frame import PromptOps, advance, begin_lines, decode_frame, predict_codes, run_prompt, start_lines
        from .plan import Plan
    except Exception as error:  # a Triton that lacks what the kernels use, or is broken
        return torch_passes(), f"the Triton kernels cannot be imported: {error}"
    prompt = run_prompt if Plan.of(weights.first_head.device).runs_prompts(weights.talker.layers[0].qkv) else None
    return Passes(decode_frame, predict_codes, advance, begin_lines, start_lines, PromptOps(), prompt), None


@torch.inference_mode()
def preload(name: str) -> None:
    """Load CUDA's context, libraries and Triton's modules for a device, or "auto", before its first use.

    The host may do other work meanwhile. Later use raises failures again.
    """
    try:
        device = torch.device("cuda" if name == "auto" else name)
        if device.type != "cuda" or not torch.cuda.is_available():
            return
        with torch.cuda.device(device):
            ones = torch.ones(1, 16, 16, dtype=torch.bfloat16, device=device)
            torch.matmul(ones, ones)
            torch.nn.functional.conv1d(ones, ones)
            if available(device) is None:
                # The first launch makes Triton hash its own files, for the keys of its cache.
                from . import frame  # noqa: F401
                from .codec import ops  # noqa: F401
                from .rows import RowKernels

                RowKernels().gate(ones)
    except Exception:  # of many types; later use of the device reports it
        log.debug("%s could not be preloaded", name, exc_info=True)
