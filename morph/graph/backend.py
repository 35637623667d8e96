"""Frames and prefills in Triton kernels where they run, in torch operations elsewhere: the choice, the reason, the way
back."""

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

log = logging.getLogger(__name__)

NOT_ASKED = "the Triton kernels are off"
COMPILING = (
    "making ready the Triton kernels: up to half a minute the first time on this machine, a second or two later; "
    "a cancel waits for it"
)


class FrameBackend:
    """``frame.decode_frame`` and ``frame.prefill``, in kernels as long as none of them fails.

    A kernel can fail where nothing could be known before: it does not compile, or takes more shared memory than this
    GPU has. One warning says so then, the frame is made in torch operations, and so are all later ones.

    Args:
        kernels: False keeps to torch operations.
    """

    def __init__(self, kernels: bool = True):
        self.kernels = kernels
        self.why_torch: str | None = None if kernels else NOT_ASKED
        self._failed = False
        self._decode: DecodeFrame = torch_frame
        self._ops: LayerOps = TORCH_OPS
        self._tried: set[Hashable] = set()

    def choose(self, weights: Weights) -> None:
        """Make ready for these weights, where they are now."""
        if self._failed or not self.kernels:
            return
        before = self.why_torch
        self._decode, self._ops, self.why_torch = choose_frame(weights)
        if self.why_torch is not None and self.why_torch != before:
            log.info("frames run in torch operations: %s", self.why_torch)

    def describe(self, device: torch.device) -> str:
        """What runs frames on a device, in a few words."""
        why = self.why_torch or available(device)
        return "Triton kernels" if why is None else f"torch operations: {why}"

    def refuse(self, reason: str) -> None:
        """Keep to torch operations from here on."""
        self._failed, self.why_torch = True, reason
        self._decode, self._ops = torch_frame, TORCH_OPS
        log.warning("Triton kernels cannot run here (%s): frames run in torch operations, slower", reason)

    def prefill(self, weights: Weights, slots: Buffers, arrivals: PrefillBatch, captured: bool) -> None:
        """Run the prompts of lines that arrive: see ``frame.prefill``, which can simply be called again.

        ``captured`` says that a graph will be made of it: in one that keeps its temporaries torch's operations stay,
        for Triton refuses such memory (``workspace.py``).
        """
        ops = TORCH_OPS if captured and graphs_keep_memory(slots.state.hidden.device) else self._ops
        try:
            prefill(weights, slots, arrivals, ops)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # no compiler, say: Triton's own types, by version
            if ops is TORCH_OPS:
                raise
            self.refuse(first_line(error))
            prefill(weights, slots, arrivals)

    def decode(self, weights: Weights, slots: Buffers, seq_groups: int, window: int) -> None:
        """Make a frame: see ``frame.decode_frame``.

        Raises:
            RuntimeError: for a kernel that fails later than in the first frame of its kind: while that is captured.
        """
        key = (seq_groups, window, len(slots.state.tokens))
        if self.why_torch is None and key not in self._tried:
            if not self._tried:
                log.info(COMPILING)
            self._try(weights, slots, seq_groups, window)
            self._tried.add(key)
            return
        try:
            self._decode(weights, slots, seq_groups, window)
        except RuntimeError:
            raise
        except Exception as error:  # Triton's own types, by version
            raise RuntimeError(first_line(error)) from error

    def _try(self, weights: Weights, slots: Buffers, seq_groups: int, window: int) -> None:
        """The first frame of its kind: where a kernel fails, the lines' state is put back and torch makes the frame."""
        before = {name: part.clone() for name, part in vars(slots.state).items()}
        try:
            if available(slots.state.hidden.device) is None:
                compile_frame(weights, slots, seq_groups, window)
            self._decode(weights, slots, seq_groups, window)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # no compiler, out of shared memory, an architecture it does not know
            self.refuse(first_line(error))
            for name, part in before.items():
                getattr(slots.state, name).copy_(part)
            torch_frame(weights, slots, seq_groups, window)
