"""Programmatic dependent launch: a kernel starts while the one before it still runs, and waits where it must.

What stands before ``wait_for_inputs`` may read weights, and what no kernel that may still be running writes; nothing
may be written there. Every kernel of a chain waits, so that one which has waited knows all before it to be done.

Kernels let their dependents start at once, so several may be under way, but for the draws: they do so only when they
have waited themselves. Behind a draw, then, all that was written before it can be read before the wait: the frame's
older keys and values. A frame's first kernel is no dependent of anything (``plan.launch``), and starts when all of
the last frame is done: what only a frame's end changes can be read before the wait anywhere.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def launch_dependents(PDL: tl.constexpr):
    """Let the next kernel start as soon as every program of this one has come here."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_for_inputs(PDL: tl.constexpr):
    """Wait until the kernel before this one has ended and its results can be read."""
    if PDL:
        tl.extra.cuda.gdc_wait()
