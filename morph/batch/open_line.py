"""One line of a running batch: its pieces one after another, from prompts to chunks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ..decode.decoded import BROKEN, Decoded
from ..decode.request import LineRequest
from ..model.finite import NotFinite, of_voice
from ..options import FRAME_RATE
from ..speech.late_text import LateLine, SentenceLine, TokenLine
from ..speech.lines import LineReport, Rendering, text_as_spoken
from ..speech.progress import Progress
from ..speech.takes import CAP, WRONG, judge_end
from ..speech.whole_text import WholeLine
from ..synthesizer import Synthesizer
from .channel import Chunk
from .line_chunks import LineChunks, PieceFrames, concatenate
from .pacing import ChunkSizes, Speed
from .standing import TOO_LATE, Standing
from .stream_decoding import PIECES_AHEAD
from .turn_line import TurnLine
from .utterance import Utterance


class OpenLine(TurnLine):
    """The decoding of one utterance. Only the service's thread calls it, with the model at hand.

    At most one of its pieces has a row, so that a long text takes no row from others. Nothing of a piece is kept
    behind its end but how it went.

    Args:
        number: names the line in the codec.
        utterance: takes the chunks; its bell is rung when late text has come.
        synthesizer: the checkpoint and its engine.
        speed: as measured, shared by all lines.

    """

    def __init__(self, number: int, utterance: Utterance, synthesizer: Synthesizer, speed: Speed):
        self.utterance = utterance
        line, options = utterance.line, utterance.options
        self._rendering = Rendering.prepare(synthesizer, [replace(line, text=())], options, Progress())
        self._rate = synthesizer.model.sample_rate
        chunks = LineChunks(0, ChunkSizes(options.chunk_frames, speed), self._rate, options)
        self._most = self._rendering.sampling.line_frames
        chunks.limit(self._most)
        super().__init__(number, chunks, line.voice.ref_codes)
        self._frames: list[PieceFrames] = []  # parallel to the rendering's pieces
        self._given = 0  # pieces that have had a row, or wait for one
        self._coded = 0  # frames that have codes, of the pieces before the current one
        self._ends: list[str] = []  # of the pieces that were decoded completely
        self._frame_count = self._sample_count = 0
        self.speaking = False  # whether a piece has a row, or waits for one
        self._stopped: str | None = None
        self._error: BaseException | None = None
        self._text: LateLine | WholeLine | None = self._open_text()
        # Also when all of the text has come before the line has a row: the prompt has its first token only.
        self._tokens = self._text if isinstance(self._text, TokenLine) else None
        self._standing = Standing()
        self.follow()
        # A last piece holds nothing back for a crossfade.
        if isinstance(self._text, WholeLine) and self._text.is_read:
            self.follow(ahead=2)

    def _open_text(self) -> LateLine | WholeLine:
        line = self.utterance.line
        if isinstance(line.text, str):
            return WholeLine(self._rendering, line, self.utterance.bell.set)
        self._rendering.lines[0] = line
        assert self.utterance.reader is not None
        kinds = {"sentence": SentenceLine, "token": TokenLine}
        return kinds[line.layout](self._rendering, 0, self.utterance.reader)

    @property
    def ended(self) -> bool:
        """Whether everything of the line has been sent, or it was stopped."""
        return self._stopped == "cancelled" or self.chunks.ended

    @property
    def is_followed(self) -> bool:
        """Whether ``follow`` has something to do."""
        return self._text is not None or self.utterance.is_closed

    @property
    def wants_rows(self) -> bool:
        """Whether a piece has a row or will need one."""
        goes_on = not (self.ended or self._is_at_limit) and (self._text is not None or self._waiting > 0)
        return self.speaking or goes_on

    @property
    def is_made(self) -> bool:
        """See ``Parked``."""
        return not self.wants_rows

    @property
    def lacks_text(self) -> bool:
        """See ``Parked``. The text has been polled."""
        text = self._text
        return isinstance(text, LateLine) and not (
            self.speaking or self._waiting or text.done or text.has_news
        )

    @property
    def _is_at_limit(self) -> bool:
        """Whether the line has as many frames as it may have."""
        return self._most is not None and self._coded >= self._most

    @property
    def _waiting(self) -> int:
        return len(self._frames) - self._given

    # Text and pieces

    def follow(self, ahead: int | None = None) -> None:
        """Take the text that has come, up to ``ahead`` pieces, and note that the reader has left."""
        if self.utterance.is_closed and not self.ended:
            self._cancel()
        if (text := self._text) is None:
            return
        if self._is_at_limit:
            text.stop()
        if not text.done and not self._is_ahead(text, ahead):
            text.poll()
            self._add_pieces()
        if text.done:
            self._end_text(text)

    def _is_ahead(self, text: LateLine | WholeLine, ahead: int | None) -> bool:
        """Return whether there is text enough for now."""
        if isinstance(text, WholeLine):
            return self._waiting >= (ahead or 1)
        return text.is_ahead or self._waiting >= PIECES_AHEAD

    def _cancel(self) -> None:
        self._stopped = "cancelled"
        self.chunks.cancel()
        if self._text is not None:
            self._text.stop()

    def _end_text(self, text: LateLine | WholeLine) -> None:
        """No piece will come any more."""
        self._text = None
        if text.error is not None and self._stopped is None:
            self._stopped, self._error = "failed", text.error
        self._complete()

    def _complete(self) -> None:
        after_s = 0.0 if self._stopped else sum(piece.after_s for piece in self._rendering.pieces)
        if (chunk := self.chunks.complete(time.perf_counter(), round(after_s * self._rate))) is not None:
            self.put(chunk)

    def _add_pieces(self) -> None:
        for piece in self._rendering.pieces[len(self._frames) :]:
            self._frames.append(PieceFrames(round(piece.pause_s * self._rate)))
            self.chunks.add_piece(self._frames[-1])

    @property
    def piece(self) -> PieceFrames:
        """The piece that has a row, or had one last."""
        return self._frames[self._given - 1]

    def next_request(self) -> LineRequest | None:
        """Return the line's next piece, once the one before has ended."""
        if self.speaking or self.ended or self._is_at_limit or not self._waiting:
            return None
        index, self.speaking = self._given, True
        self._given += 1
        [request] = self._rendering.requests([index], 1)
        text = self._tokens
        if text is not None:
            text.follow(request.guard)
        elif self._most is not None:
            request.guard.max_frames = min(request.guard.max_frames, self._most - self._coded)

        def end(ended: str) -> None:
            self._frames[index].ended, self.speaking = ended, False
            self._coded += len(self._frames[index].codes)
            self.wake()
            if text is not None:
                text.stop()  # the speech is over, whether or not the text is

        def break_off(error: NotFinite) -> None:
            end(BROKEN)
            self.break_off(error)

        return replace(
            request,
            on_codes=self._frames[index].codes.append,
            on_end=end,
            on_broken=break_off,
            cancelled=self._canceller(text),
            text=text,
        )

    def _canceller(self, text: TokenLine | None) -> Callable[[], bool]:
        """Return what says whether the current piece is to end: it is asked for every line before every frame."""
        utterance = self.utterance
        if text is None:
            return lambda: utterance.is_closed
        return lambda: utterance.is_closed or text.error is not None

    # Codes and chunks

    @property
    def may_starve(self) -> bool:
        """See ``TurnLine``."""
        return isinstance(self._text, LateLine)

    @property
    def is_starved(self) -> bool:
        """See ``TurnLine``."""
        return self._text is not None and self._text.starved

    @property
    def is_full(self) -> bool:
        """See ``TurnLine``."""
        return self.utterance.is_full

    def break_off(self, error: NotFinite) -> None:
        """See ``TurnLine``."""
        if self.ended:
            return
        self._stopped, self._error = "failed", of_voice(error, self.utterance.line.voice.name)
        if self._text is not None:
            self._text.stop()
            self._text = None
        self.chunks.cancel()

    def put(self, chunk: Chunk) -> None:
        """See ``TurnLine``."""
        self._frame_count += chunk.frames
        self._sample_count += len(chunk.samples)
        self.utterance.put(chunk)

    def note_piece(self) -> None:
        """Note how the piece went that has just ended, and forget its codes and samples."""
        index = len(self._ends)
        made, piece = self._frames[index], self._rendering.pieces[index]
        ended = CAP if self.chunks.is_cut else str(made.ended)
        decoded, wave = Decoded(made.codes.part(), ended), concatenate(made.waves)
        self._ends.append(judge_end(piece.text, decoded, wave, self._rate))
        made.codes.cut(0)
        made.waves.clear()
        made.decoded = 0

    def finish(self) -> None:
        """Tell the reader that the line is over."""
        self.utterance.text_tokens = sum(prompt.text_tokens for prompt in self._rendering.prompts)
        self.utterance.finish(self._report(), self._error)

    def stand(self, is_wanted: bool) -> None:
        """Note whether the line's row ``is_wanted`` by others; end a line that keeps them waiting for too long."""
        if self._tokens is None or self._tokens.done:
            return
        stands = is_wanted and self.is_starved
        self._standing.note(stands)
        if stands and self._standing.exceeds(self._frame_count / FRAME_RATE):
            self._tokens.stop(ValueError(TOO_LATE))

    def resume(self, number: int) -> OpenLine:
        """Go on under another number, in another batch or later in the same one."""
        self.number = number
        self.wake()  # another batch counts its own turns
        return self

    def abandon(self) -> None:
        """See ``Parked``."""
        self._cancel()
        self.finish()

    def fail(self, error: BaseException) -> None:
        """End the line with an error of the engine."""
        if self._text is not None:
            self._text.stop()
        self.utterance.finish(None, error)

    def _report(self) -> LineReport:
        rendering = self._rendering
        line, text = rendering.lines[0], rendering.texts[0]
        return LineReport(
            self.utterance.line.name,
            str(line.text),
            self._frame_count,
            self._sample_count / self._rate,
            ended=self._stopped or next((end for end in self._ends if end in WRONG), "eos"),
            pieces=len(self._frames),
            spoken=text_as_spoken(line, text),
            notes=text.notes,
        )
