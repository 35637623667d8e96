"""Compile the kernels of a pass in parallel before it runs: serially, they are most of a first line's wait.

The pass runs with ``compile_only`` in place of ``run``: nothing is launched, and uncached kernels are compiled in
threads (Triton's ``AsyncCompileMode``). Torch operations in between do run, on whatever the buffers hold, so the pass
must not write to buffers in use.
"""

import contextvars
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import triton

Launch: TypeAlias = "Callable[..., None]"
THREADS = 16  # half of a kernel's time needs no Python: LLVM and ptxas
COLD_S = 1.5  # a pass whose kernels are all in Triton's cache takes a third of it


def run(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    kernel[grid](*arguments, **options)


def compile_only(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Compile a kernel for these arguments, or start to, without launching it."""
    kernel.warmup(*arguments, grid=grid, **options)


def compile_in_parallel(run_pass: Callable[[], None], *later: Callable[[], None]) -> None:
    """Call a pass whose launches are ``compile_only``; do nothing if this Triton cannot compile in parallel.

    ``later`` passes, not needed yet, are called if the kernels of the first one were not in Triton's cache: theirs
    would be compiled while lines wait. A kernel that does not compile fails when it is launched. Any other error of a
    pass propagates.
    """
    mode = getattr(triton, "AsyncCompileMode", None)
    if mode is None:
        return

    def compile_all(*passes: Callable[[], None]) -> None:
        # Not their launchers too: where threads loaded several at once, kernels got those of others (Triton 3.6).
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool, mode(pool, ignore_errors=True):
            for one in passes:
                one()

    began = time.perf_counter()
    # In copies, so that the mode never stays on.
    contextvars.copy_context().run(compile_all, run_pass)
    if later and time.perf_counter() - began > COLD_S:
        contextvars.copy_context().run(compile_all, *later)
