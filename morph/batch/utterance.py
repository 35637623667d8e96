"""The record of one utterance: its text, pieces, chunks, status and outcome. Only the batch thread changes it."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import count

import numpy as np

from ..decode.buffers import RowBuffers
from ..decode.decoded import BROKEN, Decoded
from ..decode.loop import Suspended
from ..decode.request import Group, LineRequest
from ..model.finite import NotFinite, not_finite, of_voice
from ..options import END_AT_ONCE, FRAME_RATE
from ..speech.joined import assemble, note_of, warn_of
from ..speech.lines import Line, LineReport, Spoken
from ..speech.piece import NO_SAMPLES, Piece
from ..speech.pieces import LinePieces, expected_of, text_as_spoken
from ..speech.takes import CAP, WRONG, Take
from ..speech.text_feed import TextFeed
from ..speech.text_reader import TextReader
from ..speech.token_feed import TokenFeed
from ..speech.wrong_words import follow_words
from ..text.duration import likely_frames
from ..voice.prompt import PromptBuilder
from .codec.line import TurnLine
from .codec.line_chunks import NO_CODES, LineChunks
from .codec.pacing import ChunkSizes, Speed
from .codec.whole import WholeCodec
from .inbox import Inbox, Signal
from .speech import Chunk, Outcome, Speech

log = logging.getLogger(__name__)

NUMBERS = count(1)  # of utterances, for the codec
PIECES_AHEAD = 4  # of a line: faster text is not read beyond them
SHORT = 400  # characters; a shorter text is cut at once


class Status(Enum):
    """The state of an utterance; ``docs/architecture.md`` has the events of the transitions."""

    QUEUED = auto()  # wants a row: new, between two pieces, or for a retry
    RUNNING = auto()  # a piece has a row
    IDLE = auto()  # wants none now: its reader is full, or its text has not come
    DRAINING = auto()  # all codes are decoded, samples are missing
    DONE = auto()  # its outcome is set: finished, failed or cancelled


TRANSITIONS: Mapping[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.RUNNING, Status.IDLE, Status.DRAINING, Status.DONE}),
    Status.RUNNING: frozenset({Status.QUEUED, Status.IDLE, Status.DRAINING, Status.DONE}),
    Status.IDLE: frozenset({Status.QUEUED, Status.DRAINING, Status.DONE}),
    Status.DRAINING: frozenset({Status.QUEUED, Status.DONE}),
    Status.DONE: frozenset(),
}


@dataclass(frozen=True)
class Shared:
    """What the utterances of a session with the model have in common."""

    builder: PromptBuilder
    speed: Speed
    whole: WholeCodec
    describe: Callable[[], str]
    texts: Executor  # writes out figures


def cancelled(line: Line, rate: int) -> Outcome:
    """Return how a line ends that was cancelled before its text was read."""
    text = line.text if isinstance(line.text, str) else ""
    report = LineReport(line.name, text, 0, 0.0, "cancelled", 0)
    return Outcome(report, Spoken(NO_SAMPLES, rate, report))


class Utterance(TurnLine):
    """One line on its way through a batch.

    Of a streamed utterance at most one piece has a row, so that a long text takes no row from others; of an offline
    one all may. Pieces that went wrong are retried once all have a take.

    ``rate`` is in Hz. ``is_alone``: it is decoded beside no other, because the engine failed it.
    """

    parts: LinePieces  # from ``open`` on

    def __init__(self, speech: Speech, rate: int, inboxes: Sequence[Inbox]):
        super().__init__(next(NUMBERS), speech.line.voice.ref_codes)
        line, delivery = speech.line, speech.delivery
        self.speech, self._rate, self._inboxes = speech, rate, inboxes
        self.order, self.caller, self.is_alone = delivery.order, delivery.caller, False
        self.device = -1
        self.failed_on: dict[int, str] = {}  # devices, and why
        self.group = Group.of(speech.options)
        self.is_streamed = speech.is_live
        self.signal = speech.bell = Signal(inboxes, self)
        self._reader = None if isinstance(line.text, str) else TextReader(line.text, self.signal, line.layout)
        self.status = Status.QUEUED if self._reader is None else Status.IDLE
        self.rows: dict[int, Piece] = {}
        self.ready: deque[Piece] = deque()  # pieces that want a row
        self._text: TextFeed | None = None  # the source of pieces, until its end
        self._tokens: TokenFeed | None = (
            None  # the same, also after its end: the prompt has its first token only
        )
        self._likely = 0 if self._reader is not None else likely_frames(str(line.text))
        self.take = 1
        self._retries = speech.options.retries if delivery.may_retry else 0
        self._given = 0  # pieces that were ready
        self._in_codec = 0  # offline pieces in the codec
        self._coded = 0  # frames of the pieces that have left their rows
        self._sent_frames = self._sent_samples = 0
        # Of each delivered piece: how it ended, and a note on its wrong words.
        self._ends: list[tuple[str, str]] = []
        self._stopped: str | None = None  # one of ``takes.STOPPED``, if the line is over before its end
        self._error: BaseException | None = None
        self.suspended: Suspended | None = (
            None  # the state of ``ready[0]``, which has left its row within the piece
        )
        self._shared: Shared | None = None

    @property
    def is_open(self) -> bool:
        """Whether its text is cut into pieces, as far as it has come."""
        return self._shared is not None

    @property
    def shared(self) -> Shared:
        assert self._shared is not None
        return self._shared

    def become(self, status: Status) -> None:
        """Change the status: the only place that does."""
        if status is self.status:
            return
        if status not in TRANSITIONS[self.status]:
            raise RuntimeError(f"an utterance cannot go from {self.status.name} to {status.name}")
        self.status = status

    def itself(self) -> Utterance:
        return self

    def read(self) -> None:
        """Begin to read a text that comes in parts. Raises RuntimeError, and ends the line, if no thread can start."""
        if self._reader is None:
            return
        try:
            self._reader.start()
        except RuntimeError as error:
            self.speech.cancel()
            raise RuntimeError(
                "no thread can be started for a text that comes in parts: try again later"
            ) from error

    # What the scheduler reads

    @property
    def is_live(self) -> bool:
        """Whether a player waits for it; retries of a streamed line come after its chunks."""
        return self.is_streamed and self.take == 1

    @property
    def length(self) -> float:
        """In characters."""
        if self.ready:
            return max(len(piece.text) for piece in self.ready)
        return 0 if self._reader is not None else len(str(self.speech.line.text))

    @property
    def left_s(self) -> float:
        frames = self._likely
        if self._reader is not None and self.is_open:
            frames = self.parts.expected
        return max(0.0, (frames - self._sent_frames) / FRAME_RATE)

    @property
    def wants(self) -> int:
        return len(self.ready) or int(self.status is Status.QUEUED)

    def deadline(self, now: float) -> float:
        if not self.is_open:
            return now
        return math.inf if self.is_full or self.is_starved else self.chunks.sizes.empty_at or now

    def allows(self, device: int) -> bool:
        return device not in self.failed_on

    def again(self, is_alone: bool) -> Utterance:
        """Return a new record of a line that failed before anything of it was delivered."""
        again = Utterance(self.speech, self._rate, self._inboxes)
        again.failed_on, again.is_alone = self.failed_on, is_alone
        self.speech.progress.done = 0
        return again

    @property
    def is_untouched(self) -> bool:
        """Whether it can be spoken from its beginning: nothing was delivered, and its text is still there."""
        begun = self.speech.has_begun or self.speech.is_cancelled
        return not begun and isinstance(self.speech.line.text, str)

    # Text and pieces

    def open(self, shared: Shared) -> None:
        """Cut the text and build prompts, with the model held; ValueError for what only a prompt shows."""
        self._shared = shared
        line, options, progress = self.speech.line, self.speech.options, self.speech.progress
        parts = self.parts = LinePieces.open(shared.builder, line, options)
        sizes = ChunkSizes(options.chunk_frames, shared.speed, self.speech.delivery.held_s)
        most = parts.sampling.line_frames
        self.chunks = LineChunks(sizes, parts.model.sample_rate, options, most, parts.text_of)
        self._text = self._open_text()
        self._tokens = self._text if isinstance(self._text, TokenFeed) else None
        if self._text is None:
            parts.cut()
            progress.pieces, progress.expected = len(parts.pieces), parts.expected
            if self.is_streamed:
                self._add_pieces(0)
                self._complete()
            return
        self.follow()
        # A last piece holds nothing back for a crossfade.
        if self._text is not None and self._text.is_read:
            self.follow(ahead=2)

    def _open_text(self) -> TextFeed | None:
        """Return the source of pieces; None to add all at once, which is quick for a short text."""
        line = self.speech.line
        if self._reader is None and (not self.is_streamed or self._is_short(str(line.text))):
            return None
        feed = TokenFeed if self._reader is not None and line.layout == "token" else TextFeed
        return feed(self.parts, self.shared.texts, self.signal.set, self._reader)

    def _is_short(self, text: str) -> bool:
        limit = min(self.parts.limit or SHORT, SHORT)
        return len(text) <= limit and self.parts.normalizer.is_quick(text, self.speech.line.language)

    def follow(self, ahead: int | None = None) -> None:
        """Read new text, with the model held: the next of up to ``ahead`` pieces."""
        if (text := self._text) is None:
            return
        if self._is_at_limit:
            text.stop()
        if not text.done and not self._is_ahead(text, ahead):
            before = len(self.parts.pieces)
            text.poll()
            self._add_pieces(before)
        if text.done:
            self._end_text(text)
        elif text.has_news and not self._is_ahead(text, ahead):
            self.signal.set()

    def _is_ahead(self, text: TextFeed, ahead: int | None) -> bool:
        if not text.is_late:
            return self._waiting >= (ahead or 1)
        is_ahead = self._tokens is not None and self._tokens.is_ahead
        return is_ahead or self._waiting >= PIECES_AHEAD

    @property
    def needs_text(self) -> bool:
        """Whether text that has come is to be read although nothing tells it: the speech has caught up with it."""
        text = self._tokens
        return text is not None and not text.done and text.has_news and not self._is_ahead(text, None)

    def stream(self) -> None:
        """Stream an offline line from now on, unless its samples are being made."""
        if self.is_streamed or self._stopped or self.take > 1 or self._in_codec:
            return
        if self.is_open and any(piece.take is not None for piece in self.parts.pieces):
            return
        self.is_streamed = True
        if self.is_open:
            self._add_pieces(0)
            self._complete()

    def _end_text(self, text: TextFeed) -> None:
        self._text = None
        if text.error is not None and self._stopped is None:
            self._stopped, self._error = "failed", text.error
        self._complete()

    def _complete(self) -> None:
        """Note that all pieces have come."""
        after_s = 0.0 if self._stopped else sum(piece.after_s for piece in self.parts.pieces)
        samples, had_ended = round(after_s * self._rate), self.chunks.ended
        chunk = self.chunks.complete(time.perf_counter(), samples)
        if chunk is not None and (self._error is None or self.speech.has_begun):
            self.put(chunk)
        if self.chunks.ended and not had_ended:
            self._end_take()

    def _add_pieces(self, begin: int) -> None:
        for piece in self.parts.pieces[begin:]:
            piece.silence = round(piece.pause_s * self._rate)
            self.chunks.add_piece(piece)
        progress = self.speech.progress
        chars = len(str(self.speech.line.text)) if self._reader is None else 0
        progress.expected = max(progress.expected, self.parts.expected)
        progress.pieces = max(len(self.parts.pieces), chars // (self.parts.limit or SHORT))

    @property
    def _waiting(self) -> int:
        """Pieces that were not ready so far."""
        return len(self.parts.pieces) - self._given

    @property
    def _is_at_limit(self) -> bool:
        most = self.parts.sampling.line_frames
        return self.is_streamed and most is not None and self._coded >= most

    # Status

    def settle(self) -> Status:
        """Get pieces ready for rows, and change the status to what follows from all that has happened."""
        if not self.is_open:
            if self._stopped:
                self.become(Status.DONE)
                return self.status
            came = self._reader is None or self._reader.has_news
            self.become(Status.QUEUED if came else Status.IDLE)
            return self.status
        if self._text is not None and self._text.done and not self._stopped:
            self._end_text(self._text)
        self._make_ready()
        self.become(self._next_status())
        return self.status

    def _make_ready(self) -> None:
        if self.speech.is_cancelled:
            self.ready.clear()
            return
        if self.is_streamed and (self.take > 1 or self.rows or self.ready or self.is_full):
            return
        if self._is_over or self._is_at_limit:
            return
        most = 1 if self.is_streamed else self._waiting
        for piece in self.parts.pieces[self._given : self._given + most]:
            self.ready.append(piece)
            self._given += 1

    def _next_status(self) -> Status:
        if self.rows:
            return Status.RUNNING
        if self.ready:
            return Status.QUEUED
        if self._is_over:
            return Status.DRAINING if self._in_codec else Status.DONE
        text = self._text
        if self._is_at_limit or (text is None and not self._waiting):
            return Status.DRAINING
        has_news = text is not None and text.has_news
        return Status.QUEUED if has_news and not self.is_full else Status.IDLE

    @property
    def _is_over(self) -> bool:
        """Whether nothing of its first take is to be decoded or delivered any more."""
        if self._stopped == "cancelled":
            return True
        if self.is_streamed:
            return self.chunks.ended
        return bool(self._stopped) or all(piece.take is not None for piece in self.parts.pieces)

    @property
    def is_cut_off(self) -> bool:
        """Whether its pieces are to leave their rows before their ends."""
        if self.speech.is_cancelled:
            return True
        if self._tokens is not None and self.take == 1 and self._tokens.error is not None:
            return True
        return self._stopped is not None and (not self.is_streamed or self.chunks.ended)

    @property
    def holds_codes(self) -> bool:
        """Whether there are codes without samples."""
        return bool(self._in_codec) or self.in_codec or self.chunks.has_codes

    @property
    def is_token(self) -> bool:
        """Whether its text is written into its row as it comes."""
        return self._tokens is not None

    # Rows

    def begin_piece(self, shared: Shared) -> tuple[Piece, LineRequest] | None:
        """Return the next piece for a row, or None if there is none after all."""
        self._shared = shared  # it was opened in an earlier session perhaps
        if not self.ready:
            self.follow()
            self._make_ready()
        if not self.ready:
            return None
        piece, parts, is_first = self.ready.popleft(), self.parts, self.take == 1
        request, most = parts.request(piece, self.take), parts.sampling.line_frames
        text = self._tokens if is_first else None
        if text is not None:
            text.follow(request.guard)
        elif self.is_streamed and most is not None and is_first:
            request.guard.max_frames = min(request.guard.max_frames, most - self._coded)
        words = None
        if self.speech.options.wrong_words == END_AT_ONCE and text is None:
            words = follow_words(parts.model, piece.text)
        if self._text is not None:
            self.signal.set()  # the next piece may be read
        return piece, replace(request, text=text, words=words, is_streamed=self.is_live, group=self.group)

    def enter_row(self, buffers: RowBuffers, row: int, piece: Piece) -> None:
        self.rows[row] = piece
        piece.frames.enter(buffers, row)
        self.speech.progress.follow(piece.frames)

    def suspend(self, row: int, state: Suspended) -> None:
        """Take a piece out of its row until somebody has a row for it."""
        piece = self.rows.pop(row)
        piece.frames.leave(state.left.frames)
        self.is_resting, self.suspended = False, state
        self.ready.appendleft(piece)

    def resume(self, buffers: RowBuffers, row: int) -> None:
        piece = self.rows[row] = self.ready.popleft()
        piece.frames.enter(buffers, row)
        self.suspended = None
        self.become(Status.RUNNING)

    def leave_row(self, row: int, frames: np.ndarray, ended: str) -> None:
        """Take a piece out of its row, with its frames."""
        piece = self.rows.pop(row)
        piece.frames.leave(frames)
        piece.ended, self.is_resting = ended, False
        self._coded += len(frames)
        self.speech.progress.end_take(piece.frames)
        if self._tokens is not None and self.take == 1:
            self._tokens.stop()  # the speech is over, whether or not the text is
        if ended == BROKEN and self.take == 1:  # otherwise there is an earlier take
            self.break_off(not_finite(self.parts.model.dtype))
        if self.is_live or self._stopped or ended in ("cancelled", BROKEN):
            return
        self._in_codec += 1
        self.shared.whole.add(self, piece)

    # Takes

    def take_samples(self, piece: Piece, wave: np.ndarray) -> None:
        """Accept the samples of an offline piece, or of a retry."""
        self._in_codec -= 1
        self.signal.set()
        if self._stopped:
            return
        self._judge(piece, piece.end_take()[0], wave)
        is_busy = self.rows or self.ready or self._in_codec
        if not is_busy and all(piece.take is not None for piece in self.parts.pieces):
            self._end_take()

    def lose_samples(self, error: NotFinite) -> None:
        """Fail the line, unless there is an earlier take: samples of a piece are not finite."""
        self._in_codec -= 1
        self.signal.set()
        if self.take == 1:
            self.break_off(error)

    def _judge(self, piece: Piece, decoded: Decoded, wave: np.ndarray) -> None:
        take = self.parts.judge(piece, decoded, wave, self.take)
        if piece.take is not None and not take.better_than(piece.take):
            take = replace(piece.take, number=self.take)
        piece.take = take

    def _end_take(self) -> None:
        is_late = time.perf_counter() > self.speech.delivery.last_retry_s
        if self._stopped or is_late or self.take > self._retries:
            return
        if self._tokens is not None:
            self._tokens.complete()
        again, progress = self.parts.wrong(), self.speech.progress
        self.ready.extend(again)
        self.take += 1
        progress.expected = max(progress.expected, progress.done + expected_of(again))

    # Codes and chunks

    @property
    def may_starve(self) -> bool:
        return self._text is not None and self._text.is_late

    @property
    def is_starved(self) -> bool:
        return self._tokens is not None and self._tokens.starved

    @property
    def is_full(self) -> bool:
        speech = self.speech
        return speech.queued > 0 and speech.is_full

    def break_off(self, error: NotFinite) -> None:
        if self._stopped or self.chunks.ended:
            return
        self._stopped, self._error = "failed", of_voice(error, self.speech.line.voice.name)
        self.close_text()
        self._text = None
        self.ready.clear()
        self.suspended = None
        self.chunks.cancel()
        self.signal.set()

    def put(self, chunk: Chunk) -> None:
        if self.speech.is_cancelled:
            return
        self._sent_frames += len(chunk.codes)
        self._sent_samples += len(chunk.samples)
        self.speech.put(chunk)
        if self.status is not Status.RUNNING:
            self.signal.set()

    def note_piece(self) -> None:
        """Note that a streamed piece has been delivered to its end."""
        piece = self.parts.pieces[len(self._ends)]
        decoded, wave = piece.end_take()
        if self.chunks.is_cut:
            decoded = replace(decoded, ended=CAP)
        if not self.speech.delivery.keep:
            take = self.parts.judge(piece, decoded, wave)
        else:
            self._judge(piece, decoded, wave)
            assert piece.take is not None
            take = piece.take
        self._ends.append((take.ended, take.wrong))
        if self.chunks.ended:
            if self.speech.delivery.keep:
                if self.chunks.is_cut:
                    self._leave_out(CAP)
                self._end_take()
            self.signal.set()

    def _leave_out(self, ended: str) -> None:
        for piece in self.parts.pieces:
            if piece.take is None:
                piece.drop_waiting()
                made, wave = piece.end_take()
                piece.take = Take(replace(made, ended=ended), wave, ended)

    # The end

    def cancel(self) -> None:
        self.suspended = None
        self._stopped = self._stopped or "cancelled"
        self.close_text()
        if self.is_open:
            self.chunks.cancel()
            self.ready.clear()

    def close_text(self) -> None:
        if self._text is not None:
            self._text.stop()
        if self._reader is not None:
            self._reader.close()

    def outcome(self) -> Outcome:
        """Return how an utterance that is done has ended."""
        self.close_text()
        try:
            outcome = self._outcome() if self.is_open else cancelled(self.speech.line, self._rate)
        except Exception as error:  # of any kind: it is this line's, and its reader gets it
            log.exception("a line could not be ended: its reader gets the error")
            outcome = Outcome(error=error)
        return outcome

    def _outcome(self) -> Outcome:
        keep, is_complete = self.speech.delivery.keep, not (self.is_streamed or self._stopped)
        spoken = self._spoken() if keep or is_complete else None
        report = self._report() if spoken is None else spoken.report
        if keep:
            warn_of(report)
        if spoken is not None and is_complete and (self.speech.is_heard or not keep):
            # Streaming was asked for too late, or the audio is wanted only at the end.
            self.speech.put(Chunk(NO_CODES, spoken.waveform, 0, True))
        return Outcome(
            report,
            spoken if keep else None,
            self._error,
            self.parts.text_tokens,
            () if spoken is None else spoken.spans,
        )

    def _spoken(self) -> Spoken:
        if self._stopped:
            self._leave_out(self._stopped)
        return assemble(self.parts, self.shared.describe(), self._stopped)

    def _report(self) -> LineReport:
        parts, line = self.parts, self.parts.line
        return LineReport(
            self.speech.line.name,
            str(line.text),
            self._sent_frames,
            self._sent_samples / self._rate,
            ended=self._stopped or next((end for end, _ in self._ends if end in WRONG), "eos"),
            pieces=len(parts.pieces),
            spoken=text_as_spoken(line, parts.said),
            notes=(*parts.said.notes, *(note_of(wrong) for _, wrong in self._ends if wrong)),
        )
