"""Scripts as one continuous sound: the lines and pauses of a scene in the order they are heard, as they are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...postprocess.join import silences
from ..options import GenerateOptions
from ..synthesizer import Synthesizer
from ..text.script import Script, ScriptLine
from .channel import StreamClosed
from .dialogue import Dialogue, ScriptRequest, amplify, assemble, read_script, spacing_of
from .lines import Line, Spoken, check_line, render_lines
from .progress import OnFrame
from .stream import SpeechStream, stream_lines

PAUSE_PORTION_S = 1.0  # of a pause in one chunk: the reader of a live stream wants small ones


@dataclass(frozen=True)
class LineMark:
    """Where a line of a script begins.

    Args:
        index: of the line in the script, from 0; pauses are not counted.
        name: the character.
        text: as it was given.
        start: its first sample in the scene.
    """

    index: int
    name: str
    text: str
    start: int


@dataclass(frozen=True, eq=False)
class SceneChunk:
    """Samples of a scene, which follow those of the chunk before.

    Args:
        samples: float32 ``[n]``: of one line, or zeros of a pause.
        in_line: whether they are of a line.
        start: index of the first sample in the scene.
        mark: the line that begins with this chunk, or None.
        last: whether the scene ends with this chunk, which may be empty.
    """

    samples: np.ndarray
    in_line: bool
    start: int
    mark: LineMark | None
    last: bool


def stream_script(
    synthesizer: Synthesizer,
    script: ScriptRequest,
    options: GenerateOptions | None = None,
    on_frame: OnFrame | None = None,
    complete: bool = False,
) -> ScriptStream:
    """Speak a script as one continuous sound: its lines and pauses, in the order they are heard.

    Lines are decoded in that order, ``options.batch_size`` pieces at a time. The joined chunks equal
    ``ScriptStream.dialogue.joined`` to the bit, unless a piece was spoken again (``options.retries``). What needs the
    complete track (peak and loudness normalisation) cannot be streamed: apply it to that track.

    Other arguments and errors are those of ``render_script`` and ``stream_lines``.

    Args:
        complete: only the first line is heard while it is made; the others follow as complete lines, in groups of
            ``options.batch_size`` and then four times more each time. For devices much faster than real time: a batch
            of complete lines takes a fraction of the time of as many lines in chunks.

    Raises:
        ScriptError: for a script that cannot be read.
        ValueError: as ``stream_lines``, and for more silence than a track may have.
    """
    parsed, lines = read_script(synthesizer, script)
    # Too much silence is refused before a frame is made.
    _silences(parsed, script.gap_s, synthesizer.model.sample_rate)
    options = options or GenerateOptions()
    if complete and len(lines) > 1:
        return ScriptStream(_Groups(synthesizer, lines, options, on_frame), parsed, script.gap_s)
    stream = stream_lines(synthesizer, lines, options, on_frame, in_turn=True)
    return ScriptStream(_Chunks(stream), parsed, script.gap_s)


class _Chunks:
    """The lines of a script as one stream."""

    def __init__(self, stream: SpeechStream):
        self.sample_rate, self._stream = stream.sample_rate, stream

    def line(self, index: int) -> Iterator[tuple[np.ndarray, bool]]:
        """Yield a line's samples, and whether they are its last."""
        for chunk in self._stream.line(index):
            yield chunk.samples, chunk.last

    def finish(self) -> None:
        """Wait for the worker, which makes the reports."""
        for _ in self._stream:
            pass

    @property
    def spoken(self) -> list[Spoken]:
        return self._stream.spoken

    def close(self) -> None:
        self._stream.close()


