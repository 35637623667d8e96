"""The record of one utterance: its text, pieces, chunks, status and outcome. Only the batch thread changes it."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import count, islice

import numpy as np

from ...postprocess.join import NO_SAMPLES
from ..decode.buffers import RowBuffers
from ..decode.loop import Suspended
from ..decode.rows import BROKEN, EOS, Decoded, Group, LineRequest
from ..model.finite import NotFinite, not_finite, of_voice
from ..options import END_AT_ONCE, FRAME_RATE
from ..speech.lines import CAP, LineReport, Spoken
from ..speech.pieces import LinePieces, Piece, assemble, expected_of, report_of, warn_of
from ..speech.takes import Take, follow_words
from ..speech.text_feed import TextFeed, TokenFeed
from ..text.duration import likely_frames
from ..text.reader import TextReader
from ..voice.prompt import PromptBuilder
from .codec.line_chunks import CUT, NO_CODES, LineChunks, Output
from .codec.pacing import ChunkSizes, Speed
from .speech import Chunk, Outcome, Signal, Speech

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
    """A session's tools, for all utterances."""

    builder: PromptBuilder
    speed: Speed
    describe: Callable[[], str]
    texts: Executor  # writes out figures
    is_list: bool = False  # all lines are there from the beginning: cutting one delays no frame
    # Offline pieces that want a row: their prompts are made while the device is busy.
    prompts: deque[Piece] = field(default_factory=deque)


