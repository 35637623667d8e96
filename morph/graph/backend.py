"""Frames and prefills in Triton kernels if they run, otherwise in torch operations."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Hashable

import torch

from ..frame.buffers import SHORT_PROMPTS, Buffers, LastPositions, PrefillBatch
from ..frame.step import prefill, prefill_all, prefill_prefix
from ..frame.weights import Weights
from ..kernels import Passes, available, choose_frame, compile_frame, compile_prompt, torch_passes
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
        # If graphs own their temporaries, Triton refuses that memory (``workspace.py``); a short prompt has none.
        alone = len(slots.state.tokens) == 1
        if alone and _runs_short(self._passes, arrivals):
            self._compile_prompt(weights, slots, arrivals)
        elif captured and graphs_keep_memory(slots.state.hidden.device):
            prefill(weights, slots, arrivals)
            return
        if alone:
            self._repeat(lambda passes: _prefill_line(passes, weights, slots, arrivals))
        else:
            self._repeat(lambda passes: prefill(weights, slots, arrivals, passes.ops))

    def _compile_prompt(self, weights: Weights, slots: Buffers, arrivals: PrefillBatch) -> None:
        if (
            self._is_new(("prompt", arrivals.embeds.shape[1]))
            and available(slots.state.hidden.device) is None
        ):
            compile_prompt(weights, slots, arrivals)

    def _is_new(self, key: Hashable) -> bool:
        if self.fallback is not None or key in self._compiled:
            return False
        if not self._compiled:
            log.info(COMPILING)
        self._compiled.add(key)
        return True

    def prefill_prefix(self, weights: Weights, slots: Buffers, embeds: torch.Tensor) -> None:
        """Run the beginning of a single line's prompt, ``[P, H]``: see ``frame.step.prefill_prefix``."""
        self._repeat(lambda passes: prefill_prefix(weights, slots, embeds[None], passes.ops))

    def begin(self, weights: Weights, slots: Buffers, last: LastPositions, window: int) -> None:
        """As ``frame.step.begin_lines``, of a single line."""
        self._repeat(lambda passes: passes.begin(weights, slots, last, window))

    def _repeat(self, run: Callable[[Passes], None]) -> None:
        try:
            run(self._passes)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # no compiler, for example; Triton's own types, which vary by version
            if self.fallback is not None:
                raise
            self.refuse(first_line(error))
            run(self._passes)

    def compile(self, weights: Weights, slots: Buffers, seq_groups: int, window: int) -> None:
        """Compile a frame's kernels in parallel, once; otherwise each compiles at its first launch."""
        key = (seq_groups, window, len(slots.state.tokens))
        if self._is_new(key) and available(slots.state.hidden.device) is None:
            compile_frame(weights, slots, seq_groups, window)

    def decode(self, weights: Weights, slots: Buffers, seq_groups: int, window: int) -> None:
        """Run a frame; raise RuntimeError for a kernel that fails after the first frame of its kind (in a capture)."""
        key = (seq_groups, window, len(slots.state.tokens))
        if self.fallback is None and key not in self._tried:
            self._try(weights, slots, seq_groups, window)
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

    def _try(self, weights: Weights, slots: Buffers, seq_groups: int, window: int) -> None:
        """Run the first frame of its kind: if a kernel fails, restore the lines' state and use torch operations."""
        before = slots.state.clone()
        try:
            self.compile(weights, slots, seq_groups, window)
            self._passes.decode(weights, slots, seq_groups, window)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # no compiler, too little shared memory, an unknown architecture
            self.refuse(first_line(error))
            slots.state.copy_from(before)
            self._passes.decode(weights, slots, seq_groups, window)


def _runs_short(passes: Passes, arrivals: PrefillBatch) -> bool:
    return passes.prompt is not None and arrivals.embeds.shape[1] in SHORT_PROMPTS


def _prefill_line(passes: Passes, weights: Weights, slots: Buffers, arrivals: PrefillBatch) -> None:
    if passes.prompt is not None and _runs_short(passes, arrivals):
        passes.prompt(weights, slots, arrivals)
    else:
        prefill_all(weights, slots, arrivals, passes.ops, passes.start)
