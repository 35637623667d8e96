"""The frames of a stream: codes and text arrive between frames, and the chunks that are due are decoded there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from ..decode.decoded import Decoded
from ..decode.request import LineRequest
from ..model.finite import check_samples
from ..options import FRAME_RATE
from ..waveform.stream import LineCodec
from .channel import Channel
from .late_text import LateLine, TokenLine
from .line_chunks import LineChunks, PieceFrames, concatenate, stack
from .lines import Piece, Rendering, Spoken
from .pacing import ChunkSizes, Speed
from .stream_queue import StreamQueue
from .takes import WRONG, Take, judge_end

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
        self._frame_began: float | None = None
        self._begun: set[int] = set()  # lines whose current piece has begun in the codec
        self._ahead_s = 0.0  # spent on the next chunk before its codes came
        self._pieces: list[PieceFrames] = []  # as the rendering's
        self._lines = [self._chunks_of(index) for index in range(len(rendering.lines))]
        self._texts = {text.index: text for text in texts}
        self._open = dict(self._texts)  # those that may give more pieces
        self._queue = StreamQueue(self._follow, self._rest, bool(texts))
        self.stopped: dict[int, str] = {}  # lines that were cancelled, or whose text failed

    def _chunks_of(self, index: int) -> LineChunks:
        options = self._rendering.options
        sizes = ChunkSizes(options.chunk_frames, self._speed)
        return LineChunks(index, sizes, self._model.sample_rate, options)

    def run(self) -> None:
        """Decode all lines to their ends.

        Raises:
            StreamClosed: within one frame after the readers have left.
        """
        rendering = self._rendering
        self._add_pieces()
        for line in self._lines:
            if line.index not in self._texts:
                line.complete(time.perf_counter(), self._silence_after(line.index))
        options = rendering.options
        if options.batch_size != self._plan.rows:
            options = replace(options, batch_size=self._plan.rows)
        rendering.synthesizer.engine.decode(
            self._model, self._queue, options, self._on_frame, rendering.choice
        )
        # No frame is left, so the model is needed for the waiting codes only: readers are not waited for.
        self._send(ahead=True)

    def takes(self) -> list[Take]:
        """Return every piece's take, judged as ``render_lines`` judges it; of stopped lines, what was made."""
        return [self._take(index) for index in range(len(self._rendering.pieces))]

    def _take(self, index: int) -> Take:
        piece, made = self._rendering.pieces[index], self._pieces[index]
        made.drop_waiting()  # of a line that was cancelled; there are no others
        decoded, waveform = Decoded(stack(made.codes), str(made.ended)), concatenate(made.waves)
        ended = self.stopped.get(piece.line) or judge_end(
            piece.text, decoded, waveform, self._model.sample_rate
        )
        return Take(decoded, waveform, ended)

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
                found[line] = self._rendering.only([line]).assemble(0, takes)
        return found

    def _is_decoded(self, index: int) -> bool:
        made = self._pieces[index] if index < len(self._pieces) else PieceFrames()
        return made.ended is not None and not made.waiting

    # What changes between frames: cancelled lines, text that has come

    def _follow(self) -> None:
        """Follow what readers and the sources of texts have done since the last frame."""
        self._drop_cancelled()
        for text in list(self._open.values()):
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
            self._lines[piece.line].add_piece(made)
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
            on_launch=lambda codes: self._begin_ahead(line, codes),
            cancelled=self._canceller(line),
            text=text if isinstance(text, TokenLine) else None,
        )

    def _canceller(self, line: int) -> Callable[[], bool]:
        text = self._texts.get(line)
        if isinstance(text, TokenLine):
            return lambda: text.error is not None or self._channel.is_cancelled(line)
        return lambda: self._channel.is_cancelled(line)

    def _ender(self, index: int) -> Callable[[str], None]:
        def end(ended: str) -> None:
            self._pieces[index].ended = ended
            text = self._texts.get(self._rendering.pieces[index].line)
            if isinstance(text, TokenLine):
                text.stop()  # the speech is over, whether or not the text is
            self._send()

        return end

    def _end_text(self, text: LateLine) -> None:
        """No piece of a line will come any more."""
        del self._open[text.index]
        if text.error is not None:
            self.stopped.setdefault(text.index, "failed")
        silence = 0 if text.error is not None else self._silence_after(text.index)
        chunk = self._lines[text.index].complete(time.perf_counter(), silence)
        if chunk is not None:
            self._channel.put(chunk)
        if text.error is not None:
            self._channel.fail(text.index, text.error)

    def _drop_cancelled(self) -> None:
        """End the lines that their readers have cancelled."""
        for line in self._lines:
            if self._channel.is_cancelled(line.index) and line.index not in self.stopped:
                self.stopped[line.index] = "cancelled"
                line.cancel()
                self._next_piece(line)
                if line.index in self._texts:
                    self._texts[line.index].stop()

    def _rest(self) -> None:
        """No line can make a frame: send what has been made, and wait for a reader or for text."""
        self._send(hurry=True)
        self._frame_began = None
        self._channel.bell.wait(WAIT_S)
        self._channel.bell.clear()
        self._rendering.progress.add(0)

    # From codes to chunks

    def _on_frame(self, lines: int) -> None:
        """Between two frames: note the time, decode what is due, and let ``on_frame`` cancel."""
        if self._frame_began is not None:
            self._speed.add_frame(time.perf_counter() - self._frame_began)
        self._rendering.progress.add(lines)
        self._send()
        self._frame_began = time.perf_counter()

    @cached_property
    def _codec(self) -> LineCodec:
        """Opened while the device makes the first frame, which takes longer."""
        rendering = self._rendering
        return rendering.synthesizer.engine.open_codec(self._model, rendering.choice, self._plan.rows)

    def _begin(self, index: int) -> None:
        """Begin a line's piece in the codec when the piece has a row: a state takes a few MB."""
        if index not in self._begun:
            self._codec.begin(index, self._rendering.lines[index].voice.ref_codes)
            self._begun.add(index)

    def _begin_ahead(self, index: int, codes: torch.Tensor | None) -> None:
        """Begin a line's piece in the codec, and its first chunk behind its first codes, if that is one frame."""
        if index in self._begun:
            return
        self._begin(index)
        if codes is None or self._lines[index].next_size != 1:
            return
        began = time.perf_counter()
        self._codec.begin_ahead(index, codes)
        self._ahead_s = time.perf_counter() - began
        if self._frame_began is not None:
            self._frame_began += self._ahead_s

    def _send(self, ahead: bool = False, hurry: bool = False) -> None:
        """Decode and queue the chunks that are due.

        Args:
            ahead: all of them, whether or not readers have taken theirs.
            hurry: smaller ones too: no other frames come soon.
        """
        while True:
            now = time.perf_counter()
            ready = [
                line for line in self._lines if ahead or self._channel.queued(line.index) < QUEUED_FRAMES
            ]
            due = {line.index: line.due(now, hurry or self._is_starved(line.index)) for line in ready}
            parts = {line.index: line.waiting(due[line.index]) for line in ready if due[line.index]}
            if parts:
                self._decode(parts)
            ended = [line for line in self._lines if line.piece_is_done]
            for line in ended:
                self._end_piece(line)
            if not parts and not ended:
                return

    def _is_starved(self, index: int) -> bool:
        text = self._texts.get(index)
        return text is not None and text.starved

    def _decode(self, parts: dict[int, torch.Tensor]) -> None:
        self._channel.check_open()
        entered = time.perf_counter()
        for index in parts:
            self._begin(index)
        began = time.perf_counter()
        waves = self._codec.decode(parts)
        now = time.perf_counter()
        self._speed.add_codec(max(map(len, parts.values())), now - began + self._ahead_s)
        self._ahead_s = 0.0
        if self._frame_began is not None:
            self._frame_began += now - entered  # a piece may end, and send its chunk, within a frame
        begun = False
        for index, codes in parts.items():
            check_samples(waves[index], self._model.codec.dtype)
            line, piece = self._lines[index], self._lines[index].piece
            chunk = line.add(codes, waves[index], now)
            self._channel.put(chunk)
            begun = begun or chunk.start == 0
            if line.piece is not piece:
                self._next_piece(line)
        if begun:  # without a pause a reader waits up to 5 ms for Python's lock (sys.getswitchinterval)
            time.sleep(READERS_S)

    def _end_piece(self, line: LineChunks) -> None:
        """Send what a crossfade held back, and begin the line's next piece."""
        chunk = line.end_piece(time.perf_counter())
        if chunk is not None:
            self._channel.put(chunk)
        self._next_piece(line)

    def _next_piece(self, line: LineChunks) -> None:
        self._codec.end(line.index)
        self._begun.discard(line.index)
