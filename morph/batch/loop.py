"""The loop of one device: one thread owns the model, the rows and the utterances, and handles events."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TypeVar

import torch

from ..decode.loop import Decoding
from ..decode.rows import Ahead, Group, LineRequest, RowPlan
from ..model.finite import NotFinite
from ..model.model import Model
from ..options import FRAME_RATE, MOST_LINES, GenerateOptions
from ..runtime.collector import frozen_objects
from ..speech.lines import Line, say_why
from ..speech.pieces import Piece, piece_limit
from ..speech.text_feed import TokenFeed
from ..synthesizer import Choice, Synthesizer
from .codec.line_chunks import LineChunks, Output
from .codec.offline import CodedPiece, OfflineCodec
from .codec.pacing import Speed
from .codec.steps import FEW, CodecSteps
from .scheduler import SPREAD_S, Scheduler
from .speech import BatchClosed, Delivery, Inbox, Outcome, Signal, Speech
from .utterance import Shared, Status, Utterance

log = logging.getLogger(__name__)

# An empty batch holds the model so long, because the next line would have to take it again.
LINGER_S = 0.5
EXCHANGE_S = 0.05  # between two checks of who gives up a row within a piece
EXCHANGES = 4  # between two frames: each takes a millisecond of the device
PROMPTS_PER_FRAME = 2  # of queued pieces, half a millisecond each: less than a frame of many lines takes
NEWCOMERS = 8  # pieces that begin in one frame beside streams; they share one prefill
COMPLETE_BESIDE = 4  # offline pieces decoded together while other lines stream
# Time for judging offline pieces between two frames, at least one piece: the device has frames to make meanwhile.
JUDGE_S = 0.001
# How long pieces are gathered for one codec call: for lines that come one by one, each awaited; and for a list, while
# rows are free: its last lines end soon after each other.
GATHER_S, GATHER_LIST_S = 0.05, 0.5
# A planned capture takes at most so long, or as long as the one before; beside lines they get a tenth of the time.
PLANNED_S, PLANNED_SHARE = 0.15, 0.1


T = TypeVar("T")
Entering = tuple[Utterance, Piece, LineRequest]
GROUP_OF = attrgetter("group")


class Loop:
    """Decodes the utterances that the scheduler gives a device. Other threads only post to ``inbox``.

    It holds the model during a session, which lasts while there are utterances. ``_active``: the utterances that have a
    row or lack samples. ``linger_s`` and ``ahead``: see ``Batch``.
    """

    def __init__(self, synthesizer: Synthesizer, scheduler: Scheduler, rows: int, linger_s: float | None, ahead: Ahead):
        self._synthesizer, self._most_rows, self._rows = synthesizer, rows, rows
        self._linger_s, self._is_list, self._ahead = linger_s or 0.0, linger_s is None, ahead
        self.inbox = Inbox()
        self.join(scheduler, [self.inbox], [""], 0)
        self.waits_for_model = False
        self.frames = 0  # of all lines
        self.speed = Speed(1 / FRAME_RATE)
        self._active: dict[int, Utterance] = {}
        self._streamed: list[LineChunks] = []  # of the streamed ones of them
        self._with_tokens: list[tuple[Utterance, TokenFeed]] = []  # those whose text is written into their rows
        self._by_row: dict[int, Utterance] = {}
        self._admit_at = self._exchange_at = 0.0
        self._planned_at, self._planned_s = 0.0, PLANNED_S

    def join(self, scheduler: Scheduler, inboxes: Sequence[Inbox], names: Sequence[str], device: int) -> None:
        """Take utterances from this scheduler, as one of these devices; before there are any."""
        self.scheduler, self._inboxes, self._names, self._device = scheduler, inboxes, names, device
        self.name = names[device]

    def submit(
        self,
        lines: Sequence[Line],
        options: GenerateOptions,
        deliveries: Sequence[Delivery],
        is_anywhere: bool,
    ) -> list[Speech]:
        """Queue checked lines, from any thread, for this device or for any of them; all or none.

        Raises Busy if too many are queued, BatchClosed if the batch is closed.
        """
        if self.inbox.is_closed:
            raise BatchClosed("the batch is closed: create another")
        utterances = list[Utterance]()
        for line, how in zip(lines, deliveries, strict=True):
            signal = Signal(self._inboxes)
            speech = Speech(line, options, how, signal)
            one = Utterance(speech, signal, self._synthesizer.model.sample_rate)
            one.device = -1 if is_anywhere else self._device
            utterances.append(one)
        self.scheduler.submit(utterances, time.perf_counter())
        for one in utterances:
            # After ``submit``: the text of a refused line stays unread.
            one.read()
            one.signal.set()
        if self.inbox.is_closed:  # meanwhile: nothing may look at them any more
            self.end()
        return [one.speech for one in utterances]

    # Sessions

    def run(self) -> None:
        """Speak until the inbox is closed."""
        try:
            while not self.inbox.is_closed:
                self._next()
        except BatchClosed:
            pass
        finally:
            self.end()

    def _next(self) -> None:
        self._handle(has_model=False)
        offers = self.scheduler.offers(self._device, time.perf_counter())
        if not (offers or self.inbox.work):
            self.inbox.wait(EXCHANGE_S if self.scheduler.wanted else None)
            return
        try:
            with self._model():
                if offers:
                    with frozen_objects():
                        self._speak()
                else:
                    self.inbox.do_work()
        except BatchClosed:
            raise
        except BaseException as error:
            log.exception("a running batch failed with %d lines", len(self._active))
            self._end_failed(error)
            if not isinstance(error, Exception):
                raise

    @contextmanager
    def _model(self) -> Iterator[None]:
        """Hold the model; raise BatchClosed if the batch was closed meanwhile: torch must not run at program exit."""
        self.waits_for_model = True
        try:
            self.inbox.check_open()  # after the line above: who closes the batch reads it then
            with self._synthesizer.model.exclusive():
                self.waits_for_model = False
                self.inbox.check_open()
                with self._synthesizer.session():
                    yield
        finally:
            self.waits_for_model = False

    def end(self) -> None:
        """Close: end all utterances, and refuse other work."""
        self.inbox.close()
        are_closed = all(inbox.is_closed for inbox in self._inboxes)
        for one in self.scheduler.utterances:
            is_own = one.device == self._device or (one.device < 0 and are_closed)
            if is_own and one.status is not Status.DONE:
                is_queued = one.status is Status.QUEUED
                said = "before this line was spoken" if is_queued else "while it spoke this line"
                self._end(one, one.outcome(BatchClosed(f"the batch was closed {said}")))
        self.inbox.refuse_work(BatchClosed("the batch was closed before this was done"))

    def _end_failed(self, error: BaseException) -> None:
        """End the utterances of a failed session; retry each that has delivered nothing, alone."""
        failed = list(self._active.values())
        if not failed:  # it did not begin: the first one would be retried for ever
            failed = self.scheduler.next(self._device, 1, time.perf_counter())
        self._by_row.clear()
        for one in failed:
            self._finish(one, error, is_shared=len(failed) > 1)

    def _speak(self) -> None:
        engine, model = self._synthesizer.engine, self._synthesizer.model
        choice = engine.choose(model)
        if self._is_list:
            needed = needed_rows(model, self.scheduler.utterances)
            self._rows = max(1, min(self._most_rows, -(-needed // len(self._inboxes))))
        open_codec = partial(engine.open_codec, model, choice, self._rows)
        self._turns = CodecSteps(open_codec, model.codec, self.speed, partial(deliver, self._active))
        begin_waveforms = partial(engine.begin_waveforms, model, choice, on_chunk=self.inbox.check_open)
        self._whole = OfflineCodec(begin_waveforms, MOST_LINES if choice.batch_codec else 1)
        describe = partial(engine.describe, model, choice)
        builder = engine.prompt_builder(model)
        self._shared = Shared(builder, self.speed, describe, engine.texts, self._is_list)
        if self._ahead.lines:
            engine.prepare_codec(model, choice, self._turns.codec)
        for one in self._own:
            one.signal.set()
        while True:
            self._handle()
            if entering := self._begin_pieces(self._rows):
                self._decode(choice, entering)
                return
            if not self._rest():
                return

    def _decode(self, choice: Choice, entering: Sequence[Entering]) -> None:
        """Decode these pieces, and what comes meanwhile, until nothing comes any more."""
        engine, model = self._synthesizer.engine, self._synthesizer.model
        queued = [one for one in self._own if one.take and one.chunks is None]
        requests = [request for _, _, request in entering]
        requests += [one.parts.request(piece) for one in queued for piece in one.ready]
        comes_late = bool(self._streamed or self.scheduler.streams)  # else all lines are there from the beginning
        plan = RowPlan(self._rows, self._most_rows, requests, comes_late, self._ahead)
        with engine.open_rows(model, entering[0][0].speech.options, plan, choice) as rows:
            self._decoding = Decoding(model, rows)
            self._turns.use(self._decoding.buffers)
            self._enter(entering)
            while self._iterate() or self._rest():
                pass

    @property
    def _own(self) -> list[Utterance]:
        return [one for one in self.scheduler.utterances if one.device == self._device]

    def _iterate(self) -> bool:
        """Make a frame of one group, and apply what has happened; return False if there was nothing to do."""
        if self._whole.waiting or self._whole.work:
            self._make_complete()
        if self.inbox.changed or self.inbox.is_closed:
            self._handle()
        for one, tokens in self._with_tokens:
            if not tokens.done:
                fails_alone(one, one.follow)
                if tokens.done:
                    self._settle(one)
        self._decoding.rows.late = bool(self._streamed or self.scheduler.streams)
        if self.scheduler.wanted:
            self._admit()
            if self.scheduler.wanted and self._decoding.rows.late:
                self._exchange()
        if self._ahead.lines:
            self._prepare_beside()
        groups = set(map(GROUP_OF, self._by_row.values()))
        if len(groups) <= 1:
            return self._make_frame(*groups)
        # Another group, if all lines of one wait for text.
        return any(map(self._make_frame, self.scheduler.groups(self._device, time.perf_counter())))

    def _make_frame(self, group: Group | None = None) -> bool:
        if goes_on := self._decoding.step(group):
            self._meanwhile(self._decoding.rows.began)
        return self._read_frames() or goes_on

    def _read_frames(self) -> bool:
        decoding, has_read = self._decoding, False
        while (ended := decoding.read()) is not None:
            has_read = True
            for row, end in ended:
                self._settle(self._leave_row(row, end))
            if lines := decoding.buffers.appended:
                self.frames += lines
                self.speed.end_frame()
                if self._streamed:
                    comes = self.inbox.changed and len(self._streamed) <= FEW and self.scheduler.streams
                    has_room = len(self._by_row) < self._rows
                    self._turns.step(self._streamed, bool(comes and has_room))
        return has_read

    def _prepare_beside(self) -> None:
        """Do the next first call or capture that is planned, if no reader runs dry meanwhile."""
        engine, now = self._synthesizer.engine, time.perf_counter()
        if now < self._planned_at or not engine.warm_ups.is_settled or self.inbox.changed:
            return
        played_at = [one.sizes.empty_at for one in self._streamed if not one.is_starved]
        if played_at and min(played_at) - now < self._planned_s:
            return
        has_done = engine.prepare_next()  # else nothing is left, or it needs more free rows
        took = time.perf_counter() - now
        self.speed.exclude(took)
        self._planned_s = max(PLANNED_S, took)
        self._planned_at = now + (took if has_done else PLANNED_S) / PLANNED_SHARE

    # Events

    def _handle(self, has_model: bool = True) -> None:
        """Apply what other threads have changed: new lines, new text, readers that took a chunk or left."""
        self.inbox.check_open()
        changed, self._admit_at, self._exchange_at = self.inbox.changed, 0.0, 0.0
        for one in dict.fromkeys([changed.popleft()() for _ in range(len(changed))]):
            if one is None or one.status is Status.DONE or one.device not in (-1, self._device):
                continue
            if one.device < 0:
                self._handle_unclaimed(one)
                continue
            if one.take and one.speech.is_streamed and one.chunks is None:
                one.stream()
                self._note_active()
            if has_model and not one.speech.is_cancelled:
                if one.take:
                    fails_alone(one, one.follow)
                elif one.status is Status.QUEUED and not (one.speech.is_streamed or self._streamed):
                    # Early: the engine makes room for the longest prompt, and prompts are made ahead.
                    fails_alone(one, partial(one.open, self._shared))
            if one.suspended:
                self._flush([one])
            self._settle(one)

    def _handle_unclaimed(self, one: Utterance) -> None:
        """Handle an event of an utterance that any device may begin: all of them get it."""
        with self.scheduler.lock:
            if one.device >= 0 or one.status is Status.DONE:
                return
            if one.settle() is not Status.DONE:
                self.scheduler.requeue(one, time.perf_counter())
                return
        self._end(one, one.outcome())

    def _settle(self, one: Utterance) -> None:
        """Give an utterance the status that follows from what has happened, and tell the scheduler."""
        status = one.settle()
        if one.rows and status is not Status.RUNNING:
            for row in list(one.rows):
                self._leave_row(row, "cancelled")
            status = one.settle()
        if one.number in self._active and not (one.rows or one.suspended or one.in_codec):
            # A slow reader's line keeps no state in the codec.
            self._flush([one], are_full=True)
            if one.chunks is None or not (one.chunks.has_codes or one.chunks.in_codec is not None):
                self._deactivate(one)
            status = one.settle()
        if status is Status.DONE:
            self._finish(one)
        else:
            self.scheduler.requeue(one, time.perf_counter())

    def _finish(self, one: Utterance, error: BaseException | None = None, is_shared: bool = False) -> None:
        """End an utterance, or retry one that failed before anything of it was delivered.

        Another device retries it; if none is left, and others failed with it (``is_shared``), this one alone.
        """
        outcome, failed_on = one.outcome(error), dict(one.failed_on)
        error = outcome.error
        if has_failed := error is not None and is_failure(error):
            failed_on[self._device] = say_why(error)
        self.scheduler.note_end([self._device], has_failed)
        is_final = isinstance(error, torch.cuda.OutOfMemoryError) or not isinstance(error, Exception)
        is_out = one.speech.progress.chunks or one.speech.is_cancelled or one.text.is_late
        is_elsewhere = has_failed and len(failed_on) < len(self._inboxes)
        is_alone = is_shared and not one.is_alone
        if has_failed and not (is_out or is_elsewhere):  # the line is at fault
            self.scheduler.note_end(range(len(self._inboxes)), False)
        if is_final or is_out or self.inbox.is_closed or not (is_elsewhere or is_alone):
            self._end(one, outcome)
            return
        if is_elsewhere:
            log.warning("a line could not be made on %s (%s)", self.name, error)
        self._remove(one)
        again = one.again(failed_on, is_alone=not is_elsewhere)
        again.device = -1 if is_elsewhere else self._device
        self.scheduler.submit([again], time.perf_counter(), is_retry=True)
        again.signal.set()

    def _end(self, one: Utterance, outcome: Outcome) -> None:
        self._remove(one)
        if (spoken := outcome.spoken) is not None and self.name and one.device >= 0:
            notes = spoken.report.notes
            if one.failed_on:
                where = " and ".join(self._names[device] for device in one.failed_on)
                why = list(one.failed_on.values())[-1]
                notes = (*notes, f"A line could not be made on {where} ({why}): {self.name} made it.")
            report = replace(spoken.report, device=self.name, notes=notes)
            outcome = replace(outcome, spoken=replace(spoken, report=report))
        one.speech.finish(outcome)

    def _remove(self, one: Utterance) -> None:
        """Forget an utterance, before its reader gets the outcome: it may look at the status."""
        self._deactivate(one)
        self.scheduler.remove(one)
        one.become(Status.DONE)

    def _deactivate(self, one: Utterance) -> None:
        if self._active.pop(one.number, None) is not None:
            if one.chunks is not None:
                self._turns.end(one.chunks)
            self._note_active()

    def _note_active(self) -> None:
        running = [one for one in self._active.values() if one.rows or not one.suspended]
        self._streamed = [one.chunks for one in running if one.chunks is not None]
        self._with_tokens = [(one, one.tokens) for one in self._active.values() if one.tokens is not None]

    # Rows

    def _exchange(self) -> None:
        """Let offline lines, and streams that are far ahead of their players, give up their rows to others."""
        if (now := time.perf_counter()) < self._exchange_at:
            return
        self._exchange_at = now + EXCHANGE_S
        for _ in range(EXCHANGES):
            one = self.scheduler.yields(self._device, now, self._rows - len(self._by_row))
            if one is None:
                return
            row = list(one.rows)[-1]
            self._decoding.rows.settle()
            self._read_frames()
            if row not in one.rows:  # its end has come
                return
            self._forget_row(row)
            one.suspend(row, self._decoding.suspend(row))
            self._flush([one])
            self._note_active()
            self._settle(one)
            self._admit()

    def _admit(self) -> None:
        now = time.perf_counter()
        if self._by_row and now < self._admit_at:
            return
        if not (room := self._decoding.rows.room(self.scheduler.wanted)):
            return
        held = len(self._by_row)
        self._enter(self._begin_pieces(min(room, NEWCOMERS) if self._streamed else room))
        if len(self._by_row) == held:  # the scheduler refuses: time, or an event, may change that
            self._admit_at = now + SPREAD_S

    def _begin_pieces(self, room: int) -> list[Entering]:
        """Return the next pieces for up to ``room`` rows."""
        entering, before = list[Entering](), room + 1
        while 0 < room < before and (admitted := self.scheduler.next(self._device, room, time.perf_counter())):
            before = room
            for one in admitted:
                if one.suspended:
                    row = self._decoding.resume(one.suspended[0])
                    one.resume(self._decoding.buffers, row)
                    self._by_row[row] = one
                    self._note_active()
                elif (begun := self._begin(one)) is not None:
                    entering.append(begun)
                else:
                    continue
                room -= 1
        return entering

    def _begin(self, one: Utterance) -> Entering | None:
        """Begin the next piece of an admitted utterance; None if it has none after all."""
        if one.status is Status.DONE:  # with another piece that was admitted
            return None
        if (begun := fails_alone(one, partial(one.begin_piece, self._shared))) is None:
            self.scheduler.release(one, time.perf_counter())
            self._settle(one)
            return None
        one.become(Status.RUNNING)
        if one.number not in self._active:
            self._active[one.number] = one
            self._note_active()
        self.scheduler.requeue(one, time.perf_counter())  # for its other pieces
        return (one, *begun)

    def _enter(self, entering: Sequence[Entering]) -> None:
        if not entering:
            return
        rows = self._decoding.admit([request for _, _, request in entering])
        for row, (one, piece, _) in zip(rows, entering, strict=True):
            self._by_row[row] = one
            one.enter_row(self._decoding.buffers, row, piece)

    def _forget_row(self, row: int) -> Utterance:
        one = self._by_row.pop(row)
        self._turns.wake(row)
        self._admit_at = 0.0
        self.scheduler.release(one, time.perf_counter())
        return one

    def _leave_row(self, row: int, ended: str) -> Utterance:
        one = self._forget_row(row)
        if (piece := one.leave_row(row, self._decoding.release(row), ended)) is not None:
            self._whole.add(CodedPiece(one, piece, one.speech.line.voice.ref_codes))
        return one

    def _meanwhile(self, began: Sequence[tuple[int, torch.Tensor | None]]) -> None:
        """Work while the device makes a frame: begin first chunks, deliver what the codec has made, make prompts."""
        for row, codes in began:
            one = self._by_row[row]
            assert one.chunks is not None
            self._turns.begin_ahead(one.chunks, one.rows[row], codes)
        if len(self._streamed) > FEW:
            self._turns.settle()
        prompts = self._shared.prompts
        for _ in range(min(PROMPTS_PER_FRAME, len(prompts))):
            prompts.popleft().prompt.make_rows()

    # Samples

    def _flush(self, utterances: Iterable[Utterance], are_full: bool = False) -> None:
        """Decode and deliver all waiting frames of lines with a full reader, or without; no others come soon."""
        ready = [one.chunks for one in utterances if one.chunks is not None]
        while ready := [one for one in ready if one.piece is not None and one.speech.is_full == are_full]:
            if not self._turns.flush(ready):
                return

    def _make_complete(self) -> None:
        """Decode offline pieces: many together, or beside streams what takes half as long as readers can wait."""
        self._take_complete(until=time.perf_counter() + JUDGE_S)
        whole, is_list = self._whole, self._is_list
        if not whole.waiting or whole.work:  # a reader would wait for all in flight
            return
        if streamed := [one for one in self._streamed if not one.is_starved]:
            empty_at = min(math.inf if one.ended else one.sizes.empty_at for one in streamed)
            most = min(COMPLETE_BESIDE, whole.fit((empty_at - time.perf_counter()) / 2))
        else:
            gathered = whole.waited_s >= (GATHER_LIST_S if is_list else GATHER_S)
            is_due = len(whole.waiting) >= min(self._rows, whole.together) or (
                gathered and not (is_list and self.scheduler.wanted)
            )
            most = len(whole.waiting) if is_due else 0
        if most:
            whole.start(most)

    def _take_complete(self, until: float, wait: bool = False) -> None:
        """Apply finished samples of offline pieces, at least one."""
        while (made := self._whole.take(wait)) is not None:
            coded, samples = made
            coded.owner.take_samples(coded.piece, samples)
            if time.perf_counter() >= until:
                return

    def _rest(self) -> bool:
        """Make the samples that are left, then wait for an event; return False if the session is over."""
        if self._whole.waiting or self._whole.work:
            if not self._whole.work:
                self._whole.start()
            self._take_complete(until=0.0, wait=True)
            return True
        self._turns.settle()
        self._flush(self._active.values())
        self.speed.rest()
        if self.inbox.changed:
            return True
        if self._by_row:  # all of them wait for text
            self.inbox.wait(EXCHANGE_S if self.scheduler.wanted else None)
            return True
        if not self._active and self.inbox.do_work():
            return True
        # The last one admitted had no piece after all.
        return self.scheduler.offers(self._device, time.perf_counter()) or self.inbox.wait(self._linger_s)


def needed_rows(model: Model, lines: Iterable[Utterance]) -> int:
    """Return how many rows these lines can use: an offline line can use one for each piece."""
    rows = 0
    for one in lines:
        limit = 0 if one.speech.is_streamed else piece_limit(model, one.speech.options)
        rows += max(1, -(-len(one.text.text) // limit)) if limit else 1
    return rows


def deliver(active: Mapping[int, Utterance], output: Output) -> None:
    if (one := active.get(output.number)) is not None:
        one.deliver(output)


def fails_alone(one: Utterance, act: Callable[[], T]) -> T | None:
    """Return what ``act`` returns; an error of any kind ends this utterance only, and its reader gets it."""
    try:
        return act()
    except Exception as error:
        one.fail(error)
        return None


def is_failure(error: BaseException | None) -> bool:
    """Return whether another device may do better; what is wrong with a line is a ValueError."""
    others = (BatchClosed, ValueError, torch.cuda.OutOfMemoryError)
    return isinstance(error, NotFinite) or (isinstance(error, Exception) and not isinstance(error, others))
