"""The sizes of all kernels in one frozen record, chosen from shapes alone: nothing is tuned at run time."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import triton.language as tl

from ..frame.buffers import Workspace
from ..model.weights import Int8Weight, Weight
from .precompile import Launch, run

SUM_WIDTH = 16  # columns of the residual stream whose squares are summed together, for the next RMSNorm


LANES = 32  # threads per warp
WARP_BYTES = 512  # read by a warp in one instruction: 16 bytes per lane
FEWEST_PROGRAMS = 128  # about one program per multiprocessor of a large GPU


@dataclass(frozen=True)
class Plan:
    """Sizes of all kernels, and their buffers; rows are lines times new positions per line."""

    # Launches.
    pdl: bool = False  # programmatic dependent launch: needs compute capability 9.0 and a Triton that has it
    # Buffers; None allocates each time.
    workspace: Workspace | None = field(default=None, compare=False, repr=False)
    start: Launch = run  # launches a kernel, or ``compile_only``

    # GEMV: linear layers of one or two rows.
    gemv_max_rows: int = 2  # above this many rows (0 to 2), the tensor cores are used
    gemv_register_bytes: int = 8192  # weights that a warp holds in registers: 64 registers per thread
    gemv_warps: int = 8  # per program
    gemv_reduce_warps: int = 8  # per program that also sums the o-projection's split-K partials

    # GEMM: linear layers of more rows, on the tensor cores. M are rows, N outputs, K input columns.
    gemm_block_m: int = 64  # at most this many rows per program
    gemm_block_n: int = 32  # at most this many outputs per program, halved until there are enough programs
    gemm_block_k: int = 128  # at most this many input columns per step of the loop
    gemm_programs: int = 64  # programs to reach with more than 32 rows; with fewer rows, FEWEST_PROGRAMS
    gemm_warps: int = 4  # per program of more than 32 rows
    gemm_stages: int = 8  # at most this many steps' loads are in flight
    gemm_shared_bytes: int = 98304  # of those stages: two programs fit on an H100's SM, one on an A100's
    gemm_held: bool = False  # hold weights in shared memory: needs capability 9.0 and Gluon
    max_folds: int = 4  # 0: no ``gemm_folded``; it uses the fewest that make FEWEST_PROGRAMS programs
    # Programs that hold their weights concurrently, one per multiprocessor: more would run one after another.
    held_programs: int = FEWEST_PROGRAMS
    # Up to this many rows, ``gemm_folded`` streams weights whose programs would not fit at once.
    stream_max_rows: int = 64
    stream_shared_bytes: int = 216 * 1024  # of its ring, which has half of it with more than 32 rows
    max_split_k: int = 4  # at most this many programs share the K columns of an output; 1 turns split-K off
    split_k_block_n: int = 64  # outputs per program of a split-K GEMM
    split_k_min_width: int = 2048  # K below which a GEMM is never split
    split_k_programs: int = FEWEST_PROGRAMS  # split-K stops doubling when there are this many programs

    library_min_rows: int | None = 65  # from this many rows on, cuBLAS computes the GEMMs; None: never
    split_library: bool = False  # except narrow ones, with split-K: measured at capability 9.0 only

    # Attention of one line, fused with its output projection.
    line_positions: int = 16  # cached positions per warp, at least
    line_splits: int = 16  # per key head, while 8 warps each suffice; 0: attention as for batches
    o_proj_split_k: int = 4  # split-K partials that the output projection of a long line leaves
    o_proj_warps: int = 4  # per program of that projection

    # Attention of several lines.
    batch_warps: int = 2  # per program of ``attend_batch``; more for few lines, fewer for a short window
    batch_positions: int = 16  # cached positions that one of its warps loads at once
    split_block: int = 32  # positions that a program of ``attend_split`` loads at once
    max_splits: int = 16  # programs that share one key head's context, at most
    unsplit_window: int = 512  # windows up to this long are never split

    # Sampling.
    sampling_values: int = 8  # logits per thread
    sampling_programs: int = 256  # from here on programs share multiprocessors: twice the logits each

    @classmethod
    def of(cls, device: torch.device) -> Plan:
        dependent = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
        held = is_hopper(device) and has_gluon()  # ``gemm_held`` and ``gemm_folded``: wgmma
        return cls(pdl=dependent and hasattr(tl.extra.cuda, "gdc_wait"), gemm_held=held, split_library=held)

    def runs_prompts(self, weight: Weight) -> bool:
        """Return whether a short prompt is faster in these kernels than with cuBLAS: if they hold their weights."""
        return self.gemm_held and not isinstance(weight, Int8Weight) and weight.element_size() == 2

    def uses_library(self, rows: int) -> bool:
        return self.library_min_rows is not None and rows >= self.library_min_rows

    def product_dtype(self, rows: int, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of a GEMM's result: the model's ``dtype`` for cuBLAS, float32 for our kernels."""
        return dtype if self.uses_library(rows) else torch.float32

    def empty(
        self, name: str, shape: Sequence[int], like: torch.Tensor, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        dtype = dtype or like.dtype
        if self.workspace is None:
            return like.new_empty(shape, dtype=dtype)
        return self.workspace.empty(name, shape, dtype)

    def sampling_warps(self, padded: int, programs: int) -> int:
        """Return the warps per program that samples from ``padded`` logits, a power of two."""
        values = self.sampling_values * (2 if programs >= self.sampling_programs else 1)
        return min(16, max(1, padded // (LANES * values)))


def is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def has_gluon() -> bool:
    try:
        importlib.import_module(".linear.gemm_held", __package__)
    except ImportError:
        return False
    return True


def launch(
    kernel: Any, grid: tuple[int, ...], plan: Plan, warps: int, dependent: bool = True, **arguments: Any
) -> None:
    """Launch a kernel as the plan says; ``arguments`` are the kernel's own, without ``PDL``.

    ``dependent`` with ``plan.pdl``: start while the previous kernel still runs. A frame's first kernel must not.
    """
    extra = {"launch_pdl": True} if plan.pdl and dependent else {}
    plan.start(kernel, grid, **arguments, PDL=plan.pdl, num_warps=warps, **extra)
