"""How the kernels are laid out: one frozen record of sizes, chosen by shape alone, nothing tuned at run time.

Beside them it says where intermediate results lie.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl

from ..runtime.workspace import Workspace
from .precompile import Launch, run

LANES = 32
WARP_BYTES = 512  # what a warp reads at once
WORD = 4  # INT8 weights a word
LONGEST_SEGMENT = 1024  # columns of a state that a program holds at a time
FEWEST_COLUMNS = 16  # outputs a program of project_many at the least
SHORTEST_SEGMENT = 64  # of project_many, to which segments are cut until FEWEST_STAGES fit
FEWEST_STAGES = 4
HELD_SHARED = 220 * 1024  # bytes of shared memory that project_held shares out
HELD_ROWS = 64  # states that a program of project_held multiplies at the least
FOLDED_ROWS = 64  # of weights in a program of project_folded
FOLDED_WARPS = 4
MOST_FOLDED = 32  # states that it multiplies
FOLDS = (1, 2, 4)
PART_MULTIPLE = 16  # columns of a part of a product: a multiple of so many
FEWEST_PROGRAMS = 128  # about a program for each multiprocessor of a large GPU
LINE_WARPS = 8
ATTEND_BYTES = 256  # of a position's key or value; of longer ones attend_many holds fewer
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
    """A program's share of ``project_many``, or where ``held`` of ``project_held``; see there.

    With ``parts`` above 1 it multiplies that share of the columns, and ``join_parts`` adds the parts up. With
    ``folds`` above 0 it is ``project_folded``'s.
    """

    padded: int
    columns: int
    segment: int
    stages: int
    warps: int
    held: bool = False
    parts: int = 1
    folds: int = 0


@dataclass(frozen=True)
class Plan:
    """Sizes of all kernels.

    Attributes:
        pdl: programmatic dependent launch (compute capability 9.0 and a Triton that has it).
        few: states up to which ``project_few`` is used, 0 to 2; above, the tensor cores.
        register_bytes: weights that a warp of ``project_few`` holds in registers: 8192 are 64 a thread.
        warps: of ``project_few``; gated_warps: where it reads the parts of the last product, a program each.
        split_block: positions that a program of split attention reads at once; splits: at most so many programs a
            key head, unsplit: windows up to which one is enough for any batch (with attend_many).
        line_rows: positions of one line that a warp of its split attention takes at the least; line_splits: programs
            a key head, as long as LINE_WARPS warps each are enough for the window (0: as batches do it).
        parts: in how many the projection of one long line leaves its product; product_warps: of its kernel.
        draw_values: scores that a thread of a draw holds.
        attend_many: whether attention that is not split is ``attend_many``'s; attend_warps: of its programs at the
            least, more for few lines, or as many as the window needs; attend_rows: positions that each of them loads at
            once.
        wide_columns: outputs a program of ``project_many`` at the most, fewer until there are wide_programs of them
            (for few states FEWEST_PROGRAMS); wide_rows: its states at the most; wide_warps: where they exceed 32.
        wide_segment: columns of states and weights that it multiplies at once, or less; wide_stages: so many segments
            at the most are on their way together, and no more than wide_shared bytes of shared memory hold (two such
            programs fit on a multiprocessor of compute capability 9.0, one on any from 8.0); wide_prefetch: whether
            weights are brought into the L2 cache before the wait (with pdl).
        wide_held: states of two bytes a number multiply in ``project_held``, or up to 32 of them in
            ``project_folded`` (compute capability 9.0 and a Triton that has Gluon).
        wide_folds: folds of ``project_folded`` at the most, 0: it is not used; of those that fit, the fewest that make
            FEWEST_PROGRAMS programs.
        wide_parts: more than 32 states, and any of ``project_held``, multiply with a weight of wide_parts_width columns
            or more in so many parts at the most, where wide_parts_columns outputs a program leave room for four: as
            many as wide_parts_programs programs make. 1: in none.
        evict: eviction policy of ``project_few``'s weights: "evict_first", "evict_last" or "".
        registers: at most so many a thread in ``project_few``; None leaves it to the compiler.
        workspace: where intermediate results lie, so that they can be captured; None makes them anew each time.
        start: what launches kernels, or ``compile_only``.
    """

    pdl: bool = False
    few: int = 2
    register_bytes: int = 8192
    warps: int = 8
    gated_warps: int = 8
    split_block: int = 32
    splits: int = 16
    unsplit: int = 512
    line_rows: int = 16
    line_splits: int = 16
    parts: int = 4
    product_warps: int = 4
    draw_values: int = 8
    attend_many: bool = True
    attend_warps: int = 2
    attend_rows: int = 16
    wide_columns: int = 32
    wide_programs: int = 64
    wide_rows: int = 64
    wide_warps: int = 4
    wide_segment: int = 128
    wide_stages: int = 8
    wide_shared: int = 98304
    wide_prefetch: bool = True
    wide_held: bool = False
    wide_folds: int = 4
    wide_parts: int = 4
    wide_parts_columns: int = 64
    wide_parts_width: int = 2048
    wide_parts_programs: int = FEWEST_PROGRAMS
    evict: str = "evict_first"
    registers: int | None = None
    workspace: Workspace | None = field(default=None, compare=False, repr=False)
    start: Launch = run

    @classmethod
    def of(cls, device: torch.device) -> Plan:
        """The plan for a device."""
        return cls(pdl=has_dependent_launch(device), wide_held=has_held_products(device))

    def empty(
        self, name: str, shape: Sequence[int], like: torch.Tensor, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Memory for an intermediate result; of the dtype of ``like`` unless said otherwise."""
        dtype = dtype or like.dtype
        if self.workspace is None:
            return like.new_empty(shape, dtype=dtype)
        return self.workspace.empty(name, shape, dtype)

    def tile(
        self, outputs: int, width: int, itemsize: int, weights: int = 1, grids: int = 1, warps: int = 0
    ) -> Tile:
        """A tile for ``outputs`` of ``width`` columns of so many weights; so many such grids run side by side."""
        warps = warps or self.warps
        whole = triton.next_power_of_2(width)
        if itemsize == 1:
            # INT8, read as words: a chunk has a column of each, so four chunks lie in each other.
            chunk = min(WARP_BYTES // WORD, max(whole // WORD, WORD))
        else:
            chunk = min(WARP_BYTES // itemsize, whole)
        chunks = min(triton.next_power_of_2(-(-width // chunk)), max(1, LONGEST_SEGMENT // chunk))
        # As many INT8 weights as of bf16: they become floats, and smaller programs are more on a multiprocessor.
        rows = max(1, self.register_bytes // (weights * width * max(itemsize, 2)))
        rows = 1 << (rows.bit_length() - 1)
        while rows > 1 and grids * -(-outputs // (warps * rows)) < FEWEST_PROGRAMS:
            rows //= 2
        return Tile(warps, rows, chunks, chunk)

    def wide_tile(
        self,
        states: int,
        outputs: int,
        width: int,
        itemsize: int,
        gated: bool,
        held: bool = True,
        split: bool = True,
    ) -> WideTile:
        """A tile of ``project_many`` for so many states and outputs, or where it may be of one that holds its weights.

        ``split`` says whether it may be one of several parts.
        """
        if held and self.wide_held and itemsize == 2:
            tile = self._folded_tile(states, outputs, width, gated)
            tile = tile or self._held_tile(states, outputs, width, gated, split)
            if tile is not None:
                return tile
        padded = min(self.wide_rows, max(16, triton.next_power_of_2(states)))
        columns, parts = self._wide_share(padded, states, outputs, width, split and padded > 32 and not gated)
        segment = min(self.wide_segment, max(16, triton.next_power_of_2(width // parts)))
        if itemsize == 4:
            segment = min(segment, 32)  # float32 products run on the plain units, fully unrolled
        column_bytes = (padded + columns * (2 if gated else 1)) * itemsize
        while segment > SHORTEST_SEGMENT and self.wide_shared // (segment * column_bytes) < FEWEST_STAGES:
            segment //= 2
        stages = max(1, min(self.wide_stages, self.wide_shared // (segment * column_bytes)))
        warps = self.wide_warps if padded > 32 else 4
        return WideTile(padded, columns, segment, stages, warps, parts=parts)

    def _wide_share(self, padded: int, states: int, outputs: int, width: int, split: bool) -> tuple[int, int]:
        """Outputs of a program, and in how many parts the product is made."""
        across = -(-states // padded)
        parts = self._wide_parts(across, outputs, width) if split else 1
        return self._wide_columns(padded, across, outputs) if parts == 1 else self.wide_parts_columns, parts

    def _wide_columns(self, padded: int, across: int, outputs: int) -> int:
        """Outputs of a program that multiplies all columns, ``across`` such programs side by side."""
        columns = self.wide_columns
        # Few states are cheap to read again.
        programs = self.wide_programs if padded > 32 else FEWEST_PROGRAMS
        while columns > FEWEST_COLUMNS and -(-outputs // columns) * across < programs:
            columns //= 2
        return columns

    def _wide_parts(self, across: int, outputs: int, width: int) -> int:
        """In how many parts a product is made, ``across`` programs side by side for its states: a power of two."""
        programs = across * -(-outputs // self.wide_parts_columns)
        if width < self.wide_parts_width or 4 * programs > self.wide_parts_programs:
            return 1
        parts = 1
        while 2 * parts <= self.wide_parts and width % (2 * parts * PART_MULTIPLE) == 0:
            part_bytes = 2 * self.wide_parts_columns * width // parts
            if 2 * parts * programs > self.wide_parts_programs and 2 * part_bytes <= HELD_SHARED:
                break
            parts *= 2
        return parts

    def _folded_tile(self, states: int, outputs: int, width: int, gated: bool) -> WideTile | None:
        """A tile of ``project_folded``; None where there are too many states, or no room for them and the weights.

        Its pieces are all on their way at once: it has no stages.
        """
        padded = max(8, triton.next_power_of_2(states))
        if padded > MOST_FOLDED:
            return None
        chosen = None
        for folds in FOLDS:
            columns = FOLDED_ROWS // folds // (2 if gated else 1)
            segment = self._held_segment(width // folds)
            shared = 2 * width * (FOLDED_ROWS // folds + padded)
            if folds > self.wide_folds or shared > HELD_SHARED:
                continue
            if outputs % columns or width % (folds * segment):
                continue
            resident = FEWEST_PROGRAMS * (HELD_SHARED // shared)
            if chosen is not None and outputs // columns > resident:
                break  # the last would begin to read their weights when the first are done
            chosen = WideTile(padded, columns, segment, 0, FOLDED_WARPS, held=True, folds=folds)
            if outputs // columns >= FEWEST_PROGRAMS:
                break
        return chosen

    def _held_segment(self, width: int) -> int:
        """Columns that a program multiplies at once, of ``width`` in all: a divisor, or too few to be one."""
        segment = min(self.wide_segment, max(16, triton.next_power_of_2(width)))
        while width % segment and segment > SHORTEST_SEGMENT:
            segment //= 2
        return segment

    def _held_tile(self, states: int, outputs: int, width: int, gated: bool, split: bool) -> WideTile | None:
        """A tile of ``project_held``, with columns whose weights leave room for a ring; None if they leave none.

        A ring of a buffer more than there are segments has them all on their way at once.
        """
        padded = min(self.wide_rows, max(HELD_ROWS, triton.next_power_of_2(states)))
        columns, parts = self._wide_share(padded, states, outputs, width, split and not gated)
        width //= parts
        segment = self._held_segment(width)
        stage, row_bytes = 2 * padded * segment, 2 * (2 if gated else 1) * width
        while columns > FEWEST_COLUMNS and HELD_SHARED - columns * row_bytes < 3 * stage:
            columns //= 2
        room = (HELD_SHARED - columns * row_bytes) // stage
        stages = min(self.wide_stages, room, width // segment + 1)
        if padded < HELD_ROWS or stages < 2 or outputs % columns or width % segment:
            return None
        return WideTile(padded, columns, segment, stages, self.wide_warps, held=True, parts=parts)

    def prefetches(self, tile: WideTile, outputs: int, row_bytes: int) -> bool:
        """Whether a program of ``project_many`` can ask for its weights: a thread for each of its rows."""
        whole = outputs % tile.columns == 0 and tile.columns <= LANES * tile.warps
        return self.pdl and self.wide_prefetch and whole and row_bytes % 16 == 0

    def product_parts(self, heads: int, head_dim: int) -> int:
        """Parts of a long line's projection: a power of two of heads in each, whose columns fit into a segment."""
        wanted = max(min(self.parts, heads), heads * head_dim // LONGEST_SEGMENT)
        each = heads & -heads  # the largest power of two that divides them
        while each > 1 and heads // each < wanted:
            each //= 2
        return heads // each

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

    def share_line(self, programs: int, window: int, row_bytes: int) -> tuple[int, int, int]:
        """Of ``attend_many`` in so many programs: warps of each, positions a warp loads at once, and an instruction."""
        copies = max(1, WARP_BYTES // row_bytes)
        rows = max(self.attend_rows * ATTEND_BYTES // max(row_bytes, ATTEND_BYTES), copies)
        filling = FEWEST_PROGRAMS * LINE_WARPS // triton.next_power_of_2(programs)
        warps = max(self.attend_warps, min(LINE_WARPS, filling))
        return min(warps, triton.next_power_of_2(-(-window // rows))), rows, copies

    def split(self, lines: int, kv_heads: int, window: int) -> int:
        """Programs that share the attention of a key head over ``window`` positions: a power of two."""
        if self.attend_many and window <= self.unsplit:
            return 1
        blocks = -(-window // self.split_block)
        wanted = max(1, FEWEST_PROGRAMS // (lines * kv_heads))
        return min(1 << (blocks - 1).bit_length(), self.splits, triton.next_power_of_2(wanted))


def has_dependent_launch(device: torch.device) -> bool:
    """Whether kernels on a device can start before the one before them ends."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    return hasattr(tl.extra.cuda, "gdc_wait")


def has_held_products(device: torch.device) -> bool:
    """Whether ``project_held`` runs on a device: it has compute capability 9.0, no other, and Triton has Gluon."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        return False
    return has_gluon()


def has_gluon() -> bool:
    """Whether this Triton has what ``project_held`` and ``project_folded`` import; without it ``project_many`` runs."""
    try:
        importlib.import_module(".linear.gemm_held", __package__)
    except ImportError:
        return False
    return True


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
    plan.start(kernel, grid, **arguments, PDL=plan.pdl, num_warps=warps, **extra)
