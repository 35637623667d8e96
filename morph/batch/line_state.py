"""One line of a running batch: its pieces, from prompts to chunks or to offline samples."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

import numpy as np

from ..decode.decoded import BROKEN, Decoded
from ..decode.request import LineRequest
from ..model.finite import NotFinite, not_finite, of_voice
from ..options import END_AT_ONCE, FRAME_RATE
from ..speech.joined import assemble, note_of, warn_of
from ..speech.lines import LineReport, Spoken
from ..speech.piece import Piece
from ..speech.pieces import LinePieces, expected_of, text_as_spoken
from ..speech.takes import CAP, WRONG, Take
from ..speech.text_feed import TextFeed
from ..speech.token_feed import TokenFeed
from ..speech.wrong_words import follow_words
from ..voice.prompt import PromptBuilder
from .codec.line import TurnLine
from .codec.line_chunks import NO_CODES, LineChunks
from .codec.pacing import ChunkSizes, Speed
from .codec.whole import WholeCodec
from .queue import Waiting
from .speech import Chunk, Outcome
from .standing import TOO_LATE, Standing

log = logging.getLogger(__name__)

PIECES_AHEAD = 4  # of a line: faster text is not read beyond them
SHORT = 400  # characters; a shorter text is cut at once


@dataclass(frozen=True)
class Shared:
    """What the lines of a running batch have in common."""

    builder: PromptBuilder
    speed: Speed
    whole: WholeCodec
    describe: Callable[[], str]
    texts: Executor  # writes out figures


@dataclass
class Sent:
    """What was delivered so far, and why delivery stopped."""

    frames: int = 0
    samples: int = 0
    # Of each delivered piece: how it ended, and a note on its wrong words.
    ends: list[tuple[str, str]] = field(default_factory=list)
    stopped: str | None = None  # one of ``takes.STOPPED``, if the line is over before its end
    error: BaseException | None = None

    def note(self, take: Take) -> None:
        self.ends.append((take.ended, take.wrong))


class Takes:
    """The takes of one line: ``retries`` of pieces that went wrong, and the pieces in work."""

    def __init__(self, retries: int):
        self.retries = retries
        self.number = 1
        self.given = 0  # pieces that have had a row, or are queued for one
        self.decoding = 0  # those of them that have not ended
        self.in_codec = 0  # offline pieces in the codec
        self.coded = 0  # frames of the pieces that have ended
        self.again: list[Piece] = []  # to retry, or queued for a row when a turn was over


class LineState(TurnLine):
    """The decoding of one line. Only the batch's thread calls it, holding the model.

    Of a streamed line at most one piece has a row, so that a long text takes no row from others; of an
    offline line, all may. Faulty pieces are retried once all pieces have a take.
    """

    def __init__(self, number: int, waiting: Waiting, shared: Shared):
        self.waiting, self.speech, self._shared = waiting, waiting.speech, shared
        line, options = self.speech.line, self.speech.options
        self.parts = LinePieces.open(shared.builder, line, options)
        sizes = ChunkSizes(options.chunk_frames, shared.speed, self.speech.delivery.held_s)
        rate, most = self.parts.model.sample_rate, self.parts.sampling.line_frames
        chunks = LineChunks(sizes, rate, options, most, self.parts.text_of)
        super().__init__(number, chunks, line.voice.ref_codes)
        self.takes = Takes(options.retries if self.speech.delivery.may_retry else 0)
        self.is_live = waiting.is_live
        self.wave = 0  # equal for lines admitted together
        self._sent, self._standing = Sent(), Standing()
        self._text = self._open_text()
        # Kept even if all text comes before the line has a row: the prompt has its first token only.
        self._tokens = self._text if isinstance(self._text, TokenFeed) else None
        self._begin()

    def _open_text(self) -> TextFeed | None:
        """Return the source of pieces; None to add all at once, which is quick for a short text."""
        line, reader = self.speech.line, self.waiting.reader
        if reader is None and (not self.is_live or self._is_short(str(line.text))):
            return None
        feed = TokenFeed if reader is not None and line.layout == "token" else TextFeed
        return feed(self.parts, self._shared.texts, self.speech.bell.set, reader)

    def _begin(self) -> None:
        if self._text is None:
            self.parts.cut()
            self.speech.progress.pieces = len(self.parts.pieces)
            self.speech.progress.expected = self.parts.expected
            if self.is_live:
                self._add_pieces(0)
                self._complete()
            return
        self.follow()
        # A last piece holds nothing back for a crossfade.
        if self._text is not None and self._text.is_read:
            self.follow(ahead=2)

    def _is_short(self, text: str) -> bool:
        limit = min(self.parts.limit or SHORT, SHORT)
        return len(text) <= limit and self.parts.normalizer.is_quick(text, self.speech.line.language)

    # State that the batch reads

    @property
    def ended(self) -> bool:
        if self._sent.stopped == "cancelled":
            return True
        return self.chunks.ended if self.is_live else bool(self._sent.stopped) or self._is_complete

    @property
    def is_done(self) -> bool:
        return self.ended and not (self.is_busy or self.takes.again)

    @property
    def is_busy(self) -> bool:
        return bool(self.takes.decoding or self.takes.in_codec)

    @property
    def may_ask(self) -> bool:
        """Whether it may have ended, or want a row: not while streamed and decoding, or offline and in work."""
        takes = self.takes  # no other properties: this runs for every line before every frame
        if self.is_live:
            return not takes.decoding
        in_work = takes.decoding or takes.in_codec
        return not in_work or bool(takes.again) or takes.given < len(self.parts.pieces)

    @property
    def _is_complete(self) -> bool:
        return all(piece.take is not None for piece in self.parts.pieces)

    @property
    def is_untouched(self) -> bool:
        """Whether it can be spoken from its beginning: nothing was delivered, and its text is still there."""
        return not self.speech.has_begun and isinstance(self.speech.line.text, str)

    @property
    def is_followed(self) -> bool:
        return self._text is not None or self.speech.is_cancelled

    @property
    def may_read(self) -> bool:
        """Whether text can be read now, or as soon as the speech is less far behind."""
        if (text := self._text) is None or text.done:
            return False
        return text.has_news if text.is_late else not self._is_ahead(text, None)

    @property
    def wants_rows(self) -> bool:
        if self.is_busy or self.takes.again:
            return True
        goes_on = not (self.ended or self._is_at_limit)
        return goes_on and (self._text is not None or self._waiting > 0)

    @property
    def is_made(self) -> bool:
        return not self.wants_rows

    @property
    def lacks_text(self) -> bool:
        """See ``Parked``. The text has been polled."""
        text = self._text
        if text is None or not text.is_late:
            return False
        return not (self.is_busy or self.takes.again or self._waiting or text.done or text.has_news)

    @property
    def _is_at_limit(self) -> bool:
        most = self.parts.sampling.line_frames
        return self.is_live and most is not None and self.takes.coded >= most

    @property
    def _waiting(self) -> int:
        return len(self.parts.pieces) - self.takes.given

    def hear(self) -> bool:
        """Switch a line to streaming unless decoding has started; return whether it switched."""
        made = any(piece.take is not None for piece in self.parts.pieces)
        if self.is_live or made or self.takes.in_codec or self.takes.number > 1:
            return False
        self.is_live = True
        self._add_pieces(0)
        self._complete()
        return True

    # Text and pieces

    def follow(self, ahead: int | None = None) -> None:
        """Read new text, up to ``ahead`` pieces, and notice that the reader has left."""
        if self.speech.is_cancelled and not self.is_done:
            self._cancel()
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

    def _is_ahead(self, text: TextFeed, ahead: int | None) -> bool:
        if not text.is_late:
            return self._waiting >= (ahead or 1)
        is_ahead = self._tokens is not None and self._tokens.is_ahead
        return is_ahead or self._waiting >= PIECES_AHEAD

    def _cancel(self) -> None:
        self._sent.stopped = self._sent.stopped or "cancelled"
        self.takes.again.clear()
        self.chunks.cancel()
        self.stop_text()

    def stop_text(self) -> None:
        if self._text is not None:
            self._text.stop()

    def _end_text(self, text: TextFeed) -> None:
        self._text = None
        if text.error is not None and self._sent.stopped is None:
            self._sent.stopped, self._sent.error = "failed", text.error
        self._complete()

    def _complete(self) -> None:
        after_s = 0.0 if self._sent.stopped else sum(piece.after_s for piece in self.parts.pieces)
        samples, was_ended = round(after_s * self.parts.model.sample_rate), self.chunks.ended
        chunk = self.chunks.complete(time.perf_counter(), samples)
        if chunk is not None and (self._sent.error is None or self.speech.has_begun):
            self.put(chunk)
        if self.chunks.ended and not was_ended:
            self._end_take()

    def _add_pieces(self, begin: int) -> None:
        for piece in self.parts.pieces[begin:]:
            piece.silence = round(piece.pause_s * self.parts.model.sample_rate)
            self.chunks.add_piece(piece)
        progress = self.speech.progress
        chars = len(str(self.speech.line.text)) if self.waiting.reader is None else 0
        progress.expected = max(progress.expected, self.parts.expected)
        progress.pieces = max(len(self.parts.pieces), chars // (self.parts.limit or SHORT))

    def next_requests(self) -> Iterator[tuple[Piece, LineRequest]]:
        while self.takes.again:
            yield self._request(self.takes.again.pop(0))
        if self.ended or self._is_at_limit:
            return
        while self._waiting and not (self.is_live and self.is_busy):
            piece = self.parts.pieces[self.takes.given]
            self.takes.given += 1
            yield self._request(piece)

    def _request(self, piece: Piece) -> tuple[Piece, LineRequest]:
        takes, is_first = self.takes, self.takes.number == 1
        request = self.parts.request(piece, takes.number)
        takes.decoding += 1
        text = self._tokens if is_first else None
        if text is not None:
            text.follow(request.guard)
        elif self.is_live and (most := self.parts.sampling.line_frames) is not None and is_first:
            request.guard.max_frames = min(request.guard.max_frames, most - takes.coded)
        words = None
        if self.speech.options.wrong_words == END_AT_ONCE and text is None:
            words = follow_words(self.parts.model, piece.text)
        return piece, replace(request, text=text, words=words, is_streamed=self.is_live and is_first)

    @property
    def is_stopped(self) -> bool:
        """Whether its pieces are to leave their rows."""
        text_failed = self._tokens is not None and self.takes.number == 1 and self._tokens.error is not None
        return (
            self.speech.is_cancelled or text_failed or (not self.is_live and self._sent.stopped is not None)
        )

    def leave_row(self, piece: Piece, ended: str) -> None:
        """Note that a piece has left its row, or the queue for one."""
        takes = self.takes
        piece.ended = ended
        takes.decoding -= 1
        takes.coded += len(piece.frames)
        self.speech.progress.end_take(piece.frames)
        self.is_resting = False
        if self._tokens is not None and takes.number == 1:
            self._tokens.stop()  # the speech is over, whether or not the text is
        if ended == "cancelled" and self.speech.is_cancelled:
            # Now: before the next ``follow`` the piece would be sent as if it had ended by itself.
            self._cancel()
        if ended == BROKEN and takes.number == 1:  # otherwise there is an earlier take
            self.break_off(not_finite(self.parts.model.dtype))
        if (takes.number == 1 and self.is_live) or self._sent.stopped or ended in ("cancelled", BROKEN):
            return
        takes.in_codec += 1
        self._shared.whole.add(self, piece)
        if not (takes.decoding or takes.again or self._waiting) and self._text is None:
            self.speech.note_coded(True)

    def withdraw(self, piece: Piece) -> None:
        self.takes.decoding -= 1
        self.takes.again.append(piece)

    # Takes

    def take_samples(self, piece: Piece, wave: np.ndarray) -> None:
        self.takes.in_codec -= 1
        if not self._sent.stopped:
            self._judge(piece, piece.end_take()[0], wave)
            if self._is_complete and not self.is_busy:
                self._end_take()

    def lose_samples(self, error: NotFinite) -> None:
        """Fail the line, unless there is an earlier take: samples of a piece are not finite."""
        self.takes.in_codec -= 1
        if self.takes.number == 1:
            self.break_off(error)

    def _judge(self, piece: Piece, decoded: Decoded, wave: np.ndarray) -> None:
        number = self.takes.number
        take = self.parts.judge(piece, decoded, wave, number)
        if piece.take is not None and not take.better_than(piece.take):
            take = replace(piece.take, number=number)
        piece.take = take

    def _end_take(self) -> None:
        is_late = time.perf_counter() > self.speech.delivery.last_retry_s
        if self._sent.stopped or is_late or self.takes.number > self.takes.retries:
            return
        if self._tokens is not None:
            self._tokens.complete()
        self._speak_again(self.parts.wrong())

    def _speak_again(self, again: list[Piece]) -> None:
        self.takes.again = again
        self.takes.number += 1
        if again:
            self.speech.note_coded(False)
        progress = self.speech.progress
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

    @property
    def deadline(self) -> float:
        """See ``Parked``."""
        return math.inf if self.is_full else self.chunks.sizes.empty_at

    def break_off(self, error: NotFinite) -> None:
        if self.is_done or self._sent.stopped:
            return
        self._sent.stopped, self._sent.error = "failed", of_voice(error, self.speech.line.voice.name)
        self.stop_text()
        self._text = None
        self.takes.again.clear()
        self.chunks.cancel()

    def put(self, chunk: Chunk) -> None:
        self._sent.frames += len(chunk.codes)
        self._sent.samples += len(chunk.samples)
        self.speech.put(chunk)

    def note_piece(self) -> None:
        piece = self.parts.pieces[len(self._sent.ends)]
        decoded, wave = piece.end_take()
        if self.chunks.is_cut:
            decoded = replace(decoded, ended=CAP)
        if self.speech.delivery.keep:
            self._judge(piece, decoded, wave)
        else:
            heard = self.parts.judge(piece, decoded, wave)
            self._sent.note(heard)
            return
        assert piece.take is not None
        self._sent.note(piece.take)
        if self.chunks.is_cut:
            self._leave_out(CAP)
        if self.chunks.ended:
            self._end_take()

    def _leave_out(self, ended: str) -> None:
        for piece in self.parts.pieces:
            if piece.take is None:
                piece.drop_waiting()
                made, wave = piece.end_take()
                piece.take = Take(replace(made, ended=ended), wave, ended)

    # The end

    def finish(self) -> None:
        try:
            self._finish()
        except Exception as error:  # of any kind: it is this line's, and its reader gets it
            log.exception("a line could not be ended: its reader gets the error")
            self.fail(error)

    def _finish(self) -> None:
        self.waiting.close()
        keep, is_complete = self.speech.delivery.keep, not (self.is_live or self._sent.stopped)
        spoken = self._spoken() if keep or is_complete else None
        report = self._report() if spoken is None else spoken.report
        if keep:
            warn_of(report)
        if spoken is not None and is_complete and (self.speech.is_heard or not keep):
            # Streaming was asked for too late, or the audio is wanted only at the end.
            self.speech.put(Chunk(NO_CODES, spoken.waveform, 0, True))
        self.speech.finish(
            Outcome(
                report,
                spoken if keep else None,
                self._sent.error,
                self.parts.text_tokens,
                () if spoken is None else spoken.spans,
            )
        )

    def _spoken(self) -> Spoken:
        if self._sent.stopped:
            self._leave_out(self._sent.stopped)
        return assemble(self.parts, self._shared.describe(), self._sent.stopped)

    def stand(self, is_wanted: bool) -> None:
        """End a line that stalls on late text for too long while others want its row (``is_wanted``)."""
        if self._tokens is None or self._tokens.done:
            return
        stands = is_wanted and self.is_starved
        self._standing.note(stands)
        if stands and self._standing.exceeds(self._sent.frames / FRAME_RATE):
            self._tokens.stop(ValueError(TOO_LATE))

    def resume(self, number: int, shared: Shared) -> LineState:
        self.number, self._shared = number, shared
        self.is_resting = False
        return self

    def abandon(self) -> None:
        self._cancel()
        self.finish()

    def fail(self, error: BaseException) -> None:
        self.stop_text()
        self.waiting.fail(Outcome(error=error))

    def _report(self) -> LineReport:
        parts, line = self.parts, self.parts.line
        return LineReport(
            self.speech.line.name,
            str(line.text),
            self._sent.frames,
            self._sent.samples / parts.model.sample_rate,
            ended=self._sent.stopped or next((end for end, _ in self._sent.ends if end in WRONG), "eos"),
            pieces=len(parts.pieces),
            spoken=text_as_spoken(line, parts.said),
            notes=(*parts.said.notes, *(note_of(wrong) for _, wrong in self._sent.ends if wrong)),
        )
