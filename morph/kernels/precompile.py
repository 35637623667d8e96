"""Compile the kernels of a pass in parallel before it runs: serially, they are most of a first line's wait.

The pass runs with ``compile_only`` in place of ``run``: nothing is launched, and uncached kernels are compiled in
threads (Triton's ``AsyncCompileMode``). Torch operations in between do run, on whatever the buffers hold, so the pass
must not write to buffers in use.
"""

import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import triton

Launch: TypeAlias = "Callable[..., None]"
THREADS = 8  # more would only wait for Python's lock


def run(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    kernel[grid](*arguments, **options)


def compile_only(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Compile a kernel for these arguments, or start to, without launching it."""
    kernel.warmup(*arguments, grid=grid, **options)


def compile_in_parallel(run_pass: Callable[[], None]) -> None:
    """Call a pass whose launches are ``compile_only``; do nothing if this Triton cannot compile in parallel.

    A kernel that does not compile fails when it is launched. Any other error of the pass propagates.
    """
    mode = getattr(triton, "AsyncCompileMode", None)
    if mode is None:
        return

    def compile_all() -> None:
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool, mode(pool, ignore_errors=True):
            run_pass()

    contextvars.copy_context().run(compile_all)  # a copy, so that the mode never stays on
