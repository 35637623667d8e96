"""The frames of a stream: codes and text arrive between frames, and the chunks that are due are decoded there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..decode.decoded import BROKEN, Decoded
from ..decode.request import LineRequest
from ..model.finite import NotFinite, of_voice
from ..options import FRAME_RATE
from ..speech.late_text import LateLine, TokenLine
from ..speech.lines import Piece, Rendering, Spoken
from ..speech.takes import CAP, WRONG, Take, judge_end
from ..voice.voice import Voice
from .channel import Channel, Chunk
from .codec_turns import FEW, CodecTurns
from .line_chunks import LineChunks, PieceFrames, concatenate
from .pacing import ChunkSizes, Speed
from .stream_queue import StreamQueue
from .turn_line import TurnLine

# Of a line: 4 s. Beyond them codes wait, until the reader has taken a chunk or no frame is left.
QUEUED_FRAMES = 50
PIECES_AHEAD = 4  # of a line: text that comes faster than it is spoken is not read beyond them
READERS_S = 5e-5  # for readers to take the first chunk of a line
WAIT_S = 0.1  # between two looks at whether ``on_frame`` cancels, while no text comes


@dataclass(frozen=True)
class Plan:
    """How lines are decoded: at most ``rows`` of them together; ``in_turn``: as they are heard one after another."""

    rows: int
    in_turn: bool = False

    def key(self, piece: Piece, number: int) -> tuple[int, ...]:
        """Return the place of a line's piece in the order of decoding; ``number`` counts the line's pieces from 0.

        Lines take rows in their order, and a line's pieces follow each other. Where no more lines than rows are left,
        the second pieces follow after the first pieces of all of them. Lines in turn are decoded one after another.
        """
        return (piece.line, number) if self.in_turn else (piece.line // self.rows, number, piece.line)


class StreamLine(TurnLine):
    """A line of a stream.

    Args:
        chunks: of the line; their index names it in the codec.
        voice: that speaks it.
        channel: takes its chunks.
        text: what gives its text, if that comes in parts.
        stopped: see ``StreamDecoding``; it notes itself there if it fails.
    """

    def __init__(
        self,
        chunks: LineChunks,
        voice: Voice,
        channel: Channel,
        text: LateLine | None,
        stopped: dict[int, str],
    ):
        super().__init__(chunks.index, chunks, voice.ref_codes)
        self.text, self._channel, self._voice, self._stopped = text, channel, voice.name, stopped
        self.is_broken = False  # whether its numbers are not finite

    @property
    def may_starve(self) -> bool:
        """See ``TurnLine``."""
        return self.text is not None

    @property
    def is_starved(self) -> bool:
        """See ``TurnLine``."""
        return self.text is not None and self.text.starved

    @property
    def is_full(self) -> bool:
        """See ``TurnLine``."""
        return self._channel.queued(self.number) >= QUEUED_FRAMES

    def put(self, chunk: Chunk) -> None:
        """See ``TurnLine``. Raises StreamClosed if the readers have left."""
        self._channel.check_open()
        self._channel.put(chunk)

    def break_off(self, error: NotFinite) -> None:
        """See ``TurnLine``."""
        if self.ended:
            return
        self.is_broken, self._stopped[self.number] = True, "failed"
        if self.text is not None:
            self.text.stop()
        self.chunks.cancel()
        self._channel.break_off(self.number, of_voice(error, self._voice))

    def note_piece(self) -> None:
        """See ``TurnLine``: nothing is kept for it."""


class StreamDecoding:
    """Decodes the lines of a stream to their ends, once.

    Args:
        rendering: its lines; its engine makes codes and samples.
        channel: takes the chunks.
        plan: how many lines at a time, and in which order.
        texts: the lines whose text comes in parts.
    """

    def __init__(
        self,
        rendering: Rendering,
        channel: Channel,
        plan: Plan,
        texts: Sequence[LateLine],
    ):
        self._rendering, self._channel, self._plan = rendering, channel, plan
        self._model = rendering.synthesizer.model
        self._speed = Speed(1 / FRAME_RATE)
        open_codec = partial(
            rendering.synthesizer.engine.open_codec, self._model, rendering.choice, plan.rows
        )
        self._turns = CodecTurns(open_codec, self._model.codec.dtype, self._speed)
        self._most = rendering.sampling.line_frames
        self.stopped: dict[int, str] = {}  # lines that were cancelled, or that failed or whose text did
        self._pieces: list[PieceFrames] = []  # as the rendering's
        self._texts = {text.index: text for text in texts}
        self._lines = [self._open_line(index) for index in range(len(rendering.lines))]
        self._open = dict(self._texts)  # those that may give more pieces
        self._queue = StreamQueue(self._follow, self._rest, bool(texts), self._turns.settle)

    def _open_line(self, index: int) -> StreamLine:
        options, voice = self._rendering.options, self._rendering.lines[index].voice
        sizes = ChunkSizes(options.chunk_frames, self._speed)
        chunks = LineChunks(index, sizes, self._model.sample_rate, options)
        chunks.limit(self._most)
        return StreamLine(chunks, voice, self._channel, self._texts.get(index), self.stopped)

    def run(self) -> None:
        """Decode all lines to their ends.

        Raises:
            StreamClosed: within one frame after the readers have left.
        """
        rendering = self._rendering
        self._add_pieces()
        for line in self._lines:
            if line.text is None:
                line.chunks.complete(time.perf_counter(), self._silence_after(line.number))
        options = rendering.options
        if options.batch_size != self._plan.rows:
            options = replace(options, batch_size=self._plan.rows)
        rendering.synthesizer.engine.decode(
            self._model, self._queue, options, self._on_frame, rendering.choice
        )
        # No frame is left, so the model is needed for the waiting codes only: readers are not waited for.
        self._turns.send(self._lines, whole=True)

    def takes(self) -> list[Take]:
        """Return every piece's take, judged as ``render_lines`` judges it; of stopped lines, what was made."""
        return [self._take(index) for index in range(len(self._rendering.pieces))]

    def _take(self, index: int) -> Take:
        piece, made = self._rendering.pieces[index], self._pieces[index]
        made.drop_waiting()  # of a line that was stopped; there are no others
        decoded, waveform = Decoded(made.codes.part(), str(made.ended)), concatenate(made.waves)
        if (stopped := self.stopped.get(piece.line)) is not None:
            return Take(decoded, waveform, stopped)
        if made.ended == "cancelled":  # at the line's limit
            return Take(decoded, waveform, CAP)
        return Take(decoded, waveform, judge_end(piece.text, decoded, waveform, self._model.sample_rate))

    def finished(self) -> dict[int, Spoken]:
        """Return the lines that have been decoded to their ends and went well, however the stream has ended.

        Lines whose text came in parts are not among them.
        """
        found = {}
        for line in range(len(self._lines)):
            own = [index for index, piece in enumerate(self._rendering.pieces) if piece.line == line]
            if line in self._texts or line in self.stopped or not all(map(self._is_decoded, own)):
                continue
            takes = [self._take(index) for index in own]
            if all(take.ended not in WRONG for take in takes):
                [found[line]] = self._rendering.only([line]).assemble(takes)
        return found

    def _is_decoded(self, index: int) -> bool:
        made = self._pieces[index] if index < len(self._pieces) else PieceFrames()
        return made.ended is not None and not made.waiting

    # What changes between frames: cancelled lines, text that has come

    def _follow(self) -> None:
        """Follow what readers and the sources of texts have done since the last frame."""
        self._drop_cancelled()
        for text in list(self._open.values()):
            if self._lines[text.index].chunks.is_cut:
                text.stop()
            enough = text.is_ahead or self._queue.count(text.index) >= PIECES_AHEAD
            if not text.done and not enough:
                text.poll()
                self._add_pieces()
            if text.done:
                self._end_text(text)
        self._queue.drop_cancelled()
        self._queue.open = bool(self._open)

    def _add_pieces(self) -> None:
        """Queue the rendering's new pieces."""
        pieces = self._rendering.pieces
        for index in range(len(self._pieces), len(pieces)):
            piece = pieces[index]
            made = PieceFrames(round(piece.pause_s * self._model.sample_rate))
            number = sum(one.line == piece.line for one in pieces[:index])
            self._pieces.append(made)
            self._lines[piece.line].chunks.add_piece(made)
            self._queue.add(self._plan.key(piece, number), piece.line, self._request(index))

    def _silence_after(self, line: int) -> int:
        """Return the samples of silence at a line's end; all its pieces are known."""
        return round(
            sum(piece.after_s for piece in self._rendering.pieces if piece.line == line)
            * self._model.sample_rate
        )

    def _request(self, index: int) -> LineRequest:
        line, [request] = self._rendering.pieces[index].line, self._rendering.requests([index], 1)
        text = self._texts.get(line)
        if isinstance(text, TokenLine):
            text.follow(request.guard)
        return replace(
            request,
            on_codes=self._pieces[index].codes.append,
            on_end=self._ender(index),
            on_broken=partial(self._break_off, index),
            on_launch=partial(self._turns.begin_ahead, self._lines[line], self._pieces[index]),
            cancelled=self._canceller(index),
            text=text if isinstance(text, TokenLine) else None,
        )

    def _canceller(self, index: int) -> Callable[[], bool]:
        line = self._rendering.pieces[index].line
        text = self._texts.get(line)
        if isinstance(text, TokenLine):
            return lambda: text.error is not None or self._is_over(line)
        if (most := self._most) is None:
            return lambda: self._is_over(line)
        pieces = zip(self._rendering.pieces[: index + 1], self._pieces, strict=False)
        own = [made for piece, made in pieces if piece.line == line]
        return lambda: self._is_over(line) or sum(len(made.codes) for made in own) >= most

    def _is_over(self, line: int) -> bool:
        """Return whether no frame of a line is wanted any more."""
        return self._lines[line].is_broken or self._channel.is_cancelled(line)

    def _break_off(self, index: int, error: NotFinite) -> None:
        """End the line of a piece whose numbers are not finite."""
        self._pieces[index].ended = BROKEN
        line = self._lines[self._rendering.pieces[index].line]
        line.break_off(error)
        self._turns.end(line)

    def _ender(self, index: int) -> Callable[[str], None]:
        def end(ended: str) -> None:
            self._pieces[index].ended = ended
            self._lines[self._rendering.pieces[index].line].wake()
            text = self._texts.get(self._rendering.pieces[index].line)
            if isinstance(text, TokenLine):
                text.stop()  # the speech is over, whether or not the text is
            speaking = self._speaking
            if len(speaking) <= FEW:  # the next frame need not be waited for
                self._turns.send_ready(speaking)

        return end

    def _end_text(self, text: LateLine) -> None:
        """No piece of a line will come any more."""
        del self._open[text.index]
        if self._lines[text.index].is_broken:
            return
        if text.error is not None:
            self.stopped.setdefault(text.index, "failed")
        silence = 0 if text.error is not None else self._silence_after(text.index)
        chunk = self._lines[text.index].chunks.complete(time.perf_counter(), silence)
        if text.error is not None:  # before the last chunk: behind that, a reader looks no more
            self._channel.fail(text.index, text.error)
        if chunk is not None:
            self._channel.put(chunk)

    def _drop_cancelled(self) -> None:
        """End the lines that their readers have cancelled."""
        for line in self._lines:
            if self._channel.is_cancelled(line.number) and line.number not in self.stopped:
                self.stopped[line.number] = "cancelled"
                line.chunks.cancel()
                self._turns.end(line)
                if line.text is not None:
                    line.text.stop()

    def _rest(self) -> None:
        """No line can make a frame: send what has been made, and wait for a reader or for text."""
        self._turns.send(self._lines, hurry=True)
        self._speed.rest()
        self._channel.bell.wait(WAIT_S)
        self._rendering.progress.add(0)

    # From codes to chunks

    @property
    def _speaking(self) -> list[StreamLine]:
        """The lines that have codes, and have not ended."""
        return [line for line in self._lines if line.chunks.has_codes]

    def _on_frame(self, lines: int) -> None:
        """Between two frames: note the time, let the codec work, and let ``on_frame`` cancel."""
        self._speed.end_frame()
        self._rendering.progress.add(lines)
        speaking = self._speaking
        new = [line for line in speaking if not line.chunks.has_begun]
        self._turns.turn(speaking)
        if any(line.chunks.has_begun for line in new):
            time.sleep(
                READERS_S
            )  # without a pause a reader waits up to 5 ms for Python's lock (sys.getswitchinterval)
