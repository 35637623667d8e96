"""The loop over frames, the same for both engines: admit lines, pass on their codes, and end them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
import torch

from ..model.finite import not_finite
from ..model.model import Model
from ..words.trace import Trace
from .decoded import ALIGNMENT, BROKEN, FLAG, REPORT_WIDTH, Decoded
from .request import LateText, LineRequest
from .rows import Frame, Rows
from .source import LineSource


class Loop:
    """Decodes the lines of a source in an engine's rows, to their ends. They are numbered in the order of admission."""

    def __init__(self, model: Model, source: LineSource, rows: Rows):
        self.rows = rows
        self._source, self._dtype = source, model.dtype
        self._eos = int(model.config.talker_config.codec_eos_token_id)
        self._numbers = count()
        self._lines: dict[int, LineRequest] = {}  # those in rows
        self._late: dict[int, _LateLine] = {}  # of these, the ones whose text comes in parts
        # Of a source that is collected: all frames, and how lines ended.
        nothing = np.zeros((0, REPORT_WIDTH), dtype=np.int64)
        self._frames = [Frame(nothing[:, 0], nothing)]
        self._ends: dict[int, str] = {}

    def run(self, on_frame: Callable[[int], None] | None = None) -> list[Decoded]:
        """Decode all lines; return their codes and ends by number, if the source is collected.

        ``on_frame`` is called after every frame with the number of lines in it. Raises NotFinite if a line's numbers
        are not finite, and it has no ``LineRequest.on_broken``.
        """
        while self._follow():
            self._admit()
            self._end_cancelled()
            goes_on = self._step()
            while (frame := self.rows.read()) is not None:
                goes_on = True
                if (made := self._take(frame)) and on_frame is not None:
                    on_frame(made)
            if not goes_on and self._follow() and (self._lines or not self._source.ready):
                self._source.wait()
        return self._collect()

    def _follow(self) -> bool:
        """Let the source update; return whether a line is left."""
        self._source.follow()
        return bool(self._lines) or not self._source.done

    def _admit(self) -> None:
        if not (waiting := len(self._source.ready)) or not (room := self.rows.room(waiting)):
            return
        lines = {next(self._numbers): self._source.take() for _ in range(room)}
        self._lines.update(lines)
        for number, line in lines.items():
            if line.text is not None:
                self._late[number] = _LateLine(line.text, len(line.prompt.trailing))
        self.rows.admit(lines)

    def _end_cancelled(self) -> None:
        for number, line in list(self._lines.items()):
            if line.cancelled is not None and line.cancelled():
                self._end(number, "cancelled")

    def _step(self) -> bool:
        """Launch a frame of the lines whose text has come; return whether the device makes it now."""
        stopped = []
        for number, late in self._late.items():
            if not late.text.ready(late.frames):
                stopped.append(number)
            if (part := late.text.take()) is not None:
                self.rows.add_text(number, late.written, part)
                late.written += len(part.rows)
        launched = self.rows.step(stopped)
        for number, late in self._late.items():
            late.frames += number not in stopped
        if launched:
            self._source.meanwhile()
        return launched

    def _take(self, frame: Frame) -> int:
        """Pass on the codes of a frame, and end lines; return how many lines made it."""
        if self._source.collected:
            self._frames.append(frame)
        lines, report = frame.lines, frame.report
        if (flags := report[:, FLAG]).any():
            for number in lines[flags != 0].tolist():
                self._release(number, BROKEN).break_off(not_finite(self._dtype))
            lines, report = lines[flags == 0], report[flags == 0]
        first = report[:, 0].tolist()
        for number, code, own in zip(lines.tolist(), first, report, strict=True):
            line = self._lines[number]
            if code == self._eos:
                self._end(number, "eos")
                continue
            if line.on_codes is not None:
                line.on_codes(own)
            if (end := line.guard.add(code)) is not None:
                self._end(number, end)
        return len(first) - first.count(self._eos)

    def _end(self, number: int, ended: str) -> None:
        self._release(number, ended).end(ended)

    def _release(self, number: int, ended: str) -> LineRequest:
        """Free the row of a line that has ended; return its request."""
        self.rows.release(number)
        self._late.pop(number, None)
        if self._source.collected:
            self._ends[number] = ended
        return self._lines.pop(number)

    def _collect(self) -> list[Decoded]:
        lines = np.concatenate([frame.lines for frame in self._frames])
        reports = np.concatenate([frame.report for frame in self._frames])
        made = ((reports[:, FLAG] == 0) & (reports[:, 0] != self._eos)).nonzero()[0]
        order = made[np.argsort(lines[made], kind="stable")]
        parts = np.split(reports[order], np.searchsorted(lines[order], range(1, len(self._ends))))
        pairs = zip(parts, sorted(self._ends), strict=False)  # one part, and no end, of no lines
        return [decoded(report, self._ends[number]) for report, number in pairs]


def decoded(report: np.ndarray, ended: str) -> Decoded:
    """Return a line's result from the reports of its frames, int64 ``[T, REPORT_WIDTH]``."""
    return Decoded(torch.tensor(report[:, :FLAG]), ended, Trace.from_numbers(report[:, ALIGNMENT:]))


class _LateLine:
    """A line whose text comes in parts, with its ``written`` positions and the number of its frames."""

    def __init__(self, text: LateText, written: int):
        self.text, self.written, self.frames = text, written, 0
