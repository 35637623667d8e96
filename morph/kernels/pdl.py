"""Programmatic dependent launch: a kernel starts while the previous one still runs, and waits for it where it must.

What a kernel may do before ``wait_for_inputs``: read weights, and read what no kernel that may still be running writes.
It must not write anything. Every kernel of the chain waits, so once a kernel has waited, all kernels before it are
done.

Kernels let their dependents start at once, so several may overlap. The samplers are the exception: they let the next
kernel start only after their own wait. After a sampler, everything that was written before it can therefore be read
before the wait: the older keys and values of a frame's cache. A frame's first kernel is not a dependent launch
(``plan.launch``); it starts when the previous frame is complete. So whatever changes only at a frame's end can be read
before the wait in every kernel.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def launch_dependents(PDL: tl.constexpr):
    """Let the next kernel start once every program of this one has reached this line."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_for_inputs(PDL: tl.constexpr):
    """Wait until the previous kernel has ended and its results are visible."""
    if PDL:
        tl.extra.cuda.gdc_wait()
