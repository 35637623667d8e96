"""Compile the kernels of a pass side by side before it runs: one after another they are most of a first line's wait.

A pass is gone through with ``compile_only`` in place of ``run``: nothing is launched, and each kernel that is not in
Triton's cache is compiled in a thread (Triton's ``AsyncCompileMode``). What torch does in between runs, on whatever
the buffers hold, so a pass must not leave its results where they count.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import triton

Launch: TypeAlias = "Callable[..., None]"
THREADS = 8  # more wait for Python's lock


def run(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Launch a kernel."""
    kernel[grid](*arguments, **options)


def compile_only(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Compile a kernel for these arguments, or set that going, and do not launch it."""
    kernel.warmup(*arguments, grid=grid, **options)


def compile_side_by_side(go_through: Callable[[], None]) -> None:
    """Call a pass whose launches are ``compile_only``; nothing where Triton cannot compile side by side.

    A kernel that does not compile fails when it is launched. What else the pass raises passes through.
    """
    mode = getattr(triton, "AsyncCompileMode", None)
    if mode is None:
        return

    def compile_all() -> None:
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool, mode(pool, ignore_errors=True):
            go_through()

    contextvars.copy_context().run(compile_all)  # the mode is not left on, whatever happens in it
