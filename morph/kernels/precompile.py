"""Compile the kernels of a pass in parallel before it runs: serially, this is most of a first line's latency.

The pass runs with ``compile_only`` instead of ``run``: nothing is launched, and uncached kernels are compiled in
threads (Triton's ``AsyncCompileMode``), with their launchers. Torch operations in between do run, on whatever the
buffers hold, so the pass must not write to buffers in use.
"""

import contextvars
import hashlib
import os
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import triton

Launch: TypeAlias = "Callable[..., None]"
THREADS = 16  # half of a kernel's compile time is LLVM and ptxas, without the GIL
COLD_S = 1.5  # a pass whose kernels are all in Triton's cache takes a third of it
LAUNCHER = "__triton_launcher"
# Before Triton 3.7 launchers are Python extensions, all of this name. CPython keeps one module of a name: if two
# threads load launchers, one can get the other's. Devices have threads of their own.
_ONE_LAUNCH = threading.Lock()


def run(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    with _ONE_LAUNCH:
        kernel[grid](*arguments, **options)


def compile_only(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Compile a kernel for these arguments, perhaps in another thread, without launching it."""
    kernel.warmup(*arguments, grid=grid, **options)


class Compilers(ThreadPoolExecutor):
    """Threads that compile kernels and their launchers."""

    def submit(self, compile_kernel: Any, /, *given: Any, **more: Any) -> Future[Any]:
        return super().submit(_compile, compile_kernel)


def _compile(compile_kernel: Callable[[], Any]) -> Any:
    kernel = compile_kernel()
    if hasattr(kernel, "src"):
        build_launcher(kernel.src.signature, getattr(kernel.metadata, "tensordesc_meta", None))
    return kernel


def build_launcher(signature: Any, descriptors: Any) -> None:
    """Build a signature's launcher into Triton's cache, as Triton 3.5 and 3.6 do when they load it.

    A C compiler needs 0.3 s for each. It is not loaded: see ``_ONE_LAUNCH``. Later versions have one for all kernels.
    """
    from triton.backends.nvidia import driver
    from triton.runtime import build, cache

    if not hasattr(driver, "make_launcher"):
        return
    code = driver.make_launcher({}, signature, descriptors)
    file = LAUNCHER + sysconfig.get_config_var("EXT_SUFFIX")
    kept = cache.get_cache_manager(hashlib.sha256((code + build.platform_key()).encode()).hexdigest())
    if kept.get_file(file) is not None:
        return
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, f"{LAUNCHER}.c")
        source.write_text(code)
        libraries = driver.library_dirs(), driver.include_dirs, driver.libraries
        built = build._build(LAUNCHER, str(source), folder, *libraries, [])
        kept.put(Path(built).read_bytes(), file, binary=True)


def compile_in_parallel(run_pass: Callable[[], None], *later: Callable[[], None]) -> None:
    """Call a pass whose launches are ``compile_only``; do nothing if this Triton cannot compile in parallel.

    If its kernels were not in Triton's cache, also call the ``later`` passes: otherwise theirs would be compiled while
    lines wait. A kernel that does not compile fails when it is launched. Any other error of a pass propagates.
    """
    mode = getattr(triton, "AsyncCompileMode", None)
    if mode is None:
        return

    def compile_all(*passes: Callable[[], None]) -> None:
        with Compilers(min(THREADS, os.cpu_count() or 1)) as pool, mode(pool, ignore_errors=True):
            for one in passes:
                one()

    began = time.perf_counter()
    # In a copied context, so that the mode never stays on.
    contextvars.copy_context().run(compile_all, run_pass)
    if later and time.perf_counter() - began > COLD_S:
        contextvars.copy_context().run(compile_all, *later)
