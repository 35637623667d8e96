"""Lines in an engine's rows, and the loop that decodes lines to their ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.finite import not_finite
from ..model.model import Model
from ..words.guard import WordGuard
from .buffers import RowBuffers
from .rows import BROKEN, Decoded, Group, LateText, LineRequest, Rows


class Decoding:
    """The lines in an engine's rows: their frames, their late text, and how they end."""

    def __init__(self, model: Model, rows: Rows):
        self.rows = rows
        self.buffers = RowBuffers(rows.count, int(model.config.talker_config.codec_eos_token_id))
        self._late: dict[int, _LateRow] = {}

    def admit(self, requests: Sequence[LineRequest]) -> list[int]:
        """Put lines into free rows; return the rows."""
        rows = self.rows.admit(requests)
        for row, request in zip(rows, requests, strict=True):
            self.buffers.begin(row, request.guard, request.words)
            if request.text is not None:
                self._late[row] = _LateRow(request, request.text)
        return rows

    def step(self, group: Group | None = None) -> bool:
        """Launch a frame of a group's lines whose text has come; return whether the device makes it now."""
        stopped = []
        for row, late in self._late.items():
            if late.request.group != group:
                continue
            if late.text.ready(late.frames):
                late.frames += 1
            else:
                stopped.append(row)
            if (part := late.text.take()) is not None:
                self.rows.add_text(row, late.written, part)
                late.written += len(part.rows)
            self.buffers.caps[row] = late.request.guard.max_frames
        return self.rows.step(stopped, group)

    def read(self) -> list[tuple[int, str]] | None:
        """Read a frame; return the rows whose lines end with it, and how, or None if there is no frame."""
        frame = self.rows.read()
        return None if frame is None else self.buffers.append(frame)

    def release(self, row: int) -> np.ndarray:
        """Free a row; return its frames, int32 ``[T, REPORT_WIDTH]``."""
        self.rows.release(row)
        self._late.pop(row, None)
        return self.buffers.release(row)

    def suspend(self, row: int) -> Suspended:
        """Free a row; return its line for ``resume``. First have ``Rows.settle`` called, and read all frames."""
        return Suspended(self.rows.suspend(row), self._late.pop(row, None), *self.buffers.leave(row))

    def resume(self, line: Suspended) -> int:
        """Put a line of this decoding into a free row, where it goes on as if it had never left; return the row."""
        row = self.rows.resume(line.state)
        self.buffers.enter(row, line.frames, line.seen, line.words)
        if line.late is not None:
            self._late[row] = line.late
        return row


class _LateRow:
    def __init__(self, request: LineRequest, text: LateText):
        self.request, self.text = request, text
        self.written = len(request.prompt.trailing)  # positions of text
        self.frames = 0  # launched


@dataclass(frozen=True)
class Suspended:
    """A line without a row; it holds the device's memory of its positions until it is dropped."""

    state: Any  # of ``Rows.suspend``
    late: _LateRow | None
    frames: np.ndarray
    seen: list[np.ndarray]  # the state of its stop criteria
    words: WordGuard | None


def decode_lines(
    model: Model, rows: Rows, lines: Sequence[LineRequest], on_frame: Callable[[int], None] | None = None
) -> list[Decoded]:
    """Decode lines to their ends, in their order; ``on_frame`` gets the number of lines in every frame.

    Raises NotFinite if the numbers of a line are not finite.
    """
    decoding, waiting = Decoding(model, rows), deque(enumerate(lines))
    running: dict[int, int] = {}  # lines by row
    results: dict[int, Decoded] = {}
    while waiting or running:
        if waiting and (room := rows.room(len(waiting))):
            first = [waiting.popleft() for _ in range(room)]
            admitted = decoding.admit([line for _, line in first])
            running.update(zip(admitted, (number for number, _ in first), strict=True))
        decoding.step()
        while (ended := decoding.read()) is not None:
            for row, end in ended:
                if end == BROKEN:
                    raise not_finite(model.dtype)
                results[running.pop(row)] = Decoded.of(decoding.release(row), end)
            if decoding.buffers.appended and on_frame is not None:
                on_frame(decoding.buffers.appended)
    return [results[number] for number in range(len(lines))]
