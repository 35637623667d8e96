"""Render or stream lines of one synthesizer, for benchmarks and tests. Users call ``Batch``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.speech import Chunk, Delivery, Speech
from qwen3_tts_morph.morph.graph.pool import CPU_ROWS
from qwen3_tts_morph.morph.kept.render import OnFrame
from qwen3_tts_morph.morph.options import AUTO_ROWS, GenerateOptions
from qwen3_tts_morph.morph.runtime.threads import WakeUpEvent
from qwen3_tts_morph.morph.speech.lines import Line, Spoken, check_followed, check_line
from qwen3_tts_morph.morph.synthesizer import Synthesizer

SHOWN_EVERY_S = 0.05  # the progress


def render_lines(
    synthesizer: Synthesizer,
    lines: Sequence[Line],
    options: GenerateOptions | None = None,
    on_frame: OnFrame | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> list[Spoken]:
    """Speak lines; return them in the order given.

    Inputs are checked before the first frame. A line's seed gives the same samples in any batch, except that another
    batch size may round differently and change a line's codes. The two engines use different random generators. Failed
    pieces are retried, see ``GenerateOptions.retries``.

    Args:
        synthesizer: the checkpoint and its engine.
        lines: one or more.
        options: None takes the defaults.
        on_frame: see ``OnFrame``.
        on_phase: called with a few words when a phase begins.

    Raises:
        ValueError: for a text, language, voice or instruction that cannot be used.
        Exception: the first error of a line.
    """
    options = options or GenerateOptions()
    check_complete(lines)
    check_lines(synthesizer, lines, options)
    if on_phase is not None:
        on_phase(f"speaking {len(lines)} line{'' if len(lines) == 1 else 's'}")
    wake_up = WakeUpEvent()
    with Batch(synthesizer, options.batch_size, linger_s=None) as batch:
        delivery = Delivery(live=False, on_change=wake_up.set)
        speeches = batch.speak_all(lines, options, [delivery] * len(lines))
        wait_for(speeches, wake_up, on_frame)
        return [speech.result() for speech in speeches]


def check_complete(lines: Sequence[Line]) -> None:
    for line in lines:
        if not isinstance(line.text, str):
            raise ValueError(f"a line's text is {type(line.text).__name__}, not a string: join it, or speak it alone")


class SynthesizerChecks:
    """The ``Checks`` of a synthesizer without a batch."""

    def __init__(self, synthesizer: Synthesizer):
        self._model, self.languages = synthesizer.model, synthesizer.model.languages

    def check(self, line: Line, options: GenerateOptions) -> None:
        check_line(self._model, line)
        check_followed(self._model, options)


def check_lines(synthesizer: Synthesizer, lines: Sequence[Line], options: GenerateOptions) -> None:
    if not lines:
        raise ValueError("there is no line to speak: type a text")
    for line in lines:
        SynthesizerChecks(synthesizer).check(line, options)


def wait_for(speeches: Sequence[Speech], wake_up: WakeUpEvent, on_frame: OnFrame | None) -> None:
    """Wait until all lines have ended; ``wake_up`` is set when one has. Raise the error of the first that fails."""
    while not all(speech.ended for speech in speeches):
        for speech in speeches:
            speech.check()
        if on_frame is not None:
            report_progress(speeches, on_frame)
        wake_up.wait(None if on_frame is None else SHOWN_EVERY_S)
    if on_frame is not None:
        report_progress(speeches, on_frame)  # the frames since the last time


def report_progress(speeches: Sequence[Speech], on_frame: OnFrame) -> None:
    """Report the frames of all lines, done and expected."""
    done = sum(speech.progress.done for speech in speeches)
    on_frame(done, max(sum(speech.progress.expected for speech in speeches), done + 1))


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
    """Stream lines, at most ``options.batch_size`` concurrently, in the order given.

    The pieces of a long line are decoded in order. A line's text may be an iterator of strings (see ``Line``); the
    codes do not depend on their timing. A line that fails ends with its error, and the others continue. Readers get
    every piece's first take. If it failed, it is retried after the last chunk, as often as ``GenerateOptions.retries``
    allows, and ``SpeechStream.spoken`` has the better take.

    Args:
        synthesizer: the checkpoint and its engine.
        lines: one or more.
        options: None takes the defaults; ``chunk_frames`` are the sizes of the chunks.
        on_frame: see ``OnFrame``; called by the reader of all lines while it waits; its errors end the stream.
        in_turn: the lines are played one after another, so that the first ones get rows first.

    Raises:
        ValueError: as ``render_lines``; later errors are raised to the readers.
    """
    options = options or GenerateOptions()
    check_lines(synthesizer, lines, options)
    return SpeechStream(synthesizer, lines, options, on_frame, in_turn)


class SpeechStream:
    """An iterator over the chunks of lines, as they are decoded. Any thread may read, close or drop it.

    Use it in a ``with``, or call ``close``, to end it early: decoding ends within one frame, and the model is released.
    A stream without references is closed, too.

    Args are those of ``stream_lines``.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        lines: Sequence[Line],
        options: GenerateOptions,
        on_frame: OnFrame | None,
        in_turn: bool,
    ):
        self.sample_rate = synthesizer.model.sample_rate
        self._wake_up, self._on_frame = WakeUpEvent(), on_frame
        self._order: deque[int] = deque()  # the line of each chunk and of each end, in order
        self._batch = Batch(synthesizer, stream_rows(options.batch_size, len(lines)), linger_s=None)
        deliveries = [
            Delivery(order=index * in_turn, on_change=_notifier(self._order, index, self._wake_up))
            for index in range(len(lines))
        ]
        self._speeches = self._batch.speak_all(lines, options, deliveries)
        self._is_closed = self._is_cut = False  # ``close`` was called, and before the end

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        while not self._is_closed:
            while self._order:
                index = self._order.popleft()
                if self._speeches[index].unread and (chunk := self.next_of(index)) is not None:
                    return chunk
            if all(speech.ended and not speech.unread for speech in self._speeches):
                self._batch.close()
                for speech in self._speeches:
                    speech.check()
                self._report_progress()
                break
            self._report_progress()
            self._wake_up.wait(None if self._on_frame is None else SHOWN_EVERY_S)
        raise StopIteration

    def _report_progress(self) -> None:
        """Call ``on_frame``, whose errors end the stream."""
        if self._on_frame is None:
            return
        try:
            report_progress(self._speeches, self._on_frame)
        except BaseException:
            self.close()
            raise

    def line(self, index: int) -> Iterator[Chunk]:
        """Return an iterator over one line's chunks, for a separate reader. A chunk is read once, by any reader."""
        return LineReader(self, index)

    def next_of(self, index: int) -> Chunk | None:
        """Wait for one line's next chunk; None after its last one. Errors as in ``spoken``."""
        chunk = self._speeches[index].take()
        return None if chunk is None else replace(chunk, line=index)

    def cancel(self, index: int) -> None:
        """Cancel one line. Its row is free within a frame, and its unread chunks are dropped.

        ``spoken`` has its samples so far, and its report says that it was cancelled.

        Raises:
            IndexError: for a line that the stream does not have.
        """
        if not 0 <= index < len(self._speeches):
            raise IndexError(
                f"line {index} of a stream of {len(self._speeches)}: choose 0 to {len(self._speeches) - 1}"
            )
        self._speeches[index].cancel()

    def close(self) -> None:
        """End the stream, and drop unread chunks. Returns once the model is released."""
        self._is_cut = self._is_cut or not self._has_ended
        self._is_closed = True
        for speech in self._speeches:
            speech.cancel()
        self._batch.close()
        self._wake_up.set()

    @property
    def _has_ended(self) -> bool:
        return all(speech.ended for speech in self._speeches)

    def __enter__(self) -> SpeechStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def spoken(self) -> list[Spoken]:
        """The lines as ``render_lines`` returns them, when the iterator over all lines has ended.

        A line with more than one take in its report may differ from its chunks. Lines that were cancelled or failed
        have their samples so far, perhaps none.

        Raises:
            RuntimeError: if the stream has not ended, or was closed before its end.
            Exception: the error that ended the decoding.
        """
        if self._is_cut or not self._has_ended:
            why = "was closed before its end" if self._is_cut else "has not ended"
            raise RuntimeError(f"the stream {why}: read all chunks, then ask for what was spoken")
        return [speech.outcome.spoken or speech.result() for speech in self._speeches if speech.outcome]


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
        self._stream.cancel(self._index)


def stream_rows(batch_size: int, lines: int) -> int:
    """Return the rows of a batch that streams this many lines, with at most one row each.

    A few always fit into memory, so the first samples need not wait until the driver reports its free memory.
    """
    return batch_size or (lines if lines <= CPU_ROWS else AUTO_ROWS)


def _notifier(order: deque[int], index: int, wake_up: WakeUpEvent) -> Callable[[], None]:
    """Return a callback for a line's chunks and end, without a reference to the stream, which can then be dropped."""

    def notify() -> None:
        order.append(index)
        wake_up.set()

    return notify
