"""Compile every kernel that a frame launches, without a GPU, and say what each takes of a multiprocessor.

    python -m lab.benchmarks.compile_kernels --shape 0.6B --batch 1 2 16 64
    python -m lab.benchmarks.compile_kernels --batch 64 --plan "not held"

The launches are those of a frame over tensors without numbers (the meta device), so the shapes are the real ones.
Fails when a kernel does not compile, or spills registers. Needs Triton with its assembler, as its wheels have it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from qwen3_tts_morph.morph.kernels import frame
from qwen3_tts_morph.morph.kernels import layer as passes
from qwen3_tts_morph.morph.kernels.plan import Plan, has_gluon
from qwen3_tts_morph.morph.options import Sampling, TokenSampling
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .kernel_plans import FEW_VARIANTS, VARIANTS, WIDE_VARIANTS
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
SAMPLING = Sampling(TokenSampling(), TokenSampling(), 1.05)
PLANS = VARIANTS | FEW_VARIANTS | WIDE_VARIANTS
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def launches(
    shape: str, dtype: torch.dtype, batch: int, seq_groups: int, plan: Plan, window: int, int8: bool = False
) -> list[Any]:
    """``(kernel, warps, arguments)`` of a frame's distinct launches, in order."""
    seen: dict[str, Any] = {}

    def record(
        kernel: Any,
        grid: tuple[int, ...],
        plan: Plan,
        warps: int,
        registers: int | None = None,
        dependent: bool = True,
        **arguments: Any,
    ) -> None:
        arguments["PDL"] = plan.pdl
        source = make_source(kernel, arguments)
        key = f"{kernel.__name__} {warps} {source.signature} {source.constants}"
        seen.setdefault(key, (kernel.__name__, grid, warps, source))

    meta = torch.device("meta")
    weights = random_weights(SHAPES[shape], meta, dtype)
    if int8:
        weights = quantize_weights(weights)
    slots = random_slots(SHAPES[shape], weights, batch, window, [window // 2] * batch, SAMPLING)
    with mock.patch.object(passes, "launch", record), mock.patch.object(frame, "launch", record):
        frame.decode_frame(weights, slots, seq_groups, window, plan)
    return list(seen.values())


def make_source(kernel: Any, arguments: dict[str, Any]) -> ASTSource:
    """What the launcher would compile for these arguments."""
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
    """Compile; a line for each kernel. Raises RuntimeError for one that spills."""
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
            raise RuntimeError(f"{name} spills {stack} bytes a thread: give it less to hold ({named})")


def resources(binary: bytes) -> tuple[int, int]:
    """Registers a thread and bytes of stack."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)
        command = [str(TOOLS / "cuobjdump"), "-res-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        raise RuntimeError(f"cuobjdump says nothing of registers: {text}")
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
    parser.add_argument(
        "--plan", choices=sorted(PLANS), help="another plan than the default, of kernel_plans.py"
    )
    options = parser.parse_args()
    plan = Plan(pdl=options.capability >= 90, wide_held=options.capability == 90 and has_gluon())
    plan = replace(plan, **PLANS.get(options.plan, {}))
    for shape in options.shape:
        for batch in options.batch:
            for window in options.window:
                print(f"\n{shape}, batch {batch}, window {window}, {options.dtype}")
                found = launches(
                    shape,
                    getattr(torch, options.dtype),
                    batch,
                    options.seq_groups,
                    plan,
                    window,
                    options.int8,
                )
                for line in compile_all(found, options.capability):
                    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