class Utterance:
    """One line on its way through a batch.

    Of a streamed utterance at most one piece has a row, so that a long text takes no row from others; of an offline
    one all may. Failed pieces are retried once all have a take.

    ``rate`` is in Hz. ``is_alone``: it is decoded beside no other, because the engine failed it.
    """

    # From ``open`` on
    shared: Shared
    parts: LinePieces

    def __init__(self, speech: Speech, signal: Signal, rate: int):
        self.number = next(NUMBERS)
        self.speech, self.signal, self._rate = speech, signal, rate
        self.order, self.caller = speech.delivery.order, speech.delivery.caller
        self.is_alone = False
        self.device = -1  # that it has begun on, for good; -1 before
        self.failed_on: dict[int, str] = {}  # devices, and why
        self.group = Group(speech.options.seq_groups, speech.options.tail)
        signal.attach(self)
        self.text = TextReader(speech.line.text, signal.set, speech.line.layout)
        self.status = Status.IDLE if self.text.is_late else Status.QUEUED
        speech.progress.expected = likely_frames(self.text.text)
        self.take = 0  # in progress, from 1; 0 until the text is cut into pieces, as far as it has come
        self.rows: dict[int, Piece] = {}
        self.ready: deque[Piece] = deque()  # pieces that want a row
        self.chunks: LineChunks | None = None  # if it is streamed, from ``open`` on
        self._feed: TextFeed | None = None  # the source of pieces, until its end
        # The same, also after its end, if text is written into its row: the prompt has the first token only.
        self.tokens: TokenFeed | None = None
        self._given = 0  # pieces that were ready
        self.in_codec = 0  # offline pieces
        self._stopped: str | None = None  # one of ``lines.STOPPED``, if the line is over before its end
        self._error: BaseException | None = None
        # The states of the first pieces of ``ready``, which have left their rows within the piece.
        self.suspended: deque[Suspended] = deque()

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
            self.text.start()
        except RuntimeError as error:
            self.speech.cancel()
            raise RuntimeError("no thread can be started for a text that comes in parts: try again later") from error

    def again(self, failed_on: dict[int, str], is_alone: bool) -> Utterance:
        """Return a new record of a line that failed before anything of it was delivered."""
        again = Utterance(self.speech, self.signal, self._rate)
        again.failed_on, again.is_alone = failed_on, is_alone
        self.speech.progress.ended, self.speech.progress.running = 0, ()
        return again

    # For the scheduler

    @property
    def is_live(self) -> bool:
        """Whether a player waits for it; retries of a streamed line come after its chunks."""
        return self.chunks is not None if self.take == 1 else not self.take and self.speech.is_streamed

    @property
    def length(self) -> float:
        """The characters for which it wants rows."""
        return max((len(piece.text) for piece in self.ready), default=len(self.text.text))

    @property
    def left_s(self) -> float:
        """The seconds that it has to say."""
        frames = 0 if self.chunks is None else self.chunks.frames
        return max(0.0, (self.speech.progress.expected - frames) / FRAME_RATE)

    @property
    def wants(self) -> int:
        """The rows it can use beside those it has: none without text or for a full reader."""
        if self.speech.is_cancelled:
            return 0
        return len(self.ready) or int(self.status is Status.QUEUED)

    def deadline(self, now: float) -> float:
        """Return when its player runs dry, ``now`` before the first chunk."""
        if (chunks := self.chunks) is None:
            return now
        return math.inf if self.speech.is_full or chunks.is_starved else chunks.sizes.empty_at or now

    # Text and pieces

    def open(self, shared: Shared) -> None:
        """Cut the text and build prompts, with the model held; ValueError for what only a prompt shows."""
        line, late, self.shared = self.speech.line, self.text.is_late, shared
        parts = self.parts = LinePieces(line, self.speech.options, shared.builder)
        self.take = 1
        if self.speech.is_streamed:
            self._open_chunks()
        text, limit = self.text.text, min(parts.limit or SHORT, SHORT)
        is_short = len(text) <= limit and parts.normalizer.is_quick(text, line.language)
        if not late and (is_short or (shared.is_list and self.chunks is None)):
            parts.cut()
            self._note_pieces()
            return
        kind = TokenFeed if late and line.layout == "token" else TextFeed
        self._feed = feed = kind(parts, shared.texts, self.signal.set, self.text)
        if self.chunks is not None and isinstance(feed, TokenFeed):
            self.tokens = self.chunks.tokens = feed
        self.follow()
        # A last piece holds nothing back for a crossfade.
        if not late:
            self.follow()

    def _open_chunks(self) -> None:
        speech, speed = self.speech, self.shared.speed
        sizes = ChunkSizes(speech.options.chunk_frames, speed, speech.delivery.held_s)
        self.chunks = LineChunks(self.number, speech, self.parts, sizes)

    def stream(self) -> None:
        """Stream an open offline line from now on, unless its samples are being decoded."""
        if self.chunks is not None or self._stopped or self.take != 1 or self.in_codec:
            return
        if all(piece.take is None for piece in self.parts.pieces):
            self._open_chunks()
            self._note_pieces()

    def follow(self) -> None:
        """Read the next piece of new text, with the model held, unless enough is read."""
        if (feed := self._feed) is None:
            return
        if self._frames_left <= 0:
            feed.stop()
        is_ahead = self.chunks is not None and feed.is_ahead(len(self.parts.pieces) - self._given)
        if feed.has_news and not (feed.done or is_ahead):
            feed.poll()
            self._note_pieces()
        if feed.done:
            self._end_text(feed)
        elif feed.has_news and not is_ahead:
            self.signal.set()

    def _end_text(self, feed: TextFeed) -> None:
        self._feed = None
        if feed.error is not None:
            self._stopped, self._error = "failed", feed.error
        if self.chunks is None:
            self.parts.pieces = self.parts.reachable(self.parts.pieces)
        self._note_pieces()

    def _note_pieces(self) -> None:
        """Pass new pieces on to the chunks, and note how long the line will be, as far as its text has come."""
        pieces, progress, is_over = self.parts.pieces, self.speech.progress, self._feed is None
        if self.chunks is None and not is_over:
            return
        chars = 0 if is_over or self.text.is_late else len(self.text.text)
        progress.expected = max(0 if is_over else progress.expected, expected_of(pieces))
        progress.pieces = max(len(pieces), chars // (self.parts.limit or SHORT))
        if (chunks := self.chunks) is None:
            return
        chunks.go_on()
        if not is_over or chunks.ended:
            return
        after_s = 0.0 if self._stopped else sum(piece.after_s for piece in pieces)
        chunk = chunks.complete(time.perf_counter(), after_s)
        if chunk is not None and (self._error is None or self.speech.progress.chunks):
            self.deliver(Output(self.number, chunk))
        if chunks.ended:
            self._end_take()

    @property
    def _frames_left(self) -> float:
        """The frames until the limit of a streamed line."""
        most = self.parts.sampling.line_frames
        return math.inf if most is None or self.chunks is None else most - self.speech.progress.done

    # Status

    def settle(self) -> Status:
        """Get pieces ready for rows, and change the status to what follows from all that has happened.

        With rows and another status than RUNNING its pieces are to leave them.
        """
        if self.speech.is_cancelled:
            self._stop("cancelled")
        if self.take:
            self._make_ready()
        self.become(self._next_status())
        return self.status

    def _make_ready(self) -> None:
        chunks, count = self.chunks, None
        if chunks is not None:
            is_busy = self.take > 1 or self.rows or self.ready or self.speech.is_full
            count = 0 if is_busy or chunks.ended or self._frames_left <= 0 else 1
        elif self._feed is not None or self._stopped:
            count = 0
        new = self.parts.pieces[self._given :][:count]
        self.ready += new
        self._given += len(new)
        if chunks is None:
            self.shared.prompts.extend(new)

    def _next_status(self) -> Status:
        if not self.take and not self._stopped:
            return Status.QUEUED if self.text.has_news else Status.IDLE
        chunks, feed = self.chunks, self._feed
        # If the source of a text fails, the sentences that have come are spoken.
        if self.rows and not (self._stopped and (chunks is None or chunks.ended or self.tokens)):
            return Status.RUNNING
        if self.ready:
            return Status.QUEUED
        if chunks is not None:
            is_over = chunks.ended
        else:
            is_over = bool(self._stopped) or not (feed or any(one.take is None for one in self.parts.pieces))
        if is_over:
            return Status.DRAINING if self.in_codec or self.rows else Status.DONE
        if self._frames_left <= 0 or (feed is None and self._given == len(self.parts.pieces)):
            return Status.DRAINING
        # Of an offline text that is read to its end before it wants a row, QUEUED asks for the model.
        return Status.QUEUED if feed and feed.has_news and not self.speech.is_full else Status.IDLE

    # Rows

    def begin_piece(self, shared: Shared) -> tuple[Piece, LineRequest] | None:
        """Return the next piece for a row, or None if there is none after all; errors as ``open``."""
        if not self.take:
            self.open(shared)
        self.shared = shared  # it was opened in an earlier session perhaps
        if not self.ready:
            self.follow()
            self._make_ready()
        if not self.ready or self.speech.is_cancelled:
            return None
        piece = self.ready.popleft()
        request = self.parts.request(piece, self.take)
        text, words = self.tokens if self.take == 1 else None, None
        if text is not None:
            text.follow(request.guard)
        else:
            if self.speech.options.wrong_words == END_AT_ONCE:
                words = follow_words(self.parts.model, piece.text)
            if self.is_live:
                request.guard.max_frames = int(min(request.guard.max_frames, self._frames_left))
        if self._feed is not None:
            self.signal.set()  # the next piece may be read
        return piece, replace(request, text=text, words=words, is_streamed=self.is_live, group=self.group)

    def enter_row(self, buffers: RowBuffers, row: int, piece: Piece) -> None:
        self.rows[row] = piece
        piece.frames.enter(buffers, row)
        if self.chunks is not None:
            self.chunks.row = row
        self._count_frames()

    def _take_out(self, row: int, frames: np.ndarray) -> Piece:
        piece = self.rows.pop(row)
        piece.frames.leave(frames)
        if self.chunks is not None:
            self.chunks.row = None
        return piece

    def suspend(self, row: int, state: Suspended) -> None:
        """Take a piece out of its row until somebody has a row for it."""
        self.ready.appendleft(self._take_out(row, state.frames))
        self.suspended.appendleft(state)

    def resume(self, buffers: RowBuffers, row: int) -> None:
        self.suspended.popleft()
        self.enter_row(buffers, row, self.ready.popleft())
        self.become(Status.RUNNING)

    def leave_row(self, row: int, frames: np.ndarray, ended: str) -> Piece | None:
        """Take a piece out of its row, with its frames; return it if its samples are wanted in one part."""
        piece = self._take_out(row, frames)
        piece.ended = ended
        self._count_frames()
        self.speech.progress.ended += len(frames)
        if ended == BROKEN and self.take == 1:  # otherwise there is an earlier take
            self.fail(not_finite(self.parts.model.dtype))
        if self.tokens is not None and self.take == 1:
            self.tokens.stop()  # the speech is over, whether or not the text is
            if self._feed is not None:
                self._end_text(self._feed)
        if self.is_live or self._stopped or ended in ("cancelled", BROKEN):
            return None
        self.in_codec += 1
        return piece

    def _count_frames(self) -> None:
        begun = [*self.rows.values(), *islice(self.ready, len(self.suspended))]
        self.speech.progress.running = [piece.frames for piece in begun]

    # Takes

    def take_samples(self, piece: Piece, samples: np.ndarray | NotFinite) -> None:
        """Accept the samples of an offline piece, or of a retry; an error fails the line, without an earlier take."""
        self.in_codec -= 1
        self.signal.set()
        if isinstance(samples, NotFinite):
            if self.take == 1:
                self.fail(samples)
            return
        if self._stopped:
            return
        piece.waves = [samples]
        self._judge(piece)
        is_busy = self.rows or self.ready or self.in_codec
        if not is_busy and all(piece.take is not None for piece in self.parts.pieces):
            self._end_take()

    def _judge(self, piece: Piece) -> None:
        take = self.parts.judge(piece, *piece.end_take(), self.take)
        if piece.take is not None and not take.better_than(piece.take):
            take = replace(piece.take, number=self.take)
        if self.chunks is not None and not self.speech.delivery.keep:  # all of it has been delivered
            take = replace(take, decoded=NO_FRAMES, waveform=NO_SAMPLES)
        piece.take = take

    def _end_take(self) -> None:
        """Begin another take of the failed pieces, if there may be one."""
        speech, progress = self.speech, self.speech.progress
        is_last = self.take > speech.options.retries or time.perf_counter() > speech.delivery.last_retry_s
        # The better of two takes can only be the result if both are kept.
        if self._stopped or is_last or not (speech.delivery.keep or self.chunks is None):
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
            self.fail(output.error)
            return
        chunk = output.chunk
        if chunk is not None:
            self.speech.put(chunk)
            if self.status is not Status.RUNNING:
                self.signal.set()
        if output.ends_piece:
            self._note_piece(is_last=chunk is not None and chunk.last)

    def _note_piece(self, is_last: bool) -> None:
        """Note that a streamed piece has been delivered to its end."""
        piece = next(one for one in self.parts.pieces if one.take is None)
        is_cut = is_last and self.chunks is not None and self.chunks.course == CUT
        if is_cut:
            piece.ended = CAP
        self._judge(piece)
        if not is_last:
            return
        if is_cut:
            self._leave_out(CAP)
        self._end_take()
        self.signal.set()

    def _leave_out(self, ended: str) -> None:
        for piece in self.parts.pieces:
            if piece.take is None:
                piece.frames.cut(piece.decoded)
                piece.ended = ended
                piece.take = Take(*piece.end_take(), ended)

    # The end

    def fail(self, error: Exception) -> None:
        """End the line with an error, unless it has ended."""
        if self._stopped or (self.chunks is not None and self.chunks.ended):
            return
        name = self.speech.line.voice.name
        self._error = of_voice(error, name) if isinstance(error, NotFinite) else error
        self._stop("failed")
        self.signal.set()

    def _stop(self, ended: str) -> None:
        self._stopped = self._stopped or ended
        self.suspended.clear()
        self.close_text()
        self._feed = None
        self.ready.clear()
        if self.chunks is not None:
            self.chunks.cancel()

    def close_text(self) -> None:
        if self._feed is not None:
            self._feed.stop()
        self.text.close()

    def outcome(self, error: BaseException | None = None) -> Outcome:
        """Return how it ends: with its speech so far, or with an error. Its text is read no more."""
        self.close_text()
        if error is not None:
            return Outcome(error=error)
        try:
            return self._outcome()
        except Exception as raised:  # of any kind: it is this line's, and its reader gets it
            log.exception("a line could not be ended: its reader gets the error")
            return Outcome(error=raised)

    def _outcome(self) -> Outcome:
        speech = self.speech
        if self._error not in (None, self.text.error) and not speech.progress.done:
            return Outcome(error=self._error)
        if not self.take:
            report = LineReport(speech.line.name, self.text.text, 0, 0.0, "cancelled", 0)
            return Outcome(Spoken(NO_SAMPLES, self._rate, report), self._error)
        parts, keep = self.parts, speech.delivery.keep
        is_complete = self.chunks is None and not self._stopped
        if keep or is_complete:
            if self._stopped:
                self._leave_out(self._stopped)
            spoken = assemble(parts, self.shared.describe(), self._stopped)
        else:
            takes = [piece.take for piece in parts.pieces if piece.take is not None]
            frames, samples = (0, 0) if self.chunks is None else (self.chunks.frames, self.chunks.joined.taken)
            report = report_of(parts, takes, frames, samples / self._rate, self._stopped)
            spoken = Spoken(NO_SAMPLES, self._rate, report)
        if keep:
            warn_of(spoken.report)
        if is_complete and (speech.is_streamed or not keep):
            # Streaming was asked for too late, or the audio is wanted only at the end.
            speech.put(Chunk(NO_CODES, spoken.waveform, 0, True))
        return Outcome(spoken, self._error, parts.text_tokens)
