"""Lines to waveforms while they are made: a worker thread decodes, readers take chunks of codes and samples.

Codes equal those of ``render_lines`` with the same batch; samples equal them up to rounding, at least 80 dB below the
signal in float32, and have the same length. Readers get every piece's first take. If one went wrong, it is spoken again
after the last chunk, as often as ``GenerateOptions.retries`` allows, and ``SpeechStream.spoken`` has the better take.
"""

from __future__ import annotations

import contextvars
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ...postprocess.stream_join import StreamJoin
from ..decode.decoded import Decoded
from ..decode.request import LineRequest
from ..graph.engine import on_device
from ..model.finite import check_samples
from ..options import FRAME_RATE, GenerateOptions
from ..synthesizer import Synthesizer
from ..waveform.stream import LineCodec
from .channel import Channel, Chunk, StreamClosed
from .lines import Line, Rendering, Spoken, check_line
from .pacing import ChunkSizes, Speed
from .progress import OnFrame, Progress
from .takes import Take, judge_end

# Of a line: 4 s. Beyond them codes wait, until the reader has taken a chunk or no frame is left.
QUEUED_FRAMES = 50


def stream_line(
    synthesizer: Synthesizer,
    line: Line,
    options: GenerateOptions | None = None,
    on_frame: OnFrame | None = None,
) -> SpeechStream:
    """Speak one line; see ``stream_lines``."""
    return stream_lines(synthesizer, [line], options, on_frame)


def stream_lines(
    synthesizer: Synthesizer,
    lines: Sequence[Line],
    options: GenerateOptions | None = None,
    on_frame: OnFrame | None = None,
    in_turn: bool = False,
) -> SpeechStream:
    """Speak lines, at most ``options.batch_size`` at a time, in the order given; return what reads them.

    The pieces of a long line are decoded one after another, so that its sound is made in the order it is heard.

    Do not call it while holding ``Synthesizer.session``: the worker thread needs it.

    Args:
        synthesizer: the checkpoint and its engine.
        lines: one or more.
        options: None takes the defaults; ``chunk_frames`` are the sizes of the chunks.
        on_frame: see ``OnFrame``; called in the worker thread, what it raises is raised to the readers.
        in_turn: the lines are heard one after another, not side by side: all pieces of a line are decoded before
            those of the next one begin.

    Raises:
        ValueError: as ``render_lines``. What is only found with the model at hand is raised to the readers.
    """
    options = options or GenerateOptions()
    synthesizer.engine.choose(synthesizer.model, options)
    if not lines:
        raise ValueError("there is no line to speak: type a text")
    for line in lines:
        check_line(synthesizer.model, line)
    return SpeechStream(_Job(synthesizer, tuple(lines), options, on_frame, in_turn))


class SpeechStream:
    """An iterator over the chunks of lines, as they are made. Any thread may read, close or drop it.

    Use it in a ``with``, or call ``close``, to end it early: decoding ends within one frame, and the model is free for
    others. A stream that nothing refers to any more is closed too.
    """

    def __init__(self, job: _Job):
        self.sample_rate = job.synthesizer.model.sample_rate
        self._lines = len(job.lines)
        self._channel = Channel(self._lines)
        self._worker = _Worker(job, self._channel)
        # The worker knows the channel, not the stream: so a stream without readers is collected.
        self._finalizer = weakref.finalize(self, _Worker.stop, self._worker)
        self._worker.start()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        chunk = self._channel.take(range(self._lines))
        if chunk is None:
            raise StopIteration
        return chunk

    def line(self, index: int) -> Iterator[Chunk]:
        """Return an iterator over one line's chunks, for a separate reader. A chunk is read once, by any reader."""
        while (chunk := self._channel.take([index])) is not None:
            yield chunk

    def close(self) -> None:
        """End the stream; what was not read is dropped. Returns when the model is free for others."""
        self._finalizer()

    def __enter__(self) -> SpeechStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def spoken(self) -> list[Spoken]:
        """The lines as ``render_lines`` returns them, when the iterator over all lines has ended.

        A line with more than one take in its report may differ from what was heard.

        Raises:
            RuntimeError: if the stream has not ended, or was closed before its end.
            Exception: the error that ended the decoding.
        """
        return self._channel.spoken()


@dataclass(frozen=True)
class _Job:
    synthesizer: Synthesizer
    lines: tuple[Line, ...]
    options: GenerateOptions
    on_frame: OnFrame | None
    in_turn: bool


