"""Programmatic dependent launch: a kernel starts while the previous one runs, and waits for its results later.

Before ``wait_for_inputs`` a kernel may read weights and other memory that no running kernel writes; it must not write.
Every kernel of the chain waits, so after its wait all kernels before it are done.

Kernels let their dependents start immediately, so several may overlap, except the samplers: they let the next kernel
start only after their own wait. Everything written before a sampler can therefore be read before the wait of the
kernels after it: the older keys and values of a frame's cache. A frame's first kernel is not a dependent launch
(``plan.launch``), so every kernel can read state that changes only at a frame's end before its wait.
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
    if PDL:
        tl.extra.cuda.gdc_wait()
