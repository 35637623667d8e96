"""Kernels compiled for GPUs that are not there: they fit each of them, and read memory 16 bytes at a time."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import pack

triton = pytest.importorskip("triton", reason="not run: the kernels need triton")
pytestmark = pytest.mark.skipif(
    tuple(map(int, triton.__version__.split(".")[:2])) < (3, 5), reason="not run: written for Triton 3.5"
)

KB = 1024
# Shared memory of a program, by capability (CUDA's programming guide, "technical specifications").
SHARED = {80: 163 * KB, 89: 99 * KB, 90: 227 * KB, 120: 99 * KB}
# Kernels that read weights, keys or activations. Two bytes at a time took the alignment head three times as long.
READERS = {
    "gemv", "gemm", "attend_line", "attend_batch", "attend_pair", "find_token", "_residual_unit", "_convolve",
    "add_and_norm",
}  # fmt: skip
RUN = "import pack; pack.load(); from tests.morph.kernels.compiled import main; main()"
MOST_NARROW = 16  # loads of two bytes in one of them: of single numbers


def compile_for(capability: int, *parts: str) -> list[dict[str, Any]]:
    """What ``compiled.py`` says of each kernel, in a process in which Triton compiles."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", RUN, str(capability), *parts]
    done = subprocess.run(command, cwd=pack.ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("capability", [90, *(pytest.param(one, marks=pytest.mark.slow) for one in (80, 89, 120))])
def test_kernels_fit_a_gpu_and_read_wide(capability: int) -> None:
    kernels = compile_for(capability, "codec", "frame-1", "frame-128")
    names = {one["kernel"] for one in kernels}
    assert names >= {
        "find_token",
        "gemv",
        "_residual_unit",
        "_convolve",
        "attend_batch",
        "attend_pair",
        "add_and_norm",
    }
    assert ("gemm" in names) == (capability == 90)  # many lines' products are cuBLAS's elsewhere
    too_large = {one["kernel"]: one["shared"] for one in kernels if one["shared"] > SHARED[capability]}
    assert not too_large
    narrow = [(one["kernel"], one["loads"].count("b16")) for one in kernels if one["kernel"] in READERS]
    assert [(name, count) for name, count in narrow if count > MOST_NARROW] == []
