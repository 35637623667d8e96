"""Compile kernels for a GPU that is not there, as their launches would: which GPUs they run on, and how they load.

``main`` prints a JSON object for each kernel. Launches are recorded over tensors on the meta device, so the shapes are
the published model's. Triton must not be the interpreter (TRITON_INTERPRET): this needs a process of its own.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import triton
from qwen3_tts_morph.morph.codec.weights import SnakeWeights, Unit
from qwen3_tts_morph.morph.kernels import frame
from qwen3_tts_morph.morph.kernels.codec.conv import convolve, residual_unit
from qwen3_tts_morph.morph.kernels.codec.ops import SHARED_BYTES, TILES, TMA_TILES, WIDEST_UNIT
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.options import Sampling, TokenSampling
from qwen3_tts_morph.morph.words.head import AlignmentHead
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

from lab.benchmarks.random_weights import SHAPES, random_slots, random_weights

META = torch.device("meta")
TYPES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
    torch.bool: "i1",
}
SAMPLING = Sampling(TokenSampling(), TokenSampling(), 1.05)
WINDOW = 256
FRAMES = 288

Record = Callable[..., None]


def plan_of(capability: int) -> Plan:
    """Return the plan of a GPU of this capability, but for the kernels in Gluon."""
    return Plan(pdl=capability >= 90, split_library=capability == 90)


def run_frame(lines: int, plan: Plan) -> None:
    """Launch the kernels of a frame of ``lines`` lines, with an alignment head."""
    shape = SHAPES["0.6B"]
    weights = random_weights(shape, META, torch.bfloat16)
    slots = random_slots(shape, weights, lines, WINDOW, [WINDOW // 2] * lines, SAMPLING)
    frame.decode_frame(replace(weights, alignment=AlignmentHead(20, 3)), slots, 5, WINDOW, plan)


def run_codec(record: Record, capability: int) -> None:
    for channels, tile in TILES.items():
        if tile.shared_bytes > SHARED_BYTES and capability != 90:
            continue  # ``ops.fits``
        rows = torch.empty(FRAMES * 64, channels, dtype=torch.bfloat16, device=META)
        snake = SnakeWeights(*torch.empty(3, channels, device=META).unbind())
        conv = torch.empty(channels, 7, channels, dtype=torch.bfloat16, device=META)
        unit = Unit(snake, conv, 3, snake, conv[:, 0].contiguous())
        keep = torch.empty(FRAMES, dtype=torch.bool, device=META)
        if channels > WIDEST_UNIT:
            convolve(rows, unit, keep, tile, record)
            continue
        taps = torch.empty(7, channels, device=META)
        for one in [tile] + [TMA_TILES[channels]] * (capability == 90):
            residual_unit(rows, rows, unit, snake, keep, one, False, record)
            residual_unit(rows, rows, unit, snake, keep, one, True, record, taps)


def source_of(kernel: Any, arguments: dict[str, Any]) -> ASTSource:
    """Return what the launcher would compile for these arguments."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for index, parameter in enumerate(kernel.params):
        value = arguments[parameter.name]
        aligned = not parameter.do_not_specialize
        if isinstance(value, TensorDescriptor):
            signature[parameter.name] = f"tensordesc<{TYPES[value.base.dtype]}{value.block_shape}>"
            aligned = False
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = f"*{TYPES[value.dtype]}"
        elif parameter.is_constexpr or value is None:
            signature[parameter.name], constants[(index,)], aligned = "constexpr", value, False
        elif isinstance(value, float):
            signature[parameter.name], aligned = "fp32", False
        else:
            signature[parameter.name], aligned = "i32", aligned and value % 16 == 0
        if aligned:
            attributes[(index,)] = [["tt.divisibility", 16]]
    return ASTSource(kernel, signature, constants, attributes)


def compiled(capability: int, parts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield what is known of each kernel: its name, bytes of shared memory, and widths of its loads."""
    seen: dict[str, tuple[ASTSource, dict[str, Any]]] = {}

    def record(kernel: Any, grid: tuple[int, ...], *positional: Any, **named: Any) -> None:
        options = {
            name: named.pop(name) for name in ("num_warps", "num_stages", "launch_pdl", "maxnreg") if name in named
        }
        names = [parameter.name for parameter in kernel.params]
        source = source_of(kernel, dict(zip(names, positional, strict=False)) | named)
        seen.setdefault(f"{kernel.__name__} {options} {source.signature} {source.constants}", (source, options))

    for part in parts:
        if part == "codec":
            run_codec(record, capability)
        else:
            run_frame(int(part.removeprefix("frame-")), replace(plan_of(capability), start=record))
    for source, options in seen.values():
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        loads = re.findall(r"ld\.global[\w.:]*?\.([bv]\d+)", made.asm["ptx"])
        yield {"kernel": source.fn.__name__, "shared": made.metadata.shared, "loads": loads}


def main() -> None:
    """Compile for the capability and the parts of the command line: 90 codec frame-1."""
    for one in compiled(int(sys.argv[1]), sys.argv[2:]):
        sys.stdout.write(json.dumps(one) + "\n")
