"""Programmatic dependent launch: a kernel starts while the one before it still runs, and waits where it must.

What stands before ``wait_for_inputs`` may read weights, and what no kernel of the same frame writes before it;
nothing may be written there. Every kernel of a chain waits, so that one which has waited knows all before it to be
done. A frame begins with a torch operation or a graph's launch: neither starts before all of the last frame is done.
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
