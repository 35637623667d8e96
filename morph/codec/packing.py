"""Lines of unlike length laid end to end, so that the codec's decoder computes next to nothing that is thrown away.

Upstream decodes a line in chunks of 300 frames, each behind 25 frames of left context, and pads every convolution with
zeros on its left. Here the chunks of many lines lie behind one another in one row of frames, each behind a gap that is
kept at zero and is as wide as the widest padding: what a chunk's convolutions see is what they would see alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

CHUNK_FRAMES = 300  # upstream's chunked_decode
CONTEXT_FRAMES = 25
# Rows come in a few lengths, so that few graphs are captured; those of the published codec, whose window is 72.
LENGTHS = (24, 36, 72, 144, 216, 288, 360, 504, 648, 792, 936, 1152)
LONGEST_CHUNK = 2 * CONTEXT_FRAMES + CHUNK_FRAMES  # with its context, and a gap that is no longer than that


@dataclass(frozen=True)
class Chunk:
    """Frames ``start - context .. start + frames - 1`` of a line; those of the context are computed and cut off."""

    line: int
    start: int
    context: int
    frames: int

    @property
    def length(self) -> int:
        """Frames to compute."""
        return self.context + self.frames


@dataclass(frozen=True)
class Placed:
    """A chunk whose first frame, of the context if it has one, lies at ``place`` of a row."""

    chunk: Chunk
    place: int


def cut_chunks(lengths: Sequence[int]) -> Iterator[Chunk]:
    """Cut lines as upstream's ``chunked_decode`` does: no left context until a full one exists."""
    for line, length in enumerate(lengths):
        for start in range(0, length, CHUNK_FRAMES):
            context = CONTEXT_FRAMES if start > CONTEXT_FRAMES else start
            yield Chunk(line, start, context, min(CHUNK_FRAMES, length - start))


def row_sizes(window: int, largest: int) -> list[int]:
    """Lengths of rows in frames, ascending: attention runs in blocks of ``window`` frames, or in a shorter single one.

    Raises:
        ValueError: where the longest chunk would not fit.
    """
    whole = {length if length <= window else length // window * window for length in LENGTHS}
    sizes = sorted(size for size in whole if size <= largest)
    if not sizes or sizes[-1] < LONGEST_CHUNK:
        raise ValueError(
            f"the codec engine decodes {LONGEST_CHUNK} frames together and may take {max(sizes, default=0)}: let its "
            "largest row be longer"
        )
    return sizes


def pack_rows(chunks: Sequence[Chunk], capacity: int, gap: int) -> list[list[Placed]]:
    """Lay chunks into rows of at most ``capacity`` frames, the longest first, each behind ``gap`` empty frames."""
    rows: list[list[Placed]] = []
    ends: list[int] = []
    for chunk in sorted(chunks, key=lambda chunk: -chunk.length):
        taken = gap + chunk.length
        number = next((index for index, end in enumerate(ends) if end + taken <= capacity), len(rows))
        if number == len(rows):
            rows.append([])
            ends.append(0)
        rows[number].append(Placed(chunk, ends[number] + gap))
        ends[number] += taken
    return rows


def choose_size(row: Sequence[Placed], sizes: Sequence[int]) -> int:
    """The shortest row that holds these chunks."""
    end = max(placed.place + placed.chunk.length for placed in row)
    return next(size for size in sizes if size >= end)


def write_plan(row: Sequence[Placed], lines: Sequence[torch.Tensor], size: int) -> torch.Tensor:
    """A row as the decoder reads it: int64 ``[size, groups + 1]``, codes and the place where the frame's chunk begins.

    Frames of the gaps, and those behind the last chunk, have -1 there.
    """
    plan = torch.zeros(size, lines[0].shape[1] + 1, dtype=torch.int64)
    plan[:, -1] = -1
    for placed in row:
        chunk, place = placed.chunk, placed.place
        begin = chunk.start - chunk.context
        plan[place : place + chunk.length, :-1] = lines[chunk.line][begin : begin + chunk.length]
        plan[place : place + chunk.length, -1] = place
    return plan
