"""A running batch that lines join and leave between frames, as long as they have the same options."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from ..model.finite import check_samples
from ..options import FRAME_RATE
from ..synthesizer import Synthesizer
from .desk import Desk, ServiceClosed
from .open_line import OpenLine
from .pacing import Speed
from .stream_queue import StreamQueue
from .utterance import Group, Utterance

# A batch without lines holds the model so long, because the next line would have to start another one.
LINGER_S = 0.5


class OpenDecoding:
    """Decodes the lines of one group, until none is left or a line of another group is next.

    Args:
        synthesizer: the checkpoint and its engine, held by the caller (``Synthesizer.session``).
        desk: where lines come from.
        first: the first line to speak; its options are those of the batch.
        rows: how many lines at a time.
        linger_s: how long it waits for another line when it has none.
    """

    def __init__(
        self, synthesizer: Synthesizer, desk: Desk, first: Utterance, rows: int, linger_s: float = LINGER_S
    ):
        self._synthesizer, self._desk, self._rows, self._linger_s = synthesizer, desk, rows, linger_s
        self._first, self._options = first, replace(first.options, batch_size=rows)
        self._group: Group = first.group
        self._speed = Speed(1 / FRAME_RATE)
        self._ahead_s = 0.0  # spent on the next chunk before its codes came
        self._frame_began: float | None = None
        self._lines: dict[int, OpenLine] = {}
        self._count = 0
        self._is_idle = False
        self._queue = StreamQueue(self._follow, self._rest, late=True, collected=False)

    def run(self) -> None:
        """Decode until the end.

        Raises:
            Exception: of the engine; every line of the batch has been ended with it.
        """
        engine, model = self._synthesizer.engine, self._synthesizer.model
        try:
            choice = engine.choose(model, self._options)
            self._codec = engine.open_codec(model, choice, self._rows)
            engine.decode(model, self._queue, self._options, self._on_frame, choice)
            self._send()
            self._park(always=True)  # readers are not waited for: others need the model
        except BaseException as error:
            self._desk.drop(self._first, error)  # if it never got as far as a row, it would be tried for ever
            for line in self._lines.values():
                line.fail(error)
            raise
        finally:
            self._lines.clear()
            self._desk.note_speaking(0)

    # What changes between frames

    def _follow(self) -> None:
        """Follow what has happened since the last frame: readers that have left, text and lines that have come."""
        if self._desk.is_closed:
            for line in self._lines.values():
                line.utterance.finish(None, ServiceClosed("the service was closed while it spoke this line"))
                line.utterance.close()
        for line in self._lines.values():
            line.follow()
        self._leave()
        self._park()
        self._admit()
        for line in self._lines.values():
            if (request := line.next_request()) is not None:
                request = replace(request, on_launch=self._beginner(line))
                self._queue.add((line.number,), line.number, request)
        self._queue.drop_cancelled()
        goes_on = self._desk.continues(self._group) and not (self._is_idle and not self._lines)
        self._queue.open = goes_on or any(line.wants_rows for line in self._lines.values())

    def _leave(self) -> None:
        """Release the lines that have ended."""
        for number, line in list(self._lines.items()):
            if line.ended and not line.speaking:
                line.finish()
                self._end_codec(line)
                del self._lines[number]
        self._desk.note_speaking(len(self._lines))

    def _park(self, always: bool = False) -> None:
        """Take the lines of which only samples are missing out of the batch, if their readers have enough for now.

        Such a line has no row in the engine; between two pieces it has no state in the codec either, so the rest of its
        piece is sent at once. What is kept for a slow reader is that, and the codes of its other pieces. ``always``:
        even if the desk has no place for more.
        """
        for number, line in list(self._lines.items()):
            if line.wants_rows or line.ended or not line.utterance.is_full:
                continue
            if not (always or self._desk.has_place):
                break
            if line.begun:
                self._send(of=line)
            if not line.ended:
                self._end_codec(line)
                del self._lines[number]
                self._desk.park(line.utterance, line)
        self._leave()

    def _admit(self) -> None:
        """Take waiting lines; while others play only one per frame, because a prompt takes time."""
        busy = bool(self._lines)
        while len(self._lines) < self._rows and (utterance := self._desk.take(self._group)) is not None:
            self._open(utterance)
            if busy:
                break
        self._desk.note_speaking(len(self._lines))

    def _open(self, utterance: Utterance) -> None:
        self._count += 1
        if isinstance(utterance.parked, OpenLine):
            self._lines[self._count] = utterance.parked.resume(self._count)
            utterance.parked = None
            return
        try:
            line = OpenLine(self._count, utterance, self._synthesizer, self._speed)
        except Exception as error:  # whatever it is, it is this line's, and its reader gets it
            utterance.finish(None, error)
            return
        self._lines[line.number] = line

    def _rest(self) -> None:
        """No line can make a frame: send what has been made, and wait for a reader, for text or for a line."""
        lines = len(self._lines)
        self._send(hurry=True)
        self._leave()
        self._park()
        self._frame_began = None
        if len(self._lines) < lines:  # a row is free: look who waits
            return
        self._is_idle = not self._desk.bell.wait(None if self._lines else self._linger_s)
        self._desk.bell.clear()

    # From codes to chunks

    def _on_frame(self, lines: int) -> None:
        """Between two frames: note the time, and decode what is due."""
        if self._frame_began is not None:
            self._speed.add_frame(time.perf_counter() - self._frame_began)
        self._desk.note_frames(lines, self._speed.frame_s)
        self._send()
        self._frame_began = time.perf_counter()

    def _send(self, hurry: bool = False, of: OpenLine | None = None) -> None:
        """Decode and queue the chunks that are due.

        Args:
            hurry: smaller ones too: no other frames come soon.
            of: only those of this line, to the end of its piece, whether or not its reader wants them.
        """
        sent, pieces = True, None if of is None else of.pieces_sent
        while sent and (of is None or of.pieces_sent == pieces):
            now = time.perf_counter()
            ready = [one for one in self._lines.values() if not one.utterance.is_full] if of is None else [of]
            due = {one.number: one.due(now, hurry or of is not None) for one in ready}
            parts = {number: codes for number, codes in due.items() if codes is not None}
            if parts:
                self._decode(parts)
            ended = [one for one in self._lines.values() if one.end_piece(now)]
            for line in ended:
                self._end_codec(line)
            sent = bool(parts or ended)

    def _decode(self, parts: Mapping[int, torch.Tensor]) -> None:
        for number in parts:
            self._begin(self._lines[number])
        began = time.perf_counter()
        waves = self._codec.decode(parts)
        now = time.perf_counter()
        self._speed.add_codec(max(map(len, parts.values())), now - began + self._ahead_s)
        self._ahead_s = 0.0
        for number, codes in parts.items():
            check_samples(waves[number], self._synthesizer.model.codec.dtype)
            if self._lines[number].add(codes, waves[number], now):
                self._end_codec(self._lines[number])

    def _beginner(self, line: OpenLine) -> Callable[[torch.Tensor | None], None]:
        def begin(codes: torch.Tensor | None) -> None:
            """Begin a line's piece in the codec, and its first chunk behind its first codes, if that is one frame."""
            is_new = not line.begun
            self._begin(line)
            if is_new and codes is not None and line.next_size == 1:
                began = time.perf_counter()
                self._codec.begin_ahead(line.number, codes)
                self._ahead_s = time.perf_counter() - began
                if self._frame_began is not None:
                    self._frame_began += self._ahead_s

        return begin

    def _begin(self, line: OpenLine) -> None:
        """Begin a line's piece in the codec when the piece has a row: a state takes a few MB."""
        if not line.begun:
            self._codec.begin(line.number, line.voice.ref_codes)
            line.begun = True

    def _end_codec(self, line: OpenLine) -> None:
        self._codec.end(line.number)
        line.begun = False
