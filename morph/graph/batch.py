"""The host's view of the lines being decoded: each line's row, codes and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ..decode.decoded import Decoded
from ..decode.request import LatePart, LineRequest
from ..decode.source import Lines, as_source
from ..frame.noise import GROUPS
from ..model.finite import not_finite

REFILL_SHARE = 8  # an eighth of the rows is refilled at a time: one prefill serves several lines


class LineBatch:
    """Follows lines through a batch with fewer rows: a row whose line has ended takes the next waiting line.

    Lines are numbered in the order in which they get their rows.

    Args:
        lines: in that order.
        eos: the code of group 0 that ends a line.
        rows: of the batch.
        dtype: that the model computes in, for the error when its numbers are not finite.
    """

    def __init__(self, lines: Lines, eos: int, rows: int, dtype: torch.dtype):
        self.source = as_source(lines)
        self.eos = eos
        self.dtype = dtype
        self.rows: list[int | None] = [None] * rows
        self._lines: dict[int, _Line] = {}  # of a source that is not collected: those in rows
        self._admitted = 0
        self._stopped: set[int] = set()  # rows without the last frame
        self._unheard: set[int] = set()  # lines whose first frame is in flight and has a listener
        self._reports: list[torch.Tensor] = []
        self._in_flight: deque[list[int | None]] = deque()

    @property
    def running(self) -> bool:
        """Whether a line has not ended, or may come."""
        return not self.source.done or self.lines_running > 0

    @property
    def lines_running(self) -> int:
        """How many rows have a line."""
        return len(self.rows) - self.rows.count(None)

    @property
    def must_wait(self) -> bool:
        """Whether, where no line in a row can make a frame, one has to come: none can be admitted now."""
        return self.lines_running > 0 or (not self.source.ready and not self.source.done)

    @property
    def first_is_awaited(self) -> bool:
        """Whether a frame in flight is the first one of a line that somebody listens to."""
        return bool(self._unheard)

    @property
    def positions(self) -> int:
        """The cache positions that the longest running line takes up.

        A stopped row overwrites the position of its next frame, so that one counts too.
        """
        return max((self._reached(row) for row, line in enumerate(self.rows) if line is not None), default=0)

    def _reached(self, row: int) -> int:
        line = self._at(row)
        return line.prompt + line.sent + (row in self._stopped)

    def _at(self, row: int) -> _Line:
        """Return the line in a row that has one."""
        line = self.rows[row]
        assert line is not None
        return self._lines[line]

    @property
    def requests(self) -> list[tuple[int, LineRequest]]:
        """The rows that have a line, and its request."""
        return [(row, self._lines[line].request) for row, line in enumerate(self.rows) if line is not None]

    def request(self, line: int) -> LineRequest:
        """Return a line's request, by its number."""
        return self._lines[line].request

    def admit(self) -> list[tuple[int, int]]:
        """Assign free rows to waiting lines, if enough rows are free; return pairs of a row and its new line."""
        free, waiting = [row for row, line in enumerate(self.rows) if line is None], len(self.source.ready)
        if len(free) < min(waiting, max(1, len(self.rows) // REFILL_SHARE)):
            return []
        admitted = []
        for row in free[:waiting]:
            number = self._admitted
            self._lines[number] = _Line(self.source.take(), row)
            self.rows[row] = number
            self._admitted += 1
            admitted.append((row, number))
        return admitted

    def end_cancelled(self) -> None:
        """End the lines that are to end now, and free their rows. Their frames in flight are not kept."""
        for line in self.rows.copy():
            if line is not None and self._lines[line].request.is_cancelled:
                self._end(line, "cancelled")

    def stopped(self) -> list[int]:
        """Return the rows of lines that cannot make a frame yet, because text of theirs is late."""
        held = []
        for row, line in enumerate(self.rows):
            if line is None or (text := self._lines[line].request.text) is None:
                continue
            if not text.ready(self._lines[line].sent):
                held.append(row)
        return held

    def late_parts(self) -> list[tuple[int, int, LatePart]]:
        """Return the text that has come since the last call: its row, its offset in the line's text, and itself."""
        parts = []
        for row, line in enumerate(self.rows):
            if line is None or (text := self._lines[line].request.text) is None:
                continue
            if (part := text.take()) is not None:
                parts.append((row, self._lines[line].written, part))
                self._lines[line].written += len(part.rows)
        return parts

    def send(self, stopped: Sequence[int] = ()) -> None:
        """Note that a frame is in flight: its report will be about the lines in the rows now, but the stopped ones."""
        self._stopped = set(stopped)
        sent = [None if row in self._stopped else line for row, line in enumerate(self.rows)]
        self._in_flight.append(sent)
        for line in sent:
            if line is not None:
                self._lines[line].sent += 1
                if self._lines[line].sent == 1 and self._lines[line].request.on_codes is not None:
                    self._unheard.add(line)

    def launched(self, report: torch.Tensor) -> None:
        """The device has the frame that was sent: let the lines whose first it is get ready for it.

        ``report`` is the device's own, ``[B, 17]``.
        """
        new = [
            (row, self._lines[line].request)
            for row, line in enumerate(self._in_flight[-1])
            if line is not None and self._lines[line].sent == 1
        ]
        for row, request in new:
            if request.on_launch is not None:
                request.on_launch(report[row, :GROUPS] if len(new) == 1 else None)

    def receive(self, report: torch.Tensor) -> int:
        """Take the oldest report in flight, ``[B, 17]``, and keep it; return how many lines made this frame.

        Raises:
            ValueError: if a line's numbers are not finite.
        """
        made, first, broken = 0, report[:, 0].tolist(), report[:, GROUPS].tolist()
        # Views of all rows at once: one by one they take several times as long.
        frames = report[:, :GROUPS].unbind()
        for row, number in enumerate(self._in_flight.popleft()):
            if number is None or (line := self._lines.get(number)) is None or line.ended is not None:
                continue
            if broken[row]:
                raise not_finite(self.dtype)
            if first[row] == self.eos:
                self._end(number, "eos")
                continue
            made += 1
            self._keep(number, line, frames[row])
            if (end := line.request.guard.add(first[row])) is not None:
                self._end(number, end)
        if self.source.collected:
            self._reports.append(report[:, :GROUPS])
        return made

    def _keep(self, number: int, line: _Line, codes: torch.Tensor) -> None:
        """Note that the current report has a frame of a line, and pass its codes on."""
        if self.source.collected:
            line.reports.append(len(self._reports))
        self._unheard.discard(number)
        if line.request.on_codes is not None:
            line.request.on_codes(codes)

    def _end(self, number: int, ended: str) -> None:
        line = self._lines[number]
        line.ended = ended
        self._unheard.discard(number)
        self.rows[line.row] = None
        if not self.source.collected:
            del self._lines[number]
        line.request.end(ended)

    def collect(self) -> list[Decoded]:
        """Return every line's codes and how it ended, in the order of their numbers; none if nobody collects them."""
        codes = torch.stack(self._reports) if self._reports else torch.zeros(0, len(self.rows), GROUPS).long()
        return [
            Decoded(codes[torch.tensor(line.reports, dtype=torch.int64), line.row], str(line.ended))
            for line in self._lines.values()
        ]


@dataclass
class _Line:
    """A line that has had a row: its frames sent, the reports that have its frames, and its trailing text's length."""

    request: LineRequest
    row: int
    sent: int = 0
    reports: list[int] = field(default_factory=list)
    ended: str | None = None
    prompt: int = field(init=False)  # positions; a tensor takes a microsecond to say so
    written: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt = len(self.request.prompt.embeds)
        self.written = len(self.request.prompt.trailing)
