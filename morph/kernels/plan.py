"""How the kernels are laid out: one frozen record of sizes, chosen by shape alone, nothing tuned at run time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

LANES = 32
WARP_BYTES = 512  # what a warp reads at once
LONGEST_SEGMENT = 1024  # columns of a state that a program holds at a time
FEWEST_PROGRAMS = 128  # about a program for each multiprocessor of a large GPU
LINE_WARPS = 8
MOST_LINE_SPLITS = 32  # parts that a thread joins


@dataclass(frozen=True)
class Tile:
    """``project_few``'s share of a program: WARPS x ROWS outputs, read CHUNKS x CHUNK columns at a time."""

    warps: int
    rows: int
    chunks: int
    chunk: int

    @property
    def outputs(self) -> int:
        """Outputs a program."""
        return self.warps * self.rows


@dataclass(frozen=True)
class WideTile:
    """``project_many``'s share of a program; see there."""

    padded: int
    columns: int
    segment: int
    early: int
    warps: int


@dataclass(frozen=True)
class Plan:
    """Sizes of all kernels.

    Attributes:
        pdl: programmatic dependent launch (compute capability 9.0 and a Triton that has it).
        few: states up to which ``project_few`` is used, 0 to 2; above, the tensor cores.
        register_bytes: weights that a warp of ``project_few`` holds in registers: 8192 are 64 a thread.
        warps: of ``project_few``; gated_warps: where it reads the parts of the last product, a program each.
        split_block: positions that a program of split attention reads at once; splits: at most so many programs a
            key head.
        line_rows: positions of one line that a warp of its split attention takes at the least; line_splits: programs
            a key head, as long as LINE_WARPS warps each are enough for the window (0: as batches do it).
        parts: in how many the projection of one long line leaves its product; product_warps: of its kernel.
        draw_values: scores that a thread of a draw holds.
        wide_columns: outputs a program of ``project_many``; wide_bytes: its weights that wait in registers.
        evict: eviction policy of ``project_few``'s weights: "evict_first", "evict_last" or "".
        registers: at most so many a thread in ``project_few``; None leaves it to the compiler.
    """

    pdl: bool = False
    few: int = 2
    register_bytes: int = 8192
    warps: int = 4
    gated_warps: int = 8
    split_block: int = 32
    splits: int = 16
    line_rows: int = 8
    line_splits: int = 16
    parts: int = 8
    product_warps: int = 8
    draw_values: int = 8
    wide_columns: int = 32
    wide_bytes: int = 16384
    evict: str = "evict_first"
    registers: int | None = None

    @classmethod
    def of(cls, device: torch.device) -> Plan:
        """The plan for a device."""
        return cls(pdl=has_dependent_launch(device))

    def tile(
        self, outputs: int, width: int, itemsize: int, weights: int = 1, grids: int = 1, warps: int = 0
    ) -> Tile:
        """A tile for ``outputs`` of ``width`` columns of so many weights; so many such grids run side by side."""
        warps = warps or self.warps
        chunk = min(WARP_BYTES // itemsize, triton.next_power_of_2(width))
        chunks = min(triton.next_power_of_2(-(-width // chunk)), max(1, LONGEST_SEGMENT // chunk))
        rows = max(1, self.register_bytes // (weights * width * itemsize))
        rows = 1 << (rows.bit_length() - 1)
        while rows > 1 and grids * -(-outputs // (warps * rows)) < FEWEST_PROGRAMS:
            rows //= 2
        return Tile(warps, rows, chunks, chunk)

    def wide_tile(self, states: int, outputs: int, width: int, itemsize: int, gated: bool) -> WideTile:
        """A tile of ``project_many`` for so many states and outputs."""
        padded = min(64, max(16, triton.next_power_of_2(states)))
        columns = self.wide_columns
        while columns > 16 and -(-outputs // columns) * -(-states // padded) < FEWEST_PROGRAMS:
            columns //= 2
        segment = min(256 if padded == 16 else 128, max(16, triton.next_power_of_2(width)))
        if itemsize == 4:
            segment = min(segment, 32)  # float32 products run on the plain units, fully unrolled
        tile_bytes = columns * segment * itemsize * (2 if gated else 1)
        early = max(1, min(self.wide_bytes // tile_bytes, width // segment))
        return WideTile(padded, columns, segment, early if width >= segment else 0, 8 if padded > 32 else 4)

    def product_parts(self, heads: int, head_dim: int) -> int:
        """Parts of a long line's projection: a part's columns fit into a segment."""
        return max(min(self.parts, heads), heads * head_dim // LONGEST_SEGMENT)

    def draw_warps(self, padded: int) -> int:
        """Warps of a draw from so many scores, a power of two."""
        return min(16, max(1, padded // (LANES * self.draw_values)))

    def split_line(self, window: int) -> tuple[int, int, int] | None:
        """Programs a key head, their warps, and positions a warp, for one line; None for too long a ``window``."""
        if not self.line_splits:
            return None
        for rows in (self.line_rows, 2 * self.line_rows, 4 * self.line_rows):
            warps = min(triton.next_power_of_2(-(-window // (self.line_splits * rows))), LINE_WARPS)
            splits = triton.next_power_of_2(-(-window // (warps * rows)))
            if splits <= MOST_LINE_SPLITS:
                return splits, warps, rows
        return None

    def split(self, lines: int, kv_heads: int, window: int) -> int:
        """Programs that share the attention of a key head over ``window`` positions: a power of two."""
        blocks = -(-window // self.split_block)
        wanted = max(1, FEWEST_PROGRAMS // (lines * kv_heads))
        return min(1 << (blocks - 1).bit_length(), self.splits, triton.next_power_of_2(wanted))


def has_dependent_launch(device: torch.device) -> bool:
    """Whether kernels on a device can start before the one before them ends."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    return hasattr(tl.extra.cuda, "gdc_wait")


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    plan: Plan,
    warps: int,
    registers: int | None = None,
    dependent: bool = True,
    **arguments: Any,
) -> None:
    """Launch a kernel, as a dependent of the one before it where the plan says so; a frame's first is none."""
    extra: dict[str, Any] = {"launch_pdl": True} if plan.pdl and dependent else {}
    if registers is not None:
        extra["maxnreg"] = registers
    kernel[grid](**arguments, PDL=plan.pdl, num_warps=warps, **extra)
