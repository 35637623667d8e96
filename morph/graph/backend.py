"""Frames and prefills in Triton kernels if they run, otherwise in torch operations."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Hashable
from functools import partial

import torch

from ..frame.buffers import Buffers, LastPositions, PrefillBatch
from ..frame.step import prefill, prefill_all, prefill_prefix
from ..frame.weights import Weights
from ..kernels import Passes, available, choose_frame, compile_passes, torch_passes
from ..runtime.capture import Fallback, graphs_keep_memory
from ..runtime.errors import first_line

log = logging.getLogger(__name__)

KERNELS = "Triton kernels"
COMPILING = (
    "preparing the Triton kernels: up to half a minute the first time on this machine, a second or two later; "
    "a cancel waits for it"
)


class FrameBackend:
    """Runs the functions of ``frame/step.py`` in Triton kernels, until one fails: then in torch operations.

    Some kernels fail only when they run: they do not compile, or need more shared memory than this GPU has.
    """

    def __init__(self, kernels: bool = True):
        self.kernels = kernels
        self.fallback = None if kernels else Fallback(KERNELS, "the Triton kernels are off")
        self._failed = False
        self._chosen_for: Callable[[], Weights | None] = lambda: None
        self._passes = torch_passes()
        self._compiled: set[Hashable] = set()
        self._tried: set[Hashable] = set()

    def choose(self, weights: Weights) -> None:
        if self._failed or not self.kernels or self._chosen_for() is weights:
            return
        self._chosen_for = weakref.ref(weights)
        before = self.fallback
        self._passes, why = choose_frame(weights)
        self.fallback = None if why is None else Fallback(KERNELS, why)
        if self.fallback is not None and self.fallback != before:
            log.info("frames run in torch operations: %s", why)

    def fallback_on(self, device: torch.device) -> Fallback | None:
        """Return why frames run in torch operations on a device, also before the first one; None for kernels."""
        why = available(device)
        return self.fallback or (None if why is None else Fallback(KERNELS, why))

    def refuse(self, reason: str) -> None:
        self._failed, self.fallback = True, Fallback(KERNELS, reason)
        self._passes = torch_passes()
        log.warning("Triton kernels cannot run here (%s): frames run in torch operations, slower", reason)

    def prefill(self, weights: Weights, slots: Buffers, arrivals: PrefillBatch, captured: bool) -> None:
        """Run the prompts of arriving lines: see ``frame.step.prefill``, which can be repeated."""
        # Triton refuses temporaries that belong to a graph (``Workspace``); a short prompt has none.
        alone = len(slots.state.tokens) == 1
        if alone and self._passes.prompt is not None and arrivals.is_short:
            key, device = ("prompt", arrivals.embeds.shape[1]), slots.state.hidden.device
            self._compile(key, device, partial(self._passes.prompt, weights, slots, arrivals))
        elif captured and graphs_keep_memory(slots.state.hidden.device):
            prefill(weights, slots, arrivals)
            return
        if alone:
            self._repeat(partial(_prefill_line, weights, slots, arrivals))
        else:
            self._repeat(lambda passes: prefill(weights, slots, arrivals, passes.ops))

    def _compile(self, key: Hashable, device: torch.device, *passes: Callable[..., None]) -> None:
        """Compile the kernels of passes in parallel, once; otherwise each compiles at its first launch."""
        if self.fallback is not None or key in self._compiled or available(device) is not None:
            return
        if not self._compiled:
            log.info(COMPILING)
        self._compiled.add(key)
        try:
            compile_passes(device, *passes)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # the same as at a launch
            self.refuse(first_line(error))

    def prefill_prefix(self, weights: Weights, slots: Buffers, embeds: torch.Tensor) -> None:
        """Run the beginning of a single line's prompt, ``[P, H]``: see ``frame.step.prefill_prefix``."""
        self._repeat(lambda passes: prefill_prefix(weights, slots, embeds[None], passes.ops))

    def begin(self, weights: Weights, slots: Buffers, last: LastPositions, window: int) -> None:
        """As ``frame.step.begin_lines``, for a single line."""
        begin = partial(self._passes.begin, weights, slots, last, window)
        self._compile(("begin", window), slots.state.hidden.device, begin)
        self._repeat(lambda passes: passes.begin(weights, slots, last, window))

    def _repeat(self, run: Callable[[Passes], None], restore: Callable[[], None] = lambda: None) -> None:
        """Run passes; if a kernel fails, run torch's after ``restore``."""
        try:
            run(self._passes)
        except torch.cuda.OutOfMemoryError:
            raise
        # No compiler, too little shared memory, an unknown architecture; Triton's own types, which vary by version.
        except Exception as error:
            if self.fallback is not None:
                raise
            self.refuse(first_line(error))
            restore()
            run(self._passes)

    def compile(self, weights: Weights, slots: Buffers, seq_groups: int, *windows: int) -> None:
        """Compile a frame's kernels in the first window; see ``compile_in_parallel`` for the others."""
        key = (seq_groups, windows[0], len(slots.state.tokens))
        frames = (partial(self._passes.decode, weights, slots, seq_groups, window) for window in windows)
        self._compile(key, slots.state.hidden.device, *frames)

    def decode(self, weights: Weights, slots: Buffers, seq_groups: int, window: int) -> None:
        """Run a frame; raise RuntimeError for a kernel that fails after the first frame of its kind (in a capture)."""
        key = (seq_groups, window, len(slots.state.tokens))
        if self.fallback is None and key not in self._tried:
            before = slots.state.clone()
            self.compile(weights, slots, seq_groups, window)
            self._repeat(
                lambda passes: passes.decode(weights, slots, seq_groups, window),
                lambda: slots.state.copy_from(before),
            )
            self._tried.add(key)
            return
        try:
            self._passes.decode(weights, slots, seq_groups, window)
        except RuntimeError:
            raise
        except Exception as error:  # Triton's own types, which vary by version
            raise RuntimeError(first_line(error)) from error

    def predict(self, weights: Weights, slots: Buffers, seq_groups: int) -> None:
        """As ``frame.step.predict_codes``, of a kind that ``decode`` has run."""
        self._passes.predict(weights, slots, seq_groups)

    def advance(self, weights: Weights, slots: Buffers, window: int) -> None:
        """As ``frame.step.advance``, after ``predict``."""
        self._passes.advance(weights, slots, window)


def _prefill_line(weights: Weights, slots: Buffers, arrivals: PrefillBatch, passes: Passes) -> None:
    if passes.prompt is not None and arrivals.is_short:
        passes.prompt(weights, slots, arrivals)
    else:
        prefill_all(weights, slots, arrivals, passes.ops, passes.start)
