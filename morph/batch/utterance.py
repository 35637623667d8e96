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
from ..decode.loop import Suspended
from ..decode.request import Group, LineRequest
from ..decode.rows import BROKEN, EOS, Decoded
from ..model.finite import NotFinite, not_finite, of_voice
from ..options import END_AT_ONCE, FRAME_RATE
from ..speech.joined import assemble, report_of, warn_of
from ..speech.lines import LineReport, Spoken
from ..speech.pieces import NO_SAMPLES, LinePieces, Piece, expected_of
from ..speech.takes import CAP, Take
from ..speech.text_feed import TextFeed, TokenFeed
from ..speech.text_reader import TextReader
from ..speech.word_times import follow_words
from ..text.duration import likely_frames
from ..voice.prompt import PromptBuilder
from .codec.line_chunks import CUT, NO_CODES, LineChunks, Output
from .codec.pacing import ChunkSizes, Speed
from .inbox import Inbox, Signal
from .speech import Chunk, Outcome, Speech

log = logging.getLogger(__name__)

NUMBERS = count(1)  # of utterances, for the codec
NO_FRAMES = Decoded(NO_CODES, EOS)
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
    describe: Callable[[], str]
    texts: Executor  # writes out figures
    prompts: deque[Piece]  # offline pieces that want a row
    is_list: bool = False  # all lines are there from the beginning: cutting one delays no frame


