"""Frames and prefills in Triton kernels where they run, otherwise in torch operations."""

from __future__ import annotations

import logging
from collections.abc import Hashable

import torch

from ..frame.buffers import Buffers, PrefillBatch
from ..frame.step import decode_frame as torch_frame
from ..frame.step import prefill
from ..frame.weights import Weights
from ..kernels import DecodeFrame, available, choose_frame, compile_frame
from ..model.layers import TORCH_OPS, LayerOps
from ..runtime.capture import graphs_keep_memory
from ..runtime.errors import first_line
from ..runtime.fallback import Fallback

log = logging.getLogger(__name__)

KERNELS = "Triton kernels"
COMPILING = (
    "preparing the Triton kernels: up to half a minute the first time on this machine, a second or two later; "
    "a cancel waits for it"
)


class FrameBackend:
    """Runs ``decode_frame`` and ``prefill`` of ``frame/step.py`` in Triton kernels, as long as none of them fails.

    Some kernels fail only when they run: they do not compile, or need more shared memory than this GPU has. Then one
    warning says so, and this frame and all later ones run in torch operations.

    Args:
        kernels: False keeps to torch operations.
    """

    def __init__(self, kernels: bool = True):
        self.kernels = kernels
        self.fallback = None if kernels else Fallback(KERNELS, "the Triton kernels are off")
        self._failed = False
        self._decode: DecodeFrame = torch_frame
        self._ops: LayerOps = TORCH_OPS
        self._tried: set[Hashable] = set()

    def choose(self, weights: Weights) -> None:
        """Choose the functions for these weights, on their current device."""
        if self._failed or not self.kernels:
            return
        before = self.fallback
        self._decode, self._ops, why = choose_frame(weights)
        self.fallback = None if why is None else Fallback(KERNELS, why)
        if self.fallback is not None and self.fallback != before:
            log.info("frames run in torch operations: %s", why)

    def fallback_on(self, device: torch.device) -> Fallback | None:
        """Return why frames run in torch operations on a device, also before the first one; None for kernels."""
        why = available(device)
        return self.fallback or (None if why is None else Fallback(KERNELS, why))

    def refuse(self, reason: str) -> None:
        """Use torch operations from now on."""
        self._failed, self.fallback = True, Fallback(KERNELS, reason)
        self._decode, self._ops = torch_frame, TORCH_OPS
        log.warning("Triton kernels cannot run here (%s): frames run in torch operations, slower", reason)

    def prefill(self, weights: Weights, slots: Buffers, arrivals: PrefillBatch, captured: bool) -> None:
        """Run the prompts of arriving lines: see ``frame.step.prefill``, which can be repeated.

        ``captured``: whether it becomes a graph. Where graphs own their temporaries, such a prefill runs in torch
        operations: Triton refuses that memory (``workspace.py``).
        """
        ops = TORCH_OPS if captured and graphs_keep_memory(slots.state.hidden.device) else self._ops
        try:
            prefill(weights, slots, arrivals, ops)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # no compiler, for example; Triton's own types, which vary by version
            if ops is TORCH_OPS:
                raise
            self.refuse(first_line(error))
            prefill(weights, slots, arrivals)

    def decode(self, weights: Weights, slots: Buffers, seq_groups: int, window: int) -> None:
        """Make a frame: see ``frame.step.decode_frame``.

        Raises:
            RuntimeError: for a kernel that fails after the first frame of its kind, that is, during a capture.
        """
        key = (seq_groups, window, len(slots.state.tokens))
        if self.fallback is None and key not in self._tried:
            if not self._tried:
                log.info(COMPILING)
            self._try(weights, slots, seq_groups, window)
            self._tried.add(key)
            return
        try:
            self._decode(weights, slots, seq_groups, window)
        except RuntimeError:
            raise
        except Exception as error:  # Triton's own types, which vary by version
            raise RuntimeError(first_line(error)) from error

    def _try(self, weights: Weights, slots: Buffers, seq_groups: int, window: int) -> None:
        """Make the first frame of its kind: if a kernel fails, restore the lines' state and use torch operations."""
        before = {name: part.clone() for name, part in vars(slots.state).items()}
        try:
            if available(slots.state.hidden.device) is None:
                compile_frame(weights, slots, seq_groups, window)
            self._decode(weights, slots, seq_groups, window)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # no compiler, too little shared memory, an unknown architecture
            self.refuse(first_line(error))
            for name, part in before.items():
                getattr(slots.state, name).copy_(part)
            torch_frame(weights, slots, seq_groups, window)
