"""Lines to waveforms while they are made: a worker thread decodes, readers take chunks of codes and samples.

Codes equal those of ``render_lines`` with the same batch; samples equal them up to rounding, at least 80 dB below the
signal in float32, and have the same length. Readers get every piece's first take. If one went wrong, it is spoken again
after the last chunk, as often as ``GenerateOptions.retries`` allows, and ``SpeechStream.spoken`` has the better take.
"""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..graph.engine import on_device
from ..options import GenerateOptions
from ..runtime.collector import older_objects_spared
from ..runtime.kept_threads import Job
from ..speech.late_text import LateLine, SentenceLine, TokenLine
from ..speech.lines import Line, Rendering, Spoken, check_lines
from ..speech.progress import OnFrame, Progress
from ..speech.text_reader import TextReader
from ..synthesizer import Synthesizer
from .channel import Channel, Chunk, StreamClosed
from .stream_decoding import Plan, StreamDecoding


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

    The pieces of a long line are decoded one after another, so that its sound is made in the order it is heard. A
    line's text may be an iterator of strings (see ``Line``); the codes do not depend on when they come. A line whose
    numbers are not finite ends with that error, and the others go on.

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
    check_lines(synthesizer.model, lines)
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
        # The worker knows the channel, not the stream: so a stream without readers is collected. That may happen in any
        # thread, also in the worker's or in one that it needs: nothing is waited for.
        weakref.finalize(self, self._channel.leave).atexit = False
        # A program may end while a stream plays.
        weakref.finalize(self._worker, _end, weakref.ref(self._worker))
        self._worker.start()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        chunk = self._channel.take(range(self._lines))
        if chunk is None:
            raise StopIteration
        return chunk

    def line(self, index: int) -> LineReader:
        """Return an iterator over one line's chunks, for a separate reader. A chunk is read once, by any reader."""
        return LineReader(self, index)

    def next_of(self, index: int) -> Chunk | None:
        """Wait for one line's next chunk; None after its last one. Errors as in ``spoken``."""
        return self._channel.take([index])

    def cancel(self, index: int) -> None:
        """End one line; the others go on. Its row is free within a frame; what is not read of it is dropped.

        ``spoken`` has what was made of it, and its report says that it was cancelled.

        Raises:
            IndexError: for a line that the stream does not have.
        """
        if not 0 <= index < self._lines:
            raise IndexError(f"line {index} of a stream of {self._lines}: choose 0 to {self._lines - 1}")
        self._channel.cancel(index)

    def close(self) -> None:
        """End the stream; what was not read is dropped. Returns when the model is free for others."""
        self._worker.stop()

    def __enter__(self) -> SpeechStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def spoken(self) -> list[Spoken]:
        """The lines as ``render_lines`` returns them, when the iterator over all lines has ended.

        A line with more than one take in its report may differ from what was heard. Lines that were cancelled, or that
        failed or whose text did, have what was made of them, which may be no samples.

        Raises:
            RuntimeError: if the stream has not ended, or was closed before its end.
            Exception: the error that ended the decoding.
        """
        return self._channel.spoken()

    @property
    def finished(self) -> Mapping[int, Spoken]:
        """The lines that were made to their ends before the stream was closed or failed, by their index.

        Only those that went well, and whose text was complete; none while the stream runs, nor if it ended by itself:
        then all are in ``spoken``.
        """
        return self._channel.finished


class LineReader:
    """An iterator over one line's chunks; ``close`` cancels the line."""

    def __init__(self, stream: SpeechStream, index: int):
        self._stream, self._index = stream, index

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        if (chunk := self._stream.next_of(self._index)) is None:
            raise StopIteration
        return chunk

    def close(self) -> None:
        """See ``SpeechStream.cancel``."""
        self._stream.cancel(self._index)


def _end(worker: weakref.ref[_Worker]) -> None:
    """End a stream that still plays."""
    if (running := worker()) is not None:
        running.stop()


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
        self._readers = {
            index: TextReader(line.text, channel.bell)
            for index, line in enumerate(job.lines)
            if not isinstance(line.text, str)
        }
        self._late: list[LateLine] = []
        self._thread: Job | None = None

    def start(self) -> None:
        for reader in self._readers.values():
            reader.start()
        run = contextvars.copy_context().run  # ``on_frame`` may depend on the caller's context
        self._thread = self._job.synthesizer.engine.threads.start(partial(run, self._run))

    def stop(self) -> None:
        """Close the channel and wait until the model is free; a worker that still waits for the model ends later."""
        if self._thread is not None and not self._thread.is_here:
            return  # its locks may be held for ever
        self._channel.close()
        self._close_readers()
        if self._has_session and self._thread is not None and not self._thread.is_current:
            self._thread.join()

    def _close_readers(self) -> None:
        for reader in self._readers.values():
            reader.close()

    def _run(self) -> None:
        spoken, failure = None, None
        try:
            with self._job.synthesizer.model.exclusive():
                self._has_session = True  # from here on ``stop`` waits
                self._channel.check_open()  # it may have been before: a program that ends now must not meet torch
                with self._job.synthesizer.session():
                    spoken = self._speak()
        except StreamClosed:
            pass
        except BaseException as error:
            failure = error
        self._close_readers()
        for line in self._late:  # one that writes its text out has a thread, which refers to the model
            line.stop()
        self._late.clear()
        self._channel.finish(spoken, failure)
        failure = None  # its traceback refers to this frame

    def _speak(self) -> list[Spoken]:
        job = self._job
        model, progress = job.synthesizer.model, Progress(self._report)
        self._channel.check_open()
        rendering = Rendering.prepare(job.synthesizer, job.lines, job.options, progress)
        with on_device(model.device):
            plan = Plan(min(job.options.batch_size, len(job.lines)), job.in_turn)
            self._late = late = self._late_lines(rendering)
            decoding = StreamDecoding(rendering, self._channel, plan, late)
            try:
                with older_objects_spared():
                    decoding.run()
                for line in late:
                    if line.index not in decoding.stopped:
                        line.complete()
                takes = rendering.improve(decoding.takes(), lambda _: None)
            except BaseException:
                self._channel.finished = decoding.finished()
                raise
        return rendering.assemble(takes, decoding.stopped)

    def _late_lines(self, rendering: Rendering) -> list[LateLine]:
        kinds = {"sentence": SentenceLine, "token": TokenLine}
        return [
            kinds[self._job.lines[index].layout](rendering, index, reader)
            for index, reader in self._readers.items()
        ]

    def _report(self, done: int, expected: int) -> None:
        """Call ``on_frame``, unless the readers have left."""
        self._channel.check_open()
        if self._job.on_frame is not None:
            self._job.on_frame(done, expected)