class _Worker:
    """The thread that holds model and engine for the length of a stream."""

    def __init__(self, job: _Job, channel: Channel):
        self._job, self._channel = job, channel
        self._has_session = False
        # A program may end while a stream plays: weakref.finalize then ends the thread first.
        run = contextvars.copy_context().run  # ``on_frame`` may depend on the caller's context
        self._thread = threading.Thread(target=run, args=(self._run,), name="speech stream", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Close the channel and wait until the model is free; a worker that still waits for the model ends later."""
        self._channel.close()
        if self._has_session and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        spoken, failure = None, None
        try:
            with self._job.synthesizer.session():
                self._has_session = True
                spoken = self._speak()
        except StreamClosed:
            pass
        except BaseException as error:
            failure = error
        self._channel.finish(spoken, failure)
        failure = None  # its traceback refers to this frame

    def _speak(self) -> list[Spoken]:
        job = self._job
        model, progress = job.synthesizer.model, Progress(self._report)
        self._channel.check_open()
        rendering = Rendering.prepare(job.synthesizer, job.lines, job.options, progress)
        with on_device(model.device):
            rows = min(job.options.batch_size, len(job.lines))
            codec = job.synthesizer.engine.open_codec(model, rendering.choice, rows)
            decoding = _Decoding(rendering, codec, self._channel, rows, job.in_turn)
            decoding.run()
            takes = rendering.improve(decoding.takes(), lambda _: None)
        return [rendering.assemble(index, takes) for index in range(len(job.lines))]

    def _report(self, done: int, expected: int) -> None:
        """Call ``on_frame``, unless the readers have left."""
        self._channel.check_open()
        if self._job.on_frame is not None:
            self._job.on_frame(done, expected)


class _Decoding:
    """The frames of a stream: codes arrive between frames, and the chunks that are due are decoded there.

    Args:
        rendering: its lines.
        codec: makes the samples.
        channel: takes the chunks.
        rows: how many lines are decoded at the same time.
        in_turn: see ``stream_lines``.
    """

    def __init__(
        self, rendering: Rendering, codec: LineCodec, channel: Channel, rows: int, in_turn: bool = False
    ):
        self._rendering, self._codec, self._channel, self._rows = rendering, codec, channel, rows
        self._in_turn = in_turn
        self._model = rendering.synthesizer.model
        self._speed = Speed(1 / FRAME_RATE)
        self._frame_began: float | None = None
        self._begun: set[int] = set()  # lines whose current piece has begun in the codec
        self._pieces = [_Piece() for _ in rendering.pieces]
        self._lines = [self._chunks_of(index) for index in range(len(rendering.lines))]

    def _chunks_of(self, index: int) -> _LineChunks:
        both = zip(self._pieces, self._rendering.pieces, strict=True)
        return _LineChunks(
            index,
            [made for made, piece in both if piece.line == index],
            ChunkSizes(self._rendering.options.chunk_frames, self._speed),
            self._model.sample_rate,
            self._rendering.options.crossfade_ms,
        )

    def run(self) -> None:
        """Decode all lines to their ends.

        Raises:
            StreamClosed: within one frame after the readers have left.
        """
        rendering = self._rendering
        options = replace(rendering.options, batch_size=self._rows)
        rendering.synthesizer.engine.decode(
            self._model, self._requests(self._order()), options, self._on_frame, rendering.choice
        )
        # No frame is left, so the model is needed for the waiting codes only: readers are not waited for.
        self._send(ahead=True)

    def takes(self) -> list[Take]:
        """Return every piece's take, judged as ``render_lines`` judges it."""
        takes = []
        for piece, made in zip(self._rendering.pieces, self._pieces, strict=True):
            decoded, waveform = Decoded(_stack(made.codes), str(made.ended)), _concatenate(made.waves)
            ended = judge_end(piece.text, decoded, waveform, self._model.sample_rate)
            takes.append(Take(decoded, waveform, ended))
        return takes

    def _order(self) -> list[int]:
        """Return the pieces as they are decoded: lines take rows in their order, and a line's pieces follow each other.

        Where no more lines than rows are left, the second pieces follow after the first pieces of all of them. Lines
        that are heard in turn are decoded in turn.
        """
        pieces = self._rendering.pieces
        if self._in_turn:
            return list(range(len(pieces)))
        numbers: list[int] = []
        for index, piece in enumerate(pieces):
            same = index > 0 and pieces[index - 1].line == piece.line
            numbers.append(numbers[-1] + 1 if same else 0)
        return sorted(
            range(len(pieces)),
            key=lambda index: (pieces[index].line // self._rows, numbers[index], pieces[index].line),
        )

    def _requests(self, order: Sequence[int]) -> list[LineRequest]:
        requests = self._rendering.requests(order, 1)
        return [
            replace(request, on_codes=self._pieces[index].codes.append, on_end=self._ender(index))
            for index, request in zip(order, requests, strict=True)
        ]

    def _ender(self, index: int) -> Callable[[str], None]:
        def end(ended: str) -> None:
            self._pieces[index].ended = ended
            self._send()

        return end

    def _on_frame(self, lines: int) -> None:
        """Between two frames: note the time, decode what is due, and let ``on_frame`` cancel."""
        if self._frame_began is not None:
            self._speed.add_frame(time.perf_counter() - self._frame_began)
        self._rendering.progress.add(lines)
        self._send()
        self._frame_began = time.perf_counter()

    def _begin(self, index: int) -> None:
        """Begin a line's piece in the codec when its first codes are due: a state takes a few MB."""
        if index not in self._begun:
            self._codec.begin(index, self._rendering.lines[index].voice.ref_codes)
            self._begun.add(index)

    def _send(self, ahead: bool = False) -> None:
        """Decode and queue the chunks that are due; with ``ahead`` all, whether or not readers have taken theirs."""
        while True:
            now = time.perf_counter()
            ready = [
                line for line in self._lines if ahead or self._channel.queued(line.index) < QUEUED_FRAMES
            ]
            parts = {line.index: line.waiting(count) for line in ready if (count := line.due(now))}
            if parts:
                self._decode(parts)
            ended = [line for line in self._lines if line.piece_is_done]
            for line in ended:
                self._end_piece(line)
            if not parts and not ended:
                return

    def _decode(self, parts: dict[int, torch.Tensor]) -> None:
        self._channel.check_open()
        entered = time.perf_counter()
        for index in parts:
            self._begin(index)
        began = time.perf_counter()
        waves = self._codec.decode(parts)
        now = time.perf_counter()
        self._speed.add_codec(max(map(len, parts.values())), now - began)
        if self._frame_began is not None:
            self._frame_began += now - entered  # a piece may end, and send its chunk, within a frame
        for index, codes in parts.items():
            check_samples(waves[index], self._model.codec.dtype)
            line, piece = self._lines[index], self._lines[index].piece
            self._channel.put(line.add(codes, waves[index], now))
            if line.piece is not piece:
                self._next_piece(line)

    def _end_piece(self, line: _LineChunks) -> None:
        """Send what a crossfade held back, and begin the line's next piece."""
        chunk = line.end_piece(time.perf_counter())
        if chunk is not None:
            self._channel.put(chunk)
        self._next_piece(line)

    def _next_piece(self, line: _LineChunks) -> None:
        self._codec.end(line.index)
        self._begun.discard(line.index)


class _Piece:
    """The codes of one piece, how it ended, and the samples of it that have been decoded."""

    def __init__(self) -> None:
        self.codes: list[torch.Tensor] = []
        self.ended: str | None = None
        self.waves: list[np.ndarray] = []
        self.decoded = 0

    @property
    def waiting(self) -> int:
        return len(self.codes) - self.decoded


class _LineChunks:
    """One line's way from codes to chunks: its pieces in order, the sizes of chunks, and the crossfades."""

    def __init__(
        self, index: int, pieces: Sequence[_Piece], sizes: ChunkSizes, sample_rate: int, crossfade_ms: float
    ):
        self.index, self._sizes, self._sample_rate = index, sizes, sample_rate
        self._pieces = deque(pieces)
        self._join = StreamJoin(len(pieces), round(crossfade_ms / 1000 * sample_rate))
        self._start = 0

    @property
    def piece(self) -> _Piece | None:
        """The current piece; None when the line has ended."""
        return self._pieces[0] if self._pieces else None

    @property
    def ended(self) -> bool:
        return not self._pieces

    @property
    def piece_is_done(self) -> bool:
        """Whether the current piece has ended and all of it is decoded."""
        return self.piece is not None and self.piece.ended is not None and not self.piece.waiting

    def due(self, now: float) -> int:
        """Return how many of the current piece's waiting frames to decode now."""
        if (piece := self.piece) is None:
            return 0
        ended = piece.ended is not None
        return min(piece.waiting, self._sizes.full) if ended else self._sizes.due(piece.waiting, now)

    def waiting(self, count: int) -> torch.Tensor:
        """Return the codes of the current piece's next frames, ``[count, 16]``."""
        piece = self._pieces[0]
        return _stack(piece.codes[piece.decoded : piece.decoded + count])

    def add(self, codes: torch.Tensor, wave: np.ndarray, now: float) -> Chunk:
        """Take the samples of codes that ``waiting`` returned; return the chunk for the readers."""
        piece = self._pieces[0]
        piece.decoded += len(codes)
        piece.waves.append(wave)
        samples = self._join.add(wave)
        if self.piece_is_done:  # its end comes with its last frames
            samples = np.concatenate((samples, self._join.end()))
            self._pieces.popleft()
        return self._chunk(codes, samples, now)

    def end_piece(self, now: float) -> Chunk | None:
        """End a piece whose end was not known with its last frames; return a chunk if there is something to say."""
        self._pieces.popleft()
        samples = self._join.end()
        return self._chunk(_stack([]), samples, now) if len(samples) or self.ended else None

    def _chunk(self, codes: torch.Tensor, samples: np.ndarray, now: float) -> Chunk:
        chunk = Chunk(self.index, codes, samples, self._start, self.ended)
        self._start += len(samples)
        self._sizes.deliver(len(codes), len(samples) / self._sample_rate, now)
        return chunk


def _stack(codes: Sequence[torch.Tensor]) -> torch.Tensor:
    """Frames ``[16]`` as int64 ``[n, 16]``; n may be 0."""
    return torch.stack(list(codes)) if codes else torch.zeros(0, 16, dtype=torch.int64)


def _concatenate(waves: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.float32), *waves])
