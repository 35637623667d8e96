"""A running batch that lines join and leave between frames, as long as they are of one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ..options import FRAME_RATE
from ..synthesizer import Synthesizer
from .codec_turns import FEW, CodecTurns
from .desk import Desk, ServiceClosed
from .open_line import OpenLine
from .pacing import Speed
from .stream_queue import StreamQueue
from .utterance import Group, Utterance

# A batch without lines holds the model so long, because the next line would have to start another one.
LINGER_S = 0.5
LOOK_S = 0.5  # between two looks at rows that stand still while others wait for one
NEWCOMERS = 8  # lines that join a running batch in one frame: their prompts are run together


class OpenDecoding:
    """Decodes the lines of one group, until none is left or it is the turn of another group.

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
        self._options = replace(first.options, batch_size=rows)
        self._group: Group = first.group
        self._speed = Speed(1 / FRAME_RATE)
        self._lines: dict[int, OpenLine] = {}
        self._count = 0
        self._is_idle = False
        self._queue = StreamQueue(
            self._follow, self._rest, late=True, meanwhile=self._meanwhile, joins=NEWCOMERS
        )

    def run(self) -> None:
        """Decode until the end.

        Raises:
            Exception: of the engine; every line of the batch has been ended with it.
        """
        engine, model = self._synthesizer.engine, self._synthesizer.model
        self._desk.begin(self._group)
        try:
            choice = engine.choose(model, self._options)
            self._turns = CodecTurns(
                partial(engine.open_codec, model, choice, self._rows), model.codec.dtype, self._speed
            )
            self._turns.codec.prepare()
            engine.decode(model, self._queue, self._options, self._on_frame, choice)
            self._turns.send(self._lines.values())
            self._park(always=True)  # readers are not waited for: others need the model
        except BaseException as error:
            for line in self._lines.values():
                line.fail(error)
            raise
        finally:
            self._lines.clear()
            self._desk.end()

    # What changes between frames

    def _follow(self) -> None:
        """Follow what has happened since the last frame: readers that have left, text and lines that have come."""
        if self._desk.is_closed:
            for line in self._lines.values():
                line.utterance.finish(None, ServiceClosed("the service was closed while it spoke this line"))
                line.utterance.close()
        followed = [line for line in self._lines.values() if line.is_followed]
        for line in followed:
            line.follow()
        self._leave()
        self._park()
        self._admit()
        self._note_standing([line for line in followed if line.may_starve])
        for line in self._silent:
            if (request := line.next_request()) is not None:
                request = replace(request, on_launch=partial(self._turns.begin_ahead, line, line.piece))
                self._queue.add((line.number,), line.number, request)
        self._queue.drop_cancelled()
        self._queue.open = any(line.wants_rows for line in self._lines.values()) or self._goes_on

    @property
    def _goes_on(self) -> bool:
        """Whether the batch waits for lines, or has some to admit."""
        waits = self._desk.continues(self._group) and not (self._is_idle and not self._lines)
        return waits or self._desk.offers(self._group)

    @property
    def _silent(self) -> list[OpenLine]:
        """The lines of which no piece has a row or waits for one: nothing changes about the others."""
        return [line for line in self._lines.values() if not line.speaking]

    def _leave(self) -> None:
        """Release the lines that have ended."""
        ended = [line for line in self._silent if line.ended]
        for line in ended:
            self._turns.end(line)
            del self._lines[line.number]
        self._desk.note_speaking(
            len(self._lines)
        )  # first: a reader who has all of its line may look at the status
        for line in ended:
            line.finish()

    def _park(self, always: bool = False) -> None:
        """Take the lines out of the batch that need no row for now: ``_needs_no_row``.

        Such a line has no row in the engine; between two pieces it has no state in the codec either, so the rest of its
        piece is sent at once. What is kept for a slow reader is that, and the codes of its other pieces; a reader that
        wants more gets all that is made. ``always``: every line, even if its reader wants more by now.
        """
        is_over = self._desk.turn_left_s == 0.0
        for line in self._silent:
            if line.ended or not (always or self._needs_no_row(line, is_over)):
                continue
            if line.in_codec or line.begun:
                self._turns.finish_piece(line)
            while line.chunks.has_codes and line.wants_rows and not line.is_full:
                self._turns.finish_piece(line)
            if not line.ended:
                self._turns.end(line)
                del self._lines[line.number]
                self._desk.note_speaking(len(self._lines))
                self._desk.park(line.utterance, line)
        self._leave()

    def _needs_no_row(self, line: OpenLine, is_over: bool) -> bool:
        """Return whether a line waits: for text, for another turn of its group, or for a reader of what is decoded."""
        return (is_over or line.lacks_text) if line.wants_rows else line.utterance.is_full

    def _admit(self) -> None:
        """Take waiting lines; while others play only a few per frame, because prompts take time."""
        most = min(self._rows, len(self._lines) + NEWCOMERS) if self._lines else self._rows
        while len(self._lines) < most and (utterance := self._desk.take(self._group)) is not None:
            self._open(utterance)
            self._desk.note_speaking(len(self._lines))  # the desk counts those that have begun

    def _open(self, utterance: Utterance) -> None:
        self._count += 1
        if isinstance(utterance.parked, OpenLine):
            line = self._lines[self._count] = utterance.parked.resume(self._count)
            utterance.parked = None
            line.follow()  # its text has come since
            return
        try:
            line = OpenLine(self._count, utterance, self._synthesizer, self._speed)
        except Exception as error:  # whatever it is, it is this line's, and its reader gets it
            utterance.finish(None, error)
            return
        self._lines[line.number] = line

    def _note_standing(self, late: Sequence[OpenLine]) -> None:
        """Bound the time in which the rows of late texts stand still that others wait for."""
        is_wanted = bool(late) and self._desk.is_asked
        for line in late:
            line.stand(is_wanted)

    def _meanwhile(self) -> None:
        """While the device makes a frame, pass on what the codec has made before it."""
        if len(self._lines) > FEW:
            self._turns.settle()

    def _rest(self) -> None:
        """No line can make a frame: send what has been made, and wait for a reader, for text or for a line."""
        lines = len(self._lines)
        self._turns.send(self._lines.values(), hurry=True)
        self._leave()
        self._park()
        self._speed.rest()
        if len(self._lines) < lines:  # a row is free: look who waits
            return
        if not self._lines:
            self._desk.between.do()
        rang = self._desk.bell.wait(self._patience_s)
        self._is_idle = not (rang or self._lines)

    @property
    def _patience_s(self) -> float | None:
        """How long to wait until somebody rings the bell; None: for ever."""
        if not self._lines:
            return self._linger_s
        if any(line.is_starved for line in self._lines.values()) and self._desk.is_asked:
            return LOOK_S
        return self._desk.turn_left_s or None  # a turn that is over changes nothing for those that have a row

    @property
    def _comes(self) -> bool:
        """Whether a line gets a row before the next frame."""
        return len(self._lines) < self._rows and self._desk.offers(self._group)

    def _on_frame(self, lines: int) -> None:
        """Between two frames: note the time, and let the codec work."""
        self._speed.end_frame()
        self._desk.note_frames(lines, self._speed.frame_s)
        self._turns.turn(self._lines.values(), len(self._lines) <= FEW and self._comes)
