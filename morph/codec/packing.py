"""Pack lines of different lengths into rows, so that the codec's decoder computes hardly any padding.

Upstream decodes a line in chunks of 300 frames, each after 25 frames of left context, and pads every convolution with
zeros on its left. Here the chunks of many lines are concatenated in one row of frames. Before each chunk is a gap of
zeros as wide as the widest padding, so a chunk's convolutions see what they would see alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch

CHUNK_FRAMES = 300  # upstream's chunked_decode
CONTEXT_FRAMES = 25
# Of a reference per step: 40 ms on a core with the demo voice. A frame with its samples takes 53 ms, 12 take 224 ms.
PART_FRAMES = 96
# Rows have one of a few lengths, so that few graphs are captured; chosen for the published codec, whose window is 72.
LENGTHS = (24, 36, 72, 144, 216, 288, 360, 504, 648, 792, 936, 1152)
# With its context, and a gap that is no longer than the context.
LONGEST_CHUNK = 2 * CONTEXT_FRAMES + CHUNK_FRAMES


@dataclass(frozen=True)
class CodecChunk:
    """Frames ``start - context .. start + frames - 1`` of a line; samples of the context are cut off."""

    line: int
    start: int
    context: int
    frames: int
    position: int = 0  # in its row, of its first frame, including the context

    @property
    def length(self) -> int:
        return self.context + self.frames


Row: TypeAlias = Sequence[CodecChunk]


def cut_chunks(lengths: Sequence[int]) -> Iterator[CodecChunk]:
    """Cut lines as upstream's ``chunked_decode`` does: without left context until a full one is available."""
    for line, length in enumerate(lengths):
        for start in range(0, length, CHUNK_FRAMES):
            context = CONTEXT_FRAMES if start > CONTEXT_FRAMES else start
            yield CodecChunk(line, start, context, min(CHUNK_FRAMES, length - start))


def first_needed(frames: int) -> int:
    """Return the first of a line's ``frames`` frames that the codec's state after them depends on.

    A chunk depends on nothing before its left context. If one begins right after these frames, none is needed: it
    decodes its context itself.
    """
    within = frames % CHUNK_FRAMES
    return max(0, frames - within - CONTEXT_FRAMES) if within else frames


def row_sizes(window: int, largest: int) -> list[int]:
    """Return row lengths in frames, ascending: shorter than attention's ``window``, or multiples of it."""
    lengths = {length if length <= window else length // window * window for length in LENGTHS}
    return sorted(size for size in lengths if size <= largest)


def pack_rows(chunks: Sequence[CodecChunk], capacity: int, gap: int) -> list[list[CodecChunk]]:
    """Pack chunks into rows of at most ``capacity`` frames, longest first, each after ``gap`` empty frames."""
    rows: list[list[CodecChunk]] = []
    ends: list[int] = []
    for chunk in sorted(chunks, key=lambda chunk: -chunk.length):
        length = gap + chunk.length
        number = next((index for index, end in enumerate(ends) if end + length <= capacity), len(rows))
        if number == len(rows):
            rows.append([])
            ends.append(0)
        rows[number].append(replace(chunk, position=ends[number] + gap))
        ends[number] += length
    return rows


def choose_size(row: Row, sizes: Sequence[int]) -> int:
    end = max(chunk.position + chunk.length for chunk in row)
    return next(size for size in sizes if size >= end)


def write_plan(row: Row, lines: Sequence[torch.Tensor], size: int) -> torch.Tensor:
    """Return a row as the decoder reads it, int64 ``[size, groups + 1]``: codes, and the index where the chunk begins.

    In gaps and after the last chunk that index is -1.
    """
    plan = torch.zeros(size, lines[0].shape[1] + 1, dtype=torch.int64)
    plan[:, -1] = -1
    for chunk in row:
        begin, position = chunk.start - chunk.context, chunk.position
        plan[position : position + chunk.length, :-1] = lines[chunk.line][begin : begin + chunk.length]
        plan[position : position + chunk.length, -1] = position
    return plan
