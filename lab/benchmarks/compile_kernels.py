"""Compile every kernel that a frame launches, without a GPU, and print each one's registers and shared memory.

    python -m lab.benchmarks.compile_kernels --shape 0.6B --batch 1 2 16 64

The launches are those of a frame over tensors on the meta device, so the shapes are the real ones. Fails if a kernel
does not compile or spills registers. Needs Triton with its assembler, which Triton's wheels include.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import triton
from qwen3_tts_morph.morph.kernels import frame
from qwen3_tts_morph.morph.kernels.plan import Plan, has_gluon
from qwen3_tts_morph.morph.words.head import AlignmentHead
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .bench import SAMPLING
from .random_weights import SHAPES, quantize_weights, random_slots, random_weights

TYPES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int8: "i8",
    torch.bool: "i1",
}
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@dataclass(frozen=True)
class FrameCase:
    """A frame to compile: ``shape`` is one of SHAPES, ``window`` the part of the KV cache that attention reads."""

    shape: str
    dtype: torch.dtype
    batch: int
    seq_groups: int
    window: int
    int8: bool = False


def launches(case: FrameCase, plan: Plan) -> list[Any]:
    """Return ``(kernel, grid, warps, source)`` of a frame's distinct launches, in order."""
    seen: dict[str, Any] = {}

    def record(kernel: Any, grid: tuple[int, ...], num_warps: int, **arguments: Any) -> None:
        source = make_source(kernel, arguments)
        key = f"{kernel.__name__} {num_warps} {source.signature} {source.constants}"
        seen.setdefault(key, (kernel.__name__, grid, num_warps, source))

    meta = torch.device("meta")
    shape, window = SHAPES[case.shape], case.window
    weights = replace(random_weights(shape, meta, case.dtype), alignment=AlignmentHead(0, 0))
    if case.int8:
        weights = quantize_weights(weights)
    slots = random_slots(shape, weights, case.batch, window, [window // 2] * case.batch, SAMPLING)
    frame.decode_frame(weights, slots, case.seq_groups, window, replace(plan, start=record))
    return list(seen.values())


def make_source(kernel: Any, arguments: dict[str, Any]) -> ASTSource:
    """Return what the launcher would compile for these arguments."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for index, parameter in enumerate(kernel.params):
        value = arguments[parameter.name]
        if isinstance(value, torch.Tensor):
            signature[parameter.name] = f"*{TYPES[value.dtype]}"
            attributes[(index,)] = [["tt.divisibility", 16]]
        elif parameter.is_constexpr or value is None:
            signature[parameter.name] = "constexpr"
            constants[(index,)] = value
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        else:
            signature[parameter.name] = "i32"
            if not parameter.do_not_specialize and value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource(kernel, signature, constants, attributes)
    return ASTSource(kernel, signature, constants, attributes)


def compile_all(found: list[Any], capability: int) -> Iterator[str]:
    """Compile, and yield a line per kernel.

    Raises:
        RuntimeError: for a kernel that spills registers.
    """
    for name, grid, warps, source in found:
        options = {"num_warps": warps} | ({"launch_pdl": True} if capability >= 90 else {})
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        registers, stack = resources(compiled.asm["cubin"])
        sizes = {key[0]: value for key, value in source.constants.items() if isinstance(value, int)}
        named = {source.fn.params[index].name: value for index, value in sizes.items()}
        programs = 1
        for count in grid:
            programs *= count
        yield (
            f"{name:16} {programs:5} programs x {warps} warps  {registers:3} registers  "
            f"{compiled.metadata.shared:6} B shared  {stack:4} B stack  {named}"
        )
        if stack > 64:
            raise RuntimeError(f"{name} spills {stack} bytes per thread: choose a smaller tile ({named})")


def resources(binary: bytes) -> tuple[int, int]:
    """Return the registers per thread and the bytes of stack of a cubin."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)
        command = [str(TOOLS / "cuobjdump"), "-res-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        raise RuntimeError(f"cuobjdump printed no register count: {text}")
    return int(found[1]), int(found[2])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", nargs="+", default=["0.6B", "1.7B"], choices=sorted(SHAPES))
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 2, 4, 16, 64])
    parser.add_argument("--seq-groups", type=int, default=5)
    parser.add_argument("--window", nargs="+", type=int, default=[256, 2048])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--capability", type=int, default=90)
    parser.add_argument("--int8", action="store_true", help="with INT8 weights")
    options = parser.parse_args()
    plan = Plan(pdl=options.capability >= 90, gemm_held=options.capability == 90 and has_gluon())
    for shape in options.shape:
        for batch in options.batch:
            for window in options.window:
                print(f"\n{shape}, batch {batch}, window {window}, {options.dtype}")
                dtype = getattr(torch, options.dtype)
                case = FrameCase(shape, dtype, batch, options.seq_groups, window, options.int8)
                for line in compile_all(launches(case, plan), options.capability):
                    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