class Utterance:
    """One line on its way through a batch.

    Of a streamed utterance at most one piece has a row, so that a long text takes no row from others; of an offline
    one all may. Pieces that went wrong are retried once all have a take.

    ``rate`` is in Hz. ``is_alone``: it is decoded beside no other, because the engine failed it.
    """

    # From ``open`` on
    shared: Shared
    parts: LinePieces

    def __init__(self, speech: Speech, rate: int, inboxes: Sequence[Inbox]):
        self.number = next(NUMBERS)
        self.speech, self._rate, self._inboxes = speech, rate, inboxes
        self.order, self.caller = speech.delivery.order, speech.delivery.caller
        self.is_alone, self.is_streamed = False, speech.is_streamed
        self.device = -1
        self.failed_on: dict[int, str] = {}  # devices, and why
        self.group = Group.of(speech.options)
        self.signal = speech.wake_up = Signal(inboxes, self)
        self._text = TextReader(speech.line.text, self.signal, speech.line.layout)
        self.status = Status.IDLE if self._text.is_late else Status.QUEUED
        speech.progress.expected = likely_frames(self._text.text)
        self.rows: dict[int, Piece] = {}
        self.ready: deque[Piece] = deque()  # pieces that want a row
        self._feed: TextFeed | None = None  # the source of pieces, until its end
        # The same, also after its end, if text is written into its row: the prompt has the first token only.
        self.tokens: TokenFeed | None = None
        self.take = 1
        self._has_read = False  # new text, since ``settle``
        self._given = 0  # pieces that were ready
        self._in_codec = 0  # offline pieces in the codec
        self._sent_frames = self._sent_samples = 0
        self._stopped: str | None = None  # one of ``takes.STOPPED``, if the line is over before its end
        self._error: BaseException | None = None
        # The state of ``ready[0]``, which has left its row within the piece.
        self.suspended: Suspended | None = None
        self.is_open = False  # whether its text is cut into pieces, as far as it has come

    def become(self, status: Status) -> None:
        """Change the status: the only place that does."""
        if status is self.status:
            return
        if status not in TRANSITIONS[self.status]:
            raise RuntimeError(f"an utterance cannot go from {self.status.name} to {status.name}")
        self.status = status

    def read(self) -> None:
        """Begin to read late text. Raises RuntimeError, and cancels the line, if no thread can start."""
        try:
            self._text.start()
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
        return max((len(piece.text) for piece in self.ready), default=len(self._text.text))

    @property
    def left_s(self) -> float:
        return max(0.0, (self.speech.progress.expected - self._sent_frames) / FRAME_RATE)

    @property
    def wants(self) -> int:
        return len(self.ready) or int(self.status is Status.QUEUED)

    def deadline(self, now: float) -> float:
        if not self.is_open:
            return now
        return (
            math.inf if self.speech.is_full or self.chunks.is_starved else self.chunks.sizes.empty_at or now
        )

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
        return not (self.speech.has_begun or self.speech.is_cancelled or self._text.is_late)

    # Text and pieces

    def open(self, shared: Shared) -> None:
        """Cut the text and build prompts, with the model held; ValueError for what only a prompt shows."""
        self.shared, options = shared, self.speech.options
        parts = self.parts = LinePieces(self.speech.line, options, shared.builder)
        sizes = ChunkSizes(options.chunk_frames, shared.speed, self.speech.delivery.held_s)
        most = parts.sampling.line_frames
        self.chunks = LineChunks(self.number, self.speech, sizes, self._rate, most)
        self.is_open = True
        text, limit = self._text.text, min(parts.limit or SHORT, SHORT)
        is_short = len(text) <= limit and parts.normalizer.is_quick(text, self.speech.line.language)
        if not self._text.is_late and (is_short or (shared.is_list and not self.is_streamed)):
            parts.cut()
            self._complete_text()
            return
        late_tokens = self._text.is_late and self.speech.line.layout == "token"
        self._feed = (TokenFeed if late_tokens else TextFeed)(
            parts, shared.texts, self.signal.set, self._text
        )
        self.tokens = self.chunks.tokens = self._feed if isinstance(self._feed, TokenFeed) else None
        self.follow()
        # A last piece holds nothing back for a crossfade.
        if not self._text.is_late:
            self.follow()

    def follow(self) -> None:
        """Read the next piece of new text, with the model held, unless enough is read."""
        if (feed := self._feed) is None:
            return
        if self._is_at_limit:
            feed.stop()
        if feed.has_news and not (feed.done or self._is_ahead(feed)):
            before = len(self.parts.pieces)
            feed.poll()
            self._has_read = True
            if self.is_streamed:
                self._add_pieces(before)
        if feed.done:
            self._end_text(feed)
        elif feed.has_news and not self._is_ahead(feed):
            self.signal.set()

    def _is_ahead(self, feed: TextFeed) -> bool:
        return self.is_streamed and feed.is_ahead(self._waiting)

    def stream(self) -> None:
        """Stream an offline line from now on, unless its samples are being made."""
        if self.is_streamed or self._stopped or self.take > 1 or self._in_codec:
            return
        if self.is_open and any(piece.take is not None for piece in self.parts.pieces):
            return
        self.is_streamed = True
        if self.is_open:
            self._add_pieces(0)
            if self._feed is None:
                self._complete()

    def _end_text(self, feed: TextFeed) -> None:
        self._feed = None
        if feed.error is not None:
            self._stopped, self._error = "failed", feed.error
        if self.is_streamed:
            self._complete()
        else:
            self.parts.drop_unreachable()
            self._complete_text()

    def _complete_text(self) -> None:
        """Note that the pieces of a text have come together."""
        self.speech.progress.expect(expected_of(self.parts.pieces), len(self.parts.pieces))
        if self.is_streamed:
            self._add_pieces(0)
            self._complete()

    def _complete(self) -> None:
        """Note that all pieces have come."""
        after_s = 0.0 if self._stopped else sum(piece.after_s for piece in self.parts.pieces)
        samples, had_ended = round(after_s * self._rate), self.chunks.ended
        chunk = self.chunks.complete(time.perf_counter(), samples)
        if chunk is not None and (self._error is None or self.speech.has_begun):
            self.deliver(Output(self.number, chunk))
        if self.chunks.ended and not had_ended:
            self._end_take()

    def _add_pieces(self, begin: int) -> None:
        for piece in self.parts.pieces[begin:]:
            piece.silence = round(piece.pause_s * self._rate)
            self.chunks.add_piece(piece)
        pieces, chars = self.parts.pieces, 0 if self._text.is_late else len(self._text.text)
        expected = max(self.speech.progress.expected, expected_of(pieces))
        self.speech.progress.expect(expected, max(len(pieces), chars // (self.parts.limit or SHORT)))

    @property
    def _waiting(self) -> int:
        """Pieces that were not ready so far."""
        return len(self.parts.pieces) - self._given

    @property
    def _is_at_limit(self) -> bool:
        most = self.parts.sampling.line_frames
        return self.is_streamed and most is not None and self.speech.progress.done >= most

    # Status

    def settle(self) -> Status:
        """Get pieces ready for rows, and change the status to what follows from all that has happened."""
        if self.is_open:
            if self._feed is not None and self._feed.done:
                self._end_text(self._feed)
            self._make_ready()
        self.become(self._next_status())
        self._has_read = False
        return self.status

    def _make_ready(self) -> None:
        if self.speech.is_cancelled:
            self.ready.clear()
            return
        is_busy = self.take > 1 or self.rows or self.ready or self.speech.is_full
        waits = is_busy if self.is_streamed else self._feed is not None
        if waits or self._is_over or self._is_at_limit:
            return
        new = self.parts.pieces[self._given :][: 1 if self.is_streamed else None]
        self.ready += new
        self._given += len(new)
        if not self.is_streamed:
            self.shared.prompts.extend(new)

    def _next_status(self) -> Status:
        if not self.is_open and not self._stopped:
            return Status.QUEUED if self._text.has_news else Status.IDLE
        if self.rows:
            return Status.RUNNING
        if self.ready:
            return Status.QUEUED
        if not self.is_open or self._is_over:
            return Status.DRAINING if self._in_codec else Status.DONE
        if self._is_at_limit or (self._feed is None and not self._waiting):
            return Status.DRAINING
        # An offline text is read to its end before it wants a row; QUEUED, only the model that reading needs.
        is_read = self._has_read and not self.is_streamed
        has_news = self._feed is not None and self._feed.has_news and not is_read
        return Status.QUEUED if has_news and not self.speech.is_full else Status.IDLE

    @property
    def _is_over(self) -> bool:
        """Whether nothing of its first take is to be decoded or delivered any more."""
        if self._stopped == "cancelled":
            return True
        if self.is_streamed:
            return self.chunks.ended
        has_text = self._feed is not None
        return bool(self._stopped) or not (has_text or any(one.take is None for one in self.parts.pieces))

    @property
    def is_cut_off(self) -> bool:
        """Whether its pieces are to leave their rows before their ends."""
        goes_on = self.is_streamed and self.tokens is None and not self.chunks.ended
        return self.speech.is_cancelled or (self._stopped is not None and not goes_on)

    @property
    def holds_codes(self) -> bool:
        """Whether there are codes without samples."""
        return bool(self._in_codec) or self.chunks.in_codec is not None or self.chunks.has_codes

    # Rows

    def begin_piece(self, shared: Shared) -> tuple[Piece, LineRequest] | None:
        """Return the next piece for a row, or None if there is none after all."""
        self.shared = shared  # it was opened in an earlier session perhaps
        if not self.ready:
            self.follow()
            self._make_ready()
        if not self.ready:
            return None
        piece, parts, is_first = self.ready.popleft(), self.parts, self.take == 1
        request, most = parts.request(piece, self.take), parts.sampling.line_frames
        text, words = self.tokens if is_first else None, None
        if text is not None:
            text.follow(request.guard)
        elif self.speech.options.wrong_words == END_AT_ONCE:
            words = follow_words(parts.model, piece.text)
        if text is None and self.is_live and most is not None:
            request.guard.max_frames = min(request.guard.max_frames, most - self.speech.progress.done)
        if self._feed is not None:
            self.signal.set()  # the next piece may be read
        return piece, replace(request, text=text, words=words, is_streamed=self.is_live, group=self.group)

    def enter_row(self, buffers: RowBuffers, row: int, piece: Piece) -> None:
        self.rows[row] = piece
        piece.frames.enter(buffers, row)
        self._count_frames()

    def suspend(self, row: int, state: Suspended) -> None:
        """Take a piece out of its row until somebody has a row for it."""
        piece = self.rows.pop(row)
        piece.frames.leave(state.frames)
        self.suspended = state
        self.ready.appendleft(piece)

    def resume(self, buffers: RowBuffers, row: int) -> None:
        self.enter_row(buffers, row, self.ready.popleft())
        self.suspended = None
        self.become(Status.RUNNING)

    def leave_row(self, row: int, frames: np.ndarray, ended: str) -> Piece | None:
        """Take a piece out of its row, with its frames; return it if its samples are wanted in one part."""
        piece = self.rows.pop(row)
        piece.frames.leave(frames)
        piece.ended = ended
        self._count_frames(len(frames))
        if self.tokens is not None and self.take == 1:
            self.tokens.stop()  # the speech is over, whether or not the text is
        if ended == BROKEN and self.take == 1:  # otherwise there is an earlier take
            self.break_off(not_finite(self.parts.model.dtype))
        if self.is_live or self._stopped or ended in ("cancelled", BROKEN):
            return None
        self._in_codec += 1
        return piece

    def _count_frames(self, ended: int = 0) -> None:
        self.speech.progress.follow([piece.frames for piece in self.rows.values()], ended)

    # Takes

    @property
    def _is_kept(self) -> bool:
        """Whether takes are kept, so that the better one of two can be the result."""
        return self.speech.delivery.keep or not self.is_streamed

    def take_samples(self, piece: Piece, samples: np.ndarray | NotFinite) -> None:
        """Accept the samples of an offline piece, or of a retry; an error fails the line, without an earlier take."""
        self._in_codec -= 1
        self.signal.set()
        if isinstance(samples, NotFinite):
            if self.take == 1:
                self.break_off(samples)
            return
        if self._stopped:
            return
        self._judge(piece, piece.end_take()[0], samples)
        is_busy = self.rows or self.ready or self._in_codec
        if not is_busy and all(piece.take is not None for piece in self.parts.pieces):
            self._end_take()

    def _judge(self, piece: Piece, decoded: Decoded, wave: np.ndarray) -> None:
        take = self.parts.judge(piece, decoded, wave, self.take)
        if piece.take is not None and not take.better_than(piece.take):
            take = replace(piece.take, number=self.take)
        piece.take = take if self._is_kept else replace(take, decoded=NO_FRAMES, waveform=NO_SAMPLES)

    def _end_take(self) -> None:
        """Begin another take of the pieces that went wrong, if there may be one."""
        speech, progress = self.speech, self.speech.progress
        is_last = self.take > speech.options.retries or time.perf_counter() > speech.delivery.last_retry_s
        if self._stopped or is_last or not self._is_kept:
            return
        if self.tokens is not None:
            self.tokens.complete()
        again = self.parts.wrong()
        self.ready.extend(again)
        self.take += 1
        progress.expected = max(progress.expected, progress.done + expected_of(again))

    # Codes and chunks

    def deliver(self, output: Output) -> None:
        """Apply a result of the codec."""
        if output.error is not None:
            self.break_off(output.error)
            return
        chunk = output.chunk
        if chunk is not None and not self.speech.is_cancelled:
            self._sent_frames += len(chunk.codes)
            self._sent_samples += len(chunk.samples)
            self.speech.put(chunk)
            if self.status is not Status.RUNNING:
                self.signal.set()
        if output.ends_piece:
            self._note_piece(is_last=chunk is not None and chunk.last)

    def _note_piece(self, is_last: bool) -> None:
        """Note that a streamed piece has been delivered to its end."""
        piece = next(one for one in self.parts.pieces if one.take is None)
        decoded, wave = piece.end_take()
        is_cut = is_last and self.chunks.course == CUT
        if is_cut:
            decoded = replace(decoded, ended=CAP)
        self._judge(piece, decoded, wave)
        if not is_last:
            return
        if is_cut:
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
        self._stop("cancelled")

    def break_off(self, error: NotFinite) -> None:
        if self._stopped or self.chunks.ended:
            return
        self._error = of_voice(error, self.speech.line.voice.name)
        self._stop("failed")
        self.signal.set()

    def _stop(self, ended: str) -> None:
        self._stopped, self.suspended = self._stopped or ended, None
        self.close_text()
        self._feed = None
        self.ready.clear()
        if self.is_open:
            self.chunks.cancel()

    def close_text(self) -> None:
        if self._feed is not None:
            self._feed.stop()
        self._text.close()

    def outcome(self, error: BaseException | None = None) -> Outcome:
        """Return how it ends: with what was made of it, or with an error. Its text is read no more."""
        self.close_text()
        if error is not None:
            return Outcome(error=error)
        try:
            return self._outcome()
        except Exception as raised:  # of any kind: it is this line's, and its reader gets it
            log.exception("a line could not be ended: its reader gets the error")
            return Outcome(error=raised)

    def _outcome(self) -> Outcome:
        if not self.is_open:
            report = LineReport(self.speech.line.name, self._text.text, 0, 0.0, "cancelled", 0)
            return Outcome(report, Spoken(NO_SAMPLES, self._rate, report))
        parts, keep, spoken = self.parts, self.speech.delivery.keep, None
        is_complete = not (self.is_streamed or self._stopped)
        if keep or is_complete:
            if self._stopped:
                self._leave_out(self._stopped)
            spoken = assemble(parts, self.shared.describe(), self._stopped)
        takes = [piece.take for piece in parts.pieces if piece.take is not None]
        seconds = self._sent_samples / self._rate
        report = (
            spoken.report if spoken else report_of(parts, takes, self._sent_frames, seconds, self._stopped)
        )
        if keep:
            warn_of(report)
        if spoken is not None and is_complete and (self.speech.is_streamed or not keep):
            # Streaming was asked for too late, or the audio is wanted only at the end.
            self.speech.put(Chunk(NO_CODES, spoken.waveform, 0, True))
        spans = () if spoken is None else spoken.spans
        return Outcome(report, spoken if keep else None, self._error, parts.text_tokens, spans)
