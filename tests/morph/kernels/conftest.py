"""Run the kernels on CUDA, or without a GPU in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os

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
