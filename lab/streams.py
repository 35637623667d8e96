"""Lines of one synthesizer, rendered complete or read as streams: for benchmarks and tests. Users call ``Batch``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from qwen3_tts_morph.morph.batch.batch import Batch, SynthesizerChecks
from qwen3_tts_morph.morph.batch.fitting import CPU_ROWS
from qwen3_tts_morph.morph.batch.speech import Chunk, Delivery, Speech
from qwen3_tts_morph.morph.kept.render import OnFrame
from qwen3_tts_morph.morph.options import AUTO_ROWS, GenerateOptions
from qwen3_tts_morph.morph.runtime.wake_up import WakeUpEvent
from qwen3_tts_morph.morph.speech.lines import Line, Spoken, check_complete
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

    What can be checked is checked before the first frame is made. A line's seed gives the same samples in any batch,
    except that the arithmetic of another batch size may round differently and change a line's codes. The two engines
    use different random generators. Pieces that went wrong are spoken again, see ``GenerateOptions.retries``.

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
            tell_progress(speeches, on_frame)
        wake_up.wait(None if on_frame is None else SHOWN_EVERY_S)
    if on_frame is not None:
        tell_progress(speeches, on_frame)  # the frames since the last time


def tell_progress(speeches: Sequence[Speech], on_frame: OnFrame) -> None:
    """Tell the frames of all lines that are done, and that are expected."""
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
    """Speak lines, at most ``options.batch_size`` at a time, in the order given; return what reads them.

    The pieces of a long line are decoded one after another, so that its sound is made in the order it is heard. A
    line's text may be an iterator of strings (see ``Line``); the codes do not depend on when they come. A line that
    fails ends with that error, and the others go on. Readers get every piece's first take. If one went wrong, it is
    spoken again after the last chunk, as often as ``GenerateOptions.retries`` allows, and ``SpeechStream.spoken`` has
    the better take.

    Args:
        synthesizer: the checkpoint and its engine.
        lines: one or more.
        options: None takes the defaults; ``chunk_frames`` are the sizes of the chunks.
        on_frame: see ``OnFrame``; called by the reader of all lines while it waits; what it raises ends the stream.
        in_turn: the lines are heard one after another, not side by side: the first ones get rows first.

    Raises:
        ValueError: as ``render_lines``. What is only found with the model at hand is raised to the readers.
    """
    options = options or GenerateOptions()
    check_lines(synthesizer, lines, options)
    return SpeechStream(synthesizer, lines, options, on_frame, in_turn)


class SpeechStream:
    """An iterator over the chunks of lines, as they are made. Any thread may read, close or drop it.

    Use it in a ``with``, or call ``close``, to end it early: decoding ends within one frame, and the model is free for
    others. A stream that nothing refers to any more is closed too.

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
        self._order: deque[int] = deque()  # the line of each chunk, and of each end, as they came
        self._batch = Batch(synthesizer, stream_rows(options.batch_size, len(lines)), linger_s=None)
        deliveries = [
            Delivery(order=index * in_turn, on_change=_teller(self._order, index, self._wake_up))
            for index in range(len(lines))
        ]
        self._speeches = self._batch.speak_all(lines, options, deliveries)
        self._is_closed = self._is_cut = False  # whether its readers have left, and before its end

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        while not self._is_closed:
            while self._order:
                index = self._order.popleft()
                if self._speeches[index].has_chunk and (chunk := self.next_of(index)) is not None:
                    return chunk
            if all(speech.ended and not speech.has_chunk for speech in self._speeches):
                self._batch.close()
                for speech in self._speeches:
                    speech.check()
                self._tell_progress()
                break
            self._tell_progress()
            self._wake_up.wait(None if self._on_frame is None else SHOWN_EVERY_S)
        raise StopIteration

    def _tell_progress(self) -> None:
        """Call ``on_frame``; what it raises ends the stream."""
        if self._on_frame is None:
            return
        try:
            tell_progress(self._speeches, self._on_frame)
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
        """End one line; the others go on. Its row is free within a frame; what is not read of it is dropped.

        ``spoken`` has what was made of it, and its report says that it was cancelled.

        Raises:
            IndexError: for a line that the stream does not have.
        """
        if not 0 <= index < len(self._speeches):
            raise IndexError(
                f"line {index} of a stream of {len(self._speeches)}: choose 0 to {len(self._speeches) - 1}"
            )
        self._speeches[index].cancel()

    def close(self) -> None:
        """End the stream; what was not read is dropped. Returns when the model is free for others."""
        self._is_cut = self._is_cut or not self._is_whole
        self._is_closed = True
        for speech in self._speeches:
            speech.cancel()
        self._batch.close()
        self._wake_up.set()

    @property
    def _is_whole(self) -> bool:
        return all(speech.ended for speech in self._speeches)

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
        if self._is_cut or not self._is_whole:
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
        """See ``SpeechStream.cancel``."""
        self._stream.cancel(self._index)


def stream_rows(batch_size: int, lines: int) -> int:
    """Return the rows of a batch that streams this many lines, each of which has one row at most.

    A few have memory anywhere, and the first sound does not wait until the driver has told how much is free.
    """
    return batch_size or (lines if lines <= CPU_ROWS else AUTO_ROWS)


def _teller(order: deque[int], index: int, wake_up: WakeUpEvent) -> Callable[[], None]:
    """Return what notes that a line has a chunk, or its end. It refers to no stream, which can so be dropped."""

    def tell() -> None:
        order.append(index)
        wake_up.set()

    return tell
