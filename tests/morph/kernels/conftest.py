"""Run the kernels where they can be run: on CUDA, or on the CPU in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["test_*.py"]  # modules import kernels


def pytest_configure() -> None:
    """Before the first kernel is imported, for it is then that Triton reads this."""
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