class _Groups:
    """The first line of a script as a stream, the others complete; see ``stream_script``."""

    def __init__(
        self,
        synthesizer: Synthesizer,
        lines: Sequence[Line],
        options: GenerateOptions,
        on_frame: OnFrame | None,
    ):
        self.sample_rate = synthesizer.model.sample_rate
        self._synthesizer, self._lines, self._options = synthesizer, lines, options
        self._on_frame = on_frame
        self._frames = 0  # of the lines that have been spoken
        self._size = options.batch_size
        self._spoken: list[Spoken] = []
        self._closed = False
        for line in lines:
            check_line(synthesizer.model, line)
        self._first = stream_lines(synthesizer, lines[:1], options, self._report)

    def _report(self, done: int, expected: int) -> None:
        if self._closed:
            raise StreamClosed
        if self._on_frame is not None:
            self._on_frame(self._frames + done, self._frames + expected)

    def line(self, index: int) -> Iterator[tuple[np.ndarray, bool]]:
        """Yield a line's samples, and whether they are its last; lines are asked for in their order."""
        if index == 0:
            yield from ((chunk.samples, chunk.last) for chunk in self._first.line(0))
            for _ in self._first:  # until its worker has ended
                pass
            self._add(self._first.spoken)
            return
        if index == len(self._spoken):
            group = self._lines[index : index + self._size]
            self._add(render_lines(self._synthesizer, group, self._options, self._report))
            self._size *= 4
        yield self._spoken[index].waveform, True

    def _add(self, spoken: Sequence[Spoken]) -> None:
        self._spoken += spoken
        self._frames += sum(one.report.frames for one in spoken)

    def finish(self) -> None:
        """Nothing is left to wait for."""

    @property
    def spoken(self) -> list[Spoken]:
        if len(self._spoken) < len(self._lines):
            raise RuntimeError("the stream has not ended: read all chunks, then ask for what was spoken")
        return self._spoken

    def close(self) -> None:
        self._closed = True
        self._first.close()


class ScriptStream:
    """An iterator over the sound of a scene. Close it, or leave its ``with``, to end the decoding within a frame."""

    def __init__(self, stream: _Chunks | _Groups, script: Script, gap_s: float):
        self.sample_rate, self.lines = stream.sample_rate, len(script.lines)
        self._stream, self._script, self._gap_s = stream, script, gap_s
        self._closed = False
        # Not a method: its generator would refer to this object, which then is not freed when it is dropped.
        self._sound = _scene(stream, script.lines, _silences(script, gap_s, stream.sample_rate))

    def __iter__(self) -> Iterator[SceneChunk]:
        return self

    def __next__(self) -> SceneChunk:
        if self._closed:
            raise StopIteration
        try:
            return next(self._sound)
        except StreamClosed:  # closed by another thread while a group was made
            raise StopIteration from None

    def close(self) -> None:
        """End the stream; what was not read is dropped. Returns when the model is free for others."""
        self._closed = True
        self._stream.close()

    def __enter__(self) -> ScriptStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dialogue(self) -> Dialogue:
        """The scene as ``render_script`` returns it, after the last chunk.

        Raises:
            RuntimeError: if the stream has not ended, or was closed before its end.
            Exception: the error that ended the decoding.
        """
        return assemble(self._script, self._stream.spoken, self._gap_s)


def _silences(script: Script, gap_s: float, sample_rate: int) -> list[int]:
    """Return the samples of silence before each line and after the last."""
    lead, gaps, tail = silences(spacing_of(script, gap_s), len(script.lines) - 1, sample_rate)
    return [lead, *gaps, tail]


def _scene(
    stream: _Chunks | _Groups, lines: Sequence[ScriptLine], gaps: Sequence[int]
) -> Iterator[SceneChunk]:
    """Yield the chunks of a scene; ``gaps`` are the samples of silence before each line and after the last."""
    at, portion = 0, round(PAUSE_PORTION_S * stream.sample_rate)
    for index, line in enumerate(lines):
        for zeros in _zeros(gaps[index], portion):
            yield SceneChunk(zeros, False, at, None, False)
            at += len(zeros)
        mark: LineMark | None = LineMark(index, line.name, line.text, at)
        ends_scene = index == len(lines) - 1 and not gaps[-1]
        for samples, ends_line in stream.line(index):
            last = ends_line and ends_scene
            if len(samples) or mark is not None or last:
                # Zeros are added, as in the track: no -0.0.
                yield SceneChunk(amplify(samples, line.gain_db) + np.float32(0), True, at, mark, last)
            at, mark = at + len(samples), None
    left = gaps[-1]
    for zeros in _zeros(left, portion):
        left -= len(zeros)
        yield SceneChunk(zeros, False, at, None, not left)
        at += len(zeros)
    stream.finish()


def _zeros(count: int, portion: int) -> Iterator[np.ndarray]:
    for begin in range(0, count, portion):
        yield np.zeros(min(portion, count - begin), dtype=np.float32)
