"""The running batch: lines of one group join and leave it between frames."""

from __future__ import annotations

import math
import time
from bisect import insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from ..decode.loop import PROMPTS_PER_FRAME, Decoding, make_prompts
from ..decode.request import LineRequest
from ..decode.rows import NOTHING_AHEAD, Ahead, RowPlan
from ..model.model import Model
from ..options import FRAME_RATE
from ..speech.piece import Piece
from ..synthesizer import Synthesizer
from .codec.pacing import Speed
from .codec.turns import FEW, CodecTurns
from .codec.whole import WholeCodec
from .fitting import needed_rows
from .line_state import LineState, Shared
from .policy import OFFLINE_SHARE
from .queue import BatchClosed, Queue, Waiting
from .speech import Outcome

# An empty batch holds the model so long, because the next line would have to start another one.
LINGER_S = 0.5
LOOK_S = 0.5  # between two checks of stalled rows while lines are queued
NEWCOMERS = 8  # lines that join a running batch in one frame; they share one prefill
COMPLETE_BESIDE = 4  # offline pieces decoded together while other lines stream
# How long pieces are gathered for one codec call: for lines that come one by one, each awaited; and for a list, while
# rows are free: its last lines end soon after each other.
GATHER_S, GATHER_LIST_S = 0.05, 0.5
RESERVE_S = 60.0  # after a streamed line, offline ones leave a row to the next one


@dataclass(frozen=True)
class Settings:
    """How a batch runs.

    ``linger_s``: how long an empty batch waits for another line, holding the model. None: it does not wait,
    and has no more rows than its first lines need; later ones wait for one of these.
    """

    rows: int
    linger_s: float | None = LINGER_S
    ahead: Ahead = NOTHING_AHEAD

    def fit(self, model: Model, lines: Sequence[Waiting]) -> Settings:
        if self.linger_s is not None:
            return self
        return replace(self, rows=max(1, min(self.rows, needed_rows(model, lines))))


@dataclass(order=True)
class _Ready:
    key: tuple[int, ...]
    line: LineState = field(compare=False)
    piece: Piece = field(compare=False)
    request: LineRequest = field(compare=False)


