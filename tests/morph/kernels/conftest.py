"""Run the kernels on CUDA, or without a GPU in Triton's interpreter."""

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["test_*.py"]  # modules import kernels


def pytest_configure() -> None:
    """Set this before the first kernel is imported: Triton reads it then."""
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="session", autouse=True)
def language_patched_once(device: torch.device) -> Iterator[None]:
    """Patch Triton's language once per launch.

    The interpreter does it again at every call of a device function: that is most of its time.
    """
    if device.type == "cuda":
        yield
        return
    from triton.runtime import interpreter

    patched: set[int] = set()
    patch_language, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__

    def patch_once(function: Any) -> Any:
        module = id(function.__globals__)
        if module in patched:
            return None  # only a launch uses what is returned, and it comes first
        patched.add(module)
        return patch_language(function)

    def launch_anew(executor: Any, *arguments: Any, **named: Any) -> Any:
        patched.clear()  # a launch restores the language at its end
        return launch(executor, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", patch_once)
        patch.setattr(interpreter.GridExecutor, "__call__", launch_anew)
        yield
