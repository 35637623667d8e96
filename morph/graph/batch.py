"""The host's view of the lines being decoded: each line's row, codes and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch

from ..decode.decoded import BROKEN, Decoded
from ..decode.request import LatePart, LineRequest
from ..decode.source import Lines, as_source
from ..frame.noise import GROUPS
from ..model.finite import not_finite

NOBODY = -1  # the number of the line in a free row
REFILL_SHARE = 8  # an eighth of the rows is refilled at a time: one prefill serves several lines
# Up to this many lines, a new one's first frame is read at once, and where it is heard its samples are waited for. With
# more, lines come with nearly every frame: the device would wait for the host each time.
FIRST_AT_ONCE = 16


class LineBatch:
    """Follows lines through a batch with fewer rows: a row whose line has ended takes the next waiting line.

    Lines are numbered in the order in which they get their rows.

    Args:
        lines: in that order.
        eos: the code of group 0 that ends a line.
        rows: of the batch.
        dtype: that the model computes in, for the error when its numbers are not finite.
        broken: takes the rows of lines that have ended because their numbers are not finite.
    """

    def __init__(self, lines: Lines, eos: int, rows: int, dtype: torch.dtype, broken: set[int] | None = None):
        self.source = as_source(lines)
        self.eos = eos
        self.dtype = dtype
        self.lines_running = 0  # rows that have a line
        self._rows: list[_Line | None] = [None] * rows
        # For each row the number of its line, and the cache positions that this takes up: a look at every line in
        # Python takes longer than all the rest.
        self._numbers = np.full(rows, NOBODY)
        self._reached = np.zeros(rows, dtype=np.int64)
        self._lines: dict[int, _Line] = {}  # of a source that is not collected: those in rows
        self._admitted = 0
        self._new: list[_Line] = []  # lines without a frame in flight
        self._late: dict[int, _Line] = {}  # by row, those whose text comes in parts
        self._stopped: set[int] = set()  # rows without the last frame
        self._began: list[_Line] = []  # lines whose first frame is the last one that was sent
        self._unheard: set[int] = set()  # lines whose first frame is in flight and has a listener
        self._reports: list[torch.Tensor] = []
        self._in_flight: deque[np.ndarray] = deque()
        self._broken = set() if broken is None else broken

    @property
    def running(self) -> bool:
        """Whether a line has not ended, or may come."""
        return self.lines_running > 0 or not self.source.done

    @property
    def must_wait(self) -> bool:
        """Whether, where no line in a row can make a frame, one has to come: none can be admitted now."""
        return self.lines_running > 0 or (not self.source.ready and not self.source.done)

    @property
    def first_is_awaited(self) -> bool:
        """Whether the first frame of a line that somebody listens to is in flight, and read at once."""
        return bool(self._unheard) and self.lines_running <= FIRST_AT_ONCE

    @property
    def positions(self) -> int:
        """The cache positions that the longest running line takes up.

        A stopped row overwrites the position of its next frame, so that one counts too.
        """
        held = (self._reached[row] + 1 for row in self._stopped if self._rows[row] is not None)
        return int(max(self._reached.max(), max(held, default=0)))

    @property
    def requests(self) -> list[tuple[int, LineRequest]]:
        """The rows that have a line, and its request."""
        return [(line.row, line.request) for line in self._rows if line is not None]

    def request(self, line: int) -> LineRequest:
        """Return a line's request, by its number."""
        return self._lines[line].request

    def admit(self) -> list[tuple[int, int]]:
        """Assign free rows to waiting lines, if enough rows are free; return pairs of a row and its new line."""
        waiting, free = len(self.source.ready), len(self._rows) - self.lines_running
        if not waiting or free < min(waiting, max(1, len(self._rows) // REFILL_SHARE)):
            return []
        rows = [row for row, line in enumerate(self._rows) if line is None]
        return [(row, self._enter(row)) for row in rows[:waiting]]

    def _enter(self, row: int) -> int:
        """Put the next line into a free row; return its number."""
        number, self._admitted = self._admitted, self._admitted + 1
        line = self._lines[number] = self._rows[row] = _Line(self.source.take(), number, row)
        self._numbers[row], self._reached[row] = number, line.prompt
        self._new.append(line)
        self.lines_running += 1
        if line.request.text is not None:
            self._late[row] = line
        return number

    def end_cancelled(self) -> None:
        """End the lines that are to end now, and free their rows. Their frames in flight are not kept."""
        for line in self._rows.copy():
            if line is not None and line.cancelled is not None and line.cancelled():
                self._end(line, "cancelled")

    def stopped(self) -> list[int]:
        """Return the rows of lines that cannot make a frame yet, because text of theirs is late."""
        held = []
        for row, line in sorted(self._late.items()):
            text = line.request.text
            if text is not None and not text.ready(int(self._reached[row]) - line.prompt):
                held.append(row)
        return held

    def late_parts(self) -> list[tuple[int, int, LatePart]]:
        """Return the text that has come since the last call: its row, its offset in the line's text, and itself."""
        parts = []
        for row, line in sorted(self._late.items()):
            text = line.request.text
            if text is not None and (part := text.take()) is not None:
                parts.append((row, line.written, part))
                line.written += len(part.rows)
        return parts

    def send(self, stopped: Sequence[int] = ()) -> None:
        """Note that a frame is in flight: its report will be about the lines in the rows now, but the stopped ones."""
        self._stopped = set(stopped)
        sent = self._numbers.copy()
        sent[list(stopped)] = NOBODY
        self._reached[sent != NOBODY] += 1
        self._in_flight.append(sent)
        new = [line for line in self._new if line.ended is None]
        self._began = [line for line in new if line.row not in self._stopped]
        self._new = [line for line in new if line.row in self._stopped]
        self._unheard.update(line.number for line in self._began if line.on_codes is not None)

    def launched(self, report: torch.Tensor) -> None:
        """The device has the frame that was sent: let the lines whose first it is get ready for it.

        ``report`` is the device's own, ``[B, 17]``.
        """
        for line in self._began:
            if line.request.on_launch is not None:
                line.request.on_launch(report[line.row, :GROUPS] if len(self._began) == 1 else None)

    def receive(self, report: torch.Tensor) -> int:
        """Take the oldest report in flight, ``[B, 17]``, and keep it; return how many lines made this frame.

        Raises:
            NotFinite: if a line's numbers are not finite, and it has no ``LineRequest.on_broken``.
        """
        numbers, sent = report.numpy(), self._in_flight.popleft()
        rows = np.flatnonzero(
            (sent == self._numbers) & (sent != NOBODY)
        )  # of lines that have not ended since
        if (flags := numbers[rows, GROUPS]).any():
            self._break_off(rows[flags != 0].tolist())
            rows = rows[flags == 0]
        made, codes, first = 0, numbers[:, :GROUPS], numbers[:, 0].tolist()
        for row in rows.tolist():
            line = self._rows[row]
            assert line is not None
            if first[row] == self.eos:
                self._end(line, "eos")
                continue
            made += 1
            self._keep(line, codes[row])
            if (end := line.guard.add(first[row])) is not None:
                self._end(line, end)
        if self.source.collected:
            self._reports.append(report[:, :GROUPS])
        return made

    def _keep(self, line: _Line, codes: np.ndarray) -> None:
        """Note that the current report has a frame of a line, and pass its codes on."""
        if self.source.collected:
            line.reports.append(len(self._reports))
        if self._unheard:
            self._unheard.discard(line.number)
        if line.on_codes is not None:
            line.on_codes(codes)

    def _break_off(self, rows: Sequence[int]) -> None:
        """End the lines in these rows, whose numbers are not finite."""
        self._broken.update(rows)
        for row in rows:
            line = self._rows[row]
            assert line is not None
            self._release(line, BROKEN)
            line.request.break_off(not_finite(self.dtype))

    def _end(self, line: _Line, ended: str) -> None:
        self._release(line, ended)
        line.request.end(ended)

    def _release(self, line: _Line, ended: str) -> None:
        """Free the row of a line that has ended."""
        line.ended = ended
        self._unheard.discard(line.number)
        self._rows[line.row], self._numbers[line.row], self._reached[line.row] = None, NOBODY, 0
        self._late.pop(line.row, None)
        self.lines_running -= 1
        if not self.source.collected:
            del self._lines[line.number]

    def collect(self) -> list[Decoded]:
        """Return every line's codes and how it ended, in the order of their numbers; none if nobody collects them."""
        codes = (
            torch.stack(self._reports) if self._reports else torch.zeros(0, len(self._rows), GROUPS).long()
        )
        return [
            Decoded(codes[torch.tensor(line.reports, dtype=torch.int64), line.row], str(line.ended))
            for line in self._lines.values()
        ]


class _Line:
    """A line that has had a row: the reports that have its frames, its prompt's and its trailing text's length.

    What a frame asks of every line is at hand: a tensor takes a microsecond to say its length.
    """

    def __init__(self, request: LineRequest, number: int, row: int):
        self.request, self.number, self.row = request, number, row
        self.on_codes, self.cancelled, self.guard = request.on_codes, request.cancelled, request.guard
        self.prompt, self.written = request.prompt.length, len(request.prompt.trailing)
        self.reports: list[int] = []
        self.ended: str | None = None