class Running:
    """Decodes the lines of one group, until none is left or another group has its turn.

    The caller holds the synthesizer (``Synthesizer.session``). ``first`` decides the group and its options.
    """

    def __init__(self, synthesizer: Synthesizer, queue: Queue, first: Waiting, settings: Settings):
        self._synthesizer, self._queue = synthesizer, queue
        self._settings = settings.fit(synthesizer.model, queue.of_group(first.group))
        self._options, self._limit = first.speech.options, settings.rows
        self._group = first.group
        self._speed = Speed(1 / FRAME_RATE)
        self._lines: dict[int, LineState] = {}
        self._heard: list[LineState] = []  # the streamed ones
        self._ready: list[_Ready] = []
        self._in_rows: dict[int, tuple[LineState, Piece]] = {}  # by row
        self._count = self._wave = 0
        self._is_idle = False
        self._passed = 0  # streamed pieces that got rows since an offline one did
        self._streamed_at = -math.inf
        self._look_at = 0.0  # when ``_follow`` looks again although nothing has changed
        # Whether lines come while others are decoded. If nothing streams, all are there from the beginning.
        self._late = first.is_live

    def run(self) -> None:
        """Decode until the end. If the engine raises, ``lines`` has the running lines."""
        engine, model = self._synthesizer.engine, self._synthesizer.model
        self._queue.begin(self._group)
        try:
            choice = engine.choose(model)
            self._turns = CodecTurns(
                partial(engine.open_codec, model, choice, self._settings.rows), model.codec, self._speed
            )
            whole = WholeCodec(partial(engine.begin_waveforms, model, choice, on_chunk=self._check_open))
            builder = engine.prompt_builder(model)
            describe = partial(engine.describe, model, choice)
            self._shared = Shared(builder, self._speed, whole, describe, engine.texts)
            ahead = self._settings.ahead
            if ahead.lines:
                engine.prepare_codec(model, choice, self._turns.codec)
            self._follow()  # first: the engine makes room for the lines that are there
            first = [one.request for one in self._ready]
            plan = RowPlan(self._settings.rows, self._limit, first, self._late, ahead)
            with engine.open_rows(model, self._options, plan, choice) as rows:
                self._decoding = Decoding(model, rows)
                self._turns.use(self._decoding.buffers)
                self._decode()
            self._turns.send(self._heard)
            self._let_go(always=True)  # without waiting for readers: others need the model
        finally:
            self._queue.end()

    def _decode(self) -> None:
        decoding = self._decoding
        while self._goes_on_after_follow():
            decoding.rows.late = self._late
            self._enter_rows()
            if self._queue.bell.is_set:  # a reader may have left since ``_follow``
                self._drop_cancelled()
            goes_on = decoding.step()
            if goes_on:
                self._meanwhile(decoding.rows.began)
            while (ended := decoding.read()) is not None:
                goes_on = True
                for row, end in ended:
                    self._end_piece(row, end)
                if decoding.lines:
                    self._on_frame(decoding.lines)
            if not goes_on and self._goes_on_after_follow() and (self._in_rows or not self._ready):
                self._wait()

    def _goes_on_after_follow(self) -> bool:
        """Apply what has changed; return whether a line has a row, or may get one."""
        if self._queue.bell.is_set or time.perf_counter() >= self._look_at:
            self._follow()
        return bool(self._in_rows) or not self._is_done

    def _enter_rows(self) -> None:
        decoding, ready = self._decoding, self._startable()
        if not ready or not (room := decoding.rows.room(len(ready))):
            return
        entering = ready[:room]
        for one in entering:
            self._passed = self._passed + 1 if one.line.is_live else 0
        entered = {id(one) for one in entering}
        self._ready = [one for one in self._ready if id(one) not in entered]
        rows = decoding.admit([one.request for one in entering])
        for row, one in zip(rows, entering, strict=True):
            one.piece.frames.enter(decoding.buffers, row)
            one.line.speech.progress.follow(one.piece.frames)
            self._in_rows[row] = one.line, one.piece

    def _startable(self) -> list[_Ready]:
        """Return the pieces that may have rows: offline ones leave a row to the next stream, and get one in four."""
        if not self._ready or (not self._heard and time.perf_counter() - self._streamed_at > RESERVE_S):
            return self._ready
        rows, has = self._settings.rows, sum(not line.is_live for line, _ in self._in_rows.values())
        live = [one for one in self._ready if one.line.is_live]
        offline = [one for one in self._ready if not one.line.is_live][: max(0, max(1, rows - 1) - has)]
        if not live or not offline:
            return live or offline
        is_short = has < max(1, rows // OFFLINE_SHARE) and self._passed >= OFFLINE_SHARE - 1
        is_owed = is_short and offline[0].key[0] <= live[0].key[0]
        return [offline[0], *live, *offline[1:]] if is_owed else sorted([*live, *offline])

    def _end_piece(self, row: int, ended: str) -> None:
        line, piece = self._in_rows.pop(row)
        piece.frames.leave(self._decoding.release(row))
        line.leave_row(piece, ended)
        self._look_at = 0.0

    @property
    def lines(self) -> Sequence[LineState]:
        return tuple(self._lines.values())

    def _check_open(self) -> None:
        if self._queue.is_closed:
            raise BatchClosed("the batch was closed while it spoke this line")

    @property
    def _is_done(self) -> bool:
        """Whether no piece waits for a row, and none will come."""
        return not (self._ready or any(line.wants_rows for line in self._lines.values()) or self._goes_on)

    def _follow(self) -> None:
        """Apply what has happened since the last frame: readers that left, new text, new lines."""
        self._queue.bell.wait(0)
        self._look_at = math.inf
        if self._queue.is_closed:
            for line in self._lines.values():
                line.speech.finish(
                    Outcome(error=BatchClosed("the batch was closed while it spoke this line"))
                )
                line.speech.cancel()
        followed = [line for line in self._lines.values() if line.is_followed]
        for line in followed:
            line.follow()
        self._hear()
        self._make_complete()
        idle, opened = self._let_go(), self._admit()
        self._note_standing([line for line in followed if line.may_starve])
        for line in (*idle, *opened):
            if line.may_ask:
                for piece, request in line.next_requests():
                    self._add(line, piece, request)
        self._drop_cancelled()
        self._late = bool(self._heard) or self._queue.has_live
        # More may join with the next frame than with this one, and a line that decodes nothing may end in any moment.
        busy = bool(opened) or any(line.may_read for line in followed)
        busy = busy or bool([1 for line in self._heard if not line.takes.decoding])
        self._look_at = min(self._look_at, 0.0 if busy else self._next_look(followed))

    def _next_look(self, followed: Sequence[LineState]) -> float:
        """Return when something may change that no other thread tells."""
        now, whole, looks = time.perf_counter(), self._shared.whole, [math.inf]
        if whole.is_making or (whole.count and self._heard):
            return 0.0
        if whole.count:
            looks.append(now + self._gather_s - whole.waited_s)
        if left := self._queue.turn_left_s:
            looks.append(now + left)
        if any(line.is_starved for line in followed):
            looks.append(now + LOOK_S)
        return min(looks)

    def _add(self, line: LineState, piece: Piece, request: LineRequest) -> None:
        """Queue a piece for a row. Of offline pieces that came together, the longest goes first."""
        speech = line.speech
        if request.is_streamed:
            key = (speech.delivery.order, 0, line.number, 0)
        else:
            key = (speech.delivery.order, 1, line.wave, -piece.prompt.text_tokens)
        insort(self._ready, _Ready(key, line, piece, request))

    def _drop_cancelled(self) -> None:
        for row, (line, _) in list(self._in_rows.items()):
            if line.is_stopped:
                self._end_piece(row, "cancelled")
        if any(one.line.is_stopped for one in self._ready):
            waiting, self._ready = self._ready, []
            for one in waiting:
                if one.line.is_stopped:
                    one.line.leave_row(one.piece, "cancelled")
                else:
                    self._ready.append(one)

    @property
    def _goes_on(self) -> bool:
        waits = self._queue.continues(self._group) and not (self._is_idle and not self._lines)
        return waits or self._queue.offers(self._group)

    def _note_lines(self) -> None:
        self._heard = [line for line in self._lines.values() if line.is_live]
        self._queue.counts.speaking = len(self._lines)
        self._queue.callers = Counter(line.speech.delivery.caller for line in self._lines.values())
        if self._heard:
            self._streamed_at = time.perf_counter()

    def _make_complete(self) -> None:
        """Decode offline pieces. If no line streams, frames go on meanwhile: the device waits for nothing."""
        whole = self._shared.whole
        whole.collect()
        if most := self._complete_now:
            (whole.run if self._heard else whole.start)(most)

    @property
    def _is_list(self) -> bool:
        """Whether all lines are there from the beginning, so that none is awaited before the others."""
        return self._settings.linger_s is None

    @property
    def _gather_s(self) -> float:
        return GATHER_LIST_S if self._is_list else GATHER_S

    @property
    def _complete_now(self) -> int:
        """How many offline pieces to decode next: many together, or what takes no longer than readers can wait."""
        whole = self._shared.whole
        if not whole.count or whole.is_making:  # a reader would wait for all in flight
            return 0
        if heard := [line for line in self._heard if not line.is_starved]:
            empty_at = min(math.inf if line.ended else line.chunks.sizes.empty_at for line in heard)
            return min(COMPLETE_BESIDE, whole.fit(empty_at - time.perf_counter()))
        gathered = whole.waited_s >= self._gather_s and not (self._is_list and self._ready)
        return whole.count if gathered or whole.count >= self._settings.rows else 0

    def _hear(self) -> None:
        unheard = [line for line in self._lines.values() if not line.is_live]
        if [line for line in unheard if line.speech.is_heard and line.hear()]:
            self._note_lines()

    def _let_go(self, always: bool = False) -> list[LineState]:
        """Release ended lines and park lines that need no row; return idle lines that may request one.

        ``always``: even if its reader wants more by now.
        """
        is_over = self._queue.turn_left_s == 0.0
        if is_over:
            self._withdraw()
        idle = self._leave([line for line in self._lines.values() if line.may_ask])
        parted = [line for line in idle if self._park(line, is_over, always)]
        return self._leave(idle) if parted else idle

    def _leave(self, lines: Sequence[LineState]) -> list[LineState]:
        ended = [line for line in lines if line.number in self._lines and line.is_done]
        for line in ended:
            self._release(line)
        if ended:
            self._note_lines()
        # All are released first: a reader whose line is complete may look at the status.
        for line in ended:
            line.finish()
        return [line for line in lines if line.number in self._lines]

    def _release(self, line: LineState) -> None:
        if line.begun:
            self._turns.end(line)
        del self._lines[line.number]

    def _park(self, line: LineState, is_over: bool, always: bool) -> bool:
        """Take a line out of the batch if it needs no row for now; return whether it was checked.

        A parked line has no state in the codec, so the rest of its piece is sent first. Only that and the
        codes of its other pieces are kept for a slow reader.
        """
        if line.is_busy or not (always or self._needs_no_row(line, is_over)):
            return False
        if line.in_codec or line.begun:
            self._turns.finish_piece(line)
        while line.chunks.has_codes and line.wants_rows and not line.is_full:
            self._turns.finish_piece(line)
        if not line.is_done:
            self._release(line)
            self._note_lines()
            self._queue.park(line.waiting, line)
        return True

    def _withdraw(self) -> None:
        waiting, self._ready = self._ready, []
        for one in reversed(waiting):
            one.line.withdraw(one.piece)

    def _needs_no_row(self, line: LineState, is_over: bool) -> bool:
        if not line.wants_rows:
            return line.speech.is_full
        return is_over or line.lacks_text or self._yields(line)

    def _yields(self, line: LineState) -> bool:
        """Return whether a streamed line gives up its row after a piece: another needs it more."""
        if not line.chunks.sizes.has_begun or len(self._heard) < self._settings.rows:
            return False
        return line.is_live and self._queue.passes(line.waiting, line.deadline)

    def _admit(self) -> list[LineState]:
        """Take queued lines and return them; only a few per frame while others stream, because prompts take time."""
        playing, opened = len(self._heard), list[LineState]()
        self._wave += 1
        most = min(self._settings.rows, playing + NEWCOMERS) if playing else self._settings.rows
        while playing < most and (one := self._queue.take(self._group)) is not None:
            if (line := self._open(one)) is not None:
                opened.append(line)
                playing += line.is_live or playing > 0
            self._queue.counts.speaking = len(self._lines)  # for the queue's limit on started lines
        if playing and len(self._heard) == len(self._lines) and not opened:
            one = self._queue.take(self._group, offline=True)  # it gets one row in four
            if one is not None and (line := self._open(one)) is not None:
                opened.append(line)
        if opened:
            self._note_lines()
        return opened

    def _open(self, one: Waiting) -> LineState | None:
        self._count += 1
        if isinstance(one.line, LineState):
            line = self._lines[self._count] = one.line.resume(self._count, self._shared)
            one.line = None
            line.follow()  # more text has come since
            return line
        try:
            line = LineState(self._count, one, self._shared)
        except Exception as error:  # of any kind: it is this line's, and its reader gets it
            one.fail(Outcome(error=error))
            return None
        line.wave = self._wave
        self._lines[line.number] = line
        return line

    @property
    def _has_waiting(self) -> bool:
        """Whether a line wants a row: in the queue, or an admitted one."""
        return bool(self._ready) or self._queue.is_asked

    def _note_standing(self, late: Sequence[LineState]) -> None:
        is_wanted = bool(late) and self._has_waiting
        for line in late:
            line.stand(is_wanted)

    def _meanwhile(self, began: Sequence[tuple[int, torch.Tensor | None]]) -> None:
        """Work while the device makes a frame: begin first chunks, deliver what the codec has made, build prompts."""
        for row, codes in began:
            self._turns.begin_ahead(*self._in_rows[row], codes)
        if len(self._heard) > FEW:
            self._turns.settle()
        if self._ready:
            make_prompts([one.request for one in self._ready[:PROMPTS_PER_FRAME]])

    def _wait(self) -> None:
        lines = len(self._lines)
        self._look_at = 0.0
        if self._shared.whole.advance():
            return
        self._turns.send(self._heard, hurry=True)
        self._let_go()
        self._speed.rest()
        # A row is free for a queued line, or a line whose last samples were sent wants a retry.
        if len(self._lines) < lines or any(line.takes.again for line in self._lines.values()):
            return
        if not self._lines and self._queue.between.do():
            return
        rang = self._queue.bell.wait(self._patience_s)
        self._is_idle = not (rang or self._lines)

    @property
    def _patience_s(self) -> float | None:
        """How long to wait for the event; None: for ever."""
        if not self._lines:
            return self._settings.linger_s or 0.0
        if any(line.is_starved for line in self._lines.values()) and self._has_waiting:
            return LOOK_S
        # A turn that is over changes nothing for lines with a row.
        return self._queue.turn_left_s or None

    @property
    def _comes(self) -> bool:
        return len(self._lines) < self._settings.rows and self._queue.offers(self._group)

    def _on_frame(self, lines: int) -> None:
        self._speed.end_frame()
        self._queue.counts.add_frames(lines, self._speed.frame_s)
        heard = self._heard
        if heard:
            comes = self._queue.bell.is_set and len(self._lines) <= FEW and self._comes
            self._turns.turn(heard, comes)
