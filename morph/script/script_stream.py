"""Scripts as one continuous sound: the lines and pauses of a scene in the order they are heard, as they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...postprocess.join import silences
from ...postprocess.stretch import stretch
from ..batch.channel import StreamClosed
from ..batch.stream import SpeechStream, stream_lines
from ..kept.line_renderer import LineRenderer, Watch
from ..options import GenerateOptions
from ..speech.lines import Line, Spoken, check_line, render_lines
from ..speech.progress import OnFrame
from ..synthesizer import Synthesizer
from ..text.scripts.script import Script, ScriptLine
from .dialogue import Dialogue, ScriptRequest, amplify, assemble, read_script, spacing_of
from .retime import retiming_of

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
    parsed, lines = _read(synthesizer, script)
    stream = _stream(synthesizer, lines, options or GenerateOptions(), on_frame, complete)
    return ScriptStream(stream, parsed, script)


def stream_scene(
    renderer: LineRenderer,
    script: ScriptRequest,
    on_frame: OnFrame | None = None,
    complete: bool = False,
    on_phase: Callable[[str], None] | None = None,
) -> ScriptStream:
    """Speak a script as ``stream_script`` does, each line once: those in the renderer's cache are heard at once.

    A line that fails is reported as such, as ``LineRenderer.render`` does; then what is left is made complete, without
    being heard while it is made. The renderer's word check follows after the last chunk: other takes are in
    ``ScriptStream.dialogue``.

    Raises:
        ScriptError, ValueError: as ``stream_script``.
    """
    parsed, lines = _read(renderer.synthesizer, script)
    return ScriptStream(_Once(renderer, lines, Watch(on_frame, on_phase), complete), parsed, script)


def _read(synthesizer: Synthesizer, script: ScriptRequest) -> tuple[Script, list[Line]]:
    """Read a script; too much silence is refused too, before a frame is made."""
    parsed, lines = read_script(synthesizer, script)
    _silences(parsed, script.gap_s, synthesizer.model.sample_rate)
    return parsed, lines


def _stream(
    synthesizer: Synthesizer,
    lines: Sequence[Line],
    options: GenerateOptions,
    on_frame: OnFrame | None,
    complete: bool,
) -> _Chunks | _Groups:
    if complete and len(lines) > 1:
        return _Groups(synthesizer, lines, options, on_frame)
    return _Chunks(stream_lines(synthesizer, lines, options, on_frame, in_turn=True))


def _whole_line(stream: SpeechStream, index: int) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield a line's samples, and whether they are its last; StreamClosed if it ends before them."""
    last = False
    for chunk in stream.line(index):
        last = chunk.last
        yield chunk.samples, last
    if not last:
        raise StreamClosed


class _Chunks:
    """The lines of a script as one stream."""

    def __init__(self, stream: SpeechStream):
        self.sample_rate, self._stream = stream.sample_rate, stream

    @property
    def finished(self) -> Mapping[int, Spoken]:
        """The lines that are final by now, by their index."""
        return self._stream.finished

    def line(self, index: int) -> Iterator[tuple[np.ndarray, bool]]:
        """Yield a line's samples, and whether they are its last."""
        yield from _whole_line(self._stream, index)

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

    @property
    def finished(self) -> Mapping[int, Spoken]:
        """The lines that are final by now, by their index."""
        return dict(enumerate(self._spoken))

    def _report(self, done: int, expected: int) -> None:
        if self._closed:
            raise StreamClosed
        if self._on_frame is not None:
            self._on_frame(self._frames + done, self._frames + expected)

    def line(self, index: int) -> Iterator[tuple[np.ndarray, bool]]:
        """Yield a line's samples, and whether they are its last; lines are asked for in their order."""
        if index == 0:
            yield from _whole_line(self._first, 0)
            for _ in self._first:  # until its worker has ended
                pass
            if self._closed:
                raise StreamClosed
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


class _Once:
    """The lines of a script: those that a cache has, and the others as a stream.

    If the stream fails, what it did not finish is rendered complete, so that one line's failure ends no others.
    """

    def __init__(self, renderer: LineRenderer, lines: Sequence[Line], watch: Watch, complete: bool):
        self.sample_rate = renderer.synthesizer.model.sample_rate
        self._renderer, self._lines, self._on_frame = renderer, lines, watch.frame
        self._closed = False
        self._watch = Watch(self._report, watch.on_phase)
        self._recall = renderer.recall(lines, self._watch)
        self._made = dict(self._recall.found)
        missing = [lines[index] for index in self._recall.missing]
        self._stream: _Chunks | _Groups | None = None
        if missing:
            self._stream = _stream(
                renderer.synthesizer, missing, renderer.options, self._watch.frame, complete
            )

    def _report(self, done: int, expected: int) -> None:
        if self._closed:
            raise StreamClosed
        self._on_frame(done, expected)

    def line(self, index: int) -> Iterator[tuple[np.ndarray, bool]]:
        """Yield a line's samples, and whether they are its last; lines are asked for in their order."""
        if index in self._recall.found or self._stream is None:
            yield self._made[index].waveform, True
            return
        heard = last = False
        try:
            for samples, last in self._stream.line(self._recall.missing.index(index)):
                yield samples, last
                heard = True
        except Exception as error:
            self._rescue(error)
        if not last:  # what was heard cannot be taken back: nothing follows where the line broke off
            yield self._made[index].waveform[:0] if heard else self._made[index].waveform, True
        self._keep_finished()

    def finish(self) -> None:
        """Wait for what is still made: lines that are spoken again, reports, and other takes of a word check."""
        try:
            if self._stream is not None:
                self._stream.finish()
                self._keep(dict(enumerate(self._stream.spoken)))
        except Exception as error:
            self._rescue(error)
        checked = self._renderer.check_words(self._lines, self.spoken, self._watch)
        self._made = dict(enumerate(checked))

    def _rescue(self, error: Exception) -> None:
        """Make what the stream did not finish, each line by itself where that is needed; or raise the error again."""
        if self._watch.ends_all(error):
            raise error
        self._end_stream()
        self._stream = None
        left = [index for index in range(len(self._lines)) if index not in self._made]
        recall = replace(self._recall, found=self._made, missing=tuple(left))
        self._made = dict(enumerate(self._renderer.fill(self._lines, recall, self._watch)))

    def _keep_finished(self) -> None:
        if self._stream is not None:
            self._keep(self._stream.finished)

    def _keep(self, finished: Mapping[int, Spoken]) -> None:
        """Keep lines of the stream, by their index there."""
        for place, spoken in finished.items():
            index = self._recall.missing[place]
            if index not in self._made:
                self._made[index] = self._recall.keep(index, spoken)

    @property
    def spoken(self) -> list[Spoken]:
        if len(self._made) < len(self._lines):
            raise RuntimeError("the stream has not ended: read all chunks, then ask for what was spoken")
        return [self._made[index] for index in range(len(self._lines))]

    def close(self) -> None:
        self._closed = True
        self._end_stream()

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._keep_finished()


class ScriptStream:
    """An iterator over the sound of a scene. Close it, or leave its ``with``, to end the decoding within a frame."""

    def __init__(self, stream: _Chunks | _Groups | _Once, script: Script, request: ScriptRequest):
        self.sample_rate, self.lines = stream.sample_rate, len(script.lines)
        self._stream, self._script, self._request = stream, script, request
        self._closed = False
        # Not a method: its generator would refer to this object, which then is not freed when it is dropped.
        self._sound = _scene(stream, script.lines, _silences(script, request.gap_s, stream.sample_rate))

    def __iter__(self) -> Iterator[SceneChunk]:
        return self

    def __next__(self) -> SceneChunk:
        if self._closed:
            raise StopIteration
        try:
            return next(self._sound)
        except StreamClosed:  # closed by another thread
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
        return assemble(self._script, self._stream.spoken, self._request)


def _silences(script: Script, gap_s: float, sample_rate: int) -> list[int]:
    """Return the samples of silence before each line and after the last."""
    lead, gaps, tail = silences(spacing_of(script, gap_s), len(script.lines) - 1, sample_rate)
    return [lead, *gaps, tail]


def _scene(
    stream: _Chunks | _Groups | _Once, lines: Sequence[ScriptLine], gaps: Sequence[int]
) -> Iterator[SceneChunk]:
    """Yield the chunks of a scene; ``gaps`` are the samples of silence before each line and after the last."""
    at, portion = 0, round(PAUSE_PORTION_S * stream.sample_rate)
    for index, line in enumerate(lines):
        for zeros in _zeros(gaps[index], portion):
            yield SceneChunk(zeros, False, at, None, False)
            at += len(zeros)
        mark: LineMark | None = LineMark(index, line.name, line.text, at)
        ends_scene = index == len(lines) - 1 and not gaps[-1]
        for samples, ends_line in _finished(stream, index, line):
            last = ends_line and ends_scene
            if len(samples) or mark is not None or last:
                # Zeros are added, as in the track: no -0.0.
                yield SceneChunk(samples + np.float32(0), True, at, mark, last)
            at, mark = at + len(samples), None
    left = gaps[-1]
    for zeros in _zeros(left, portion):
        left -= len(zeros)
        yield SceneChunk(zeros, False, at, None, not left)
        at += len(zeros)
    stream.finish()


def _finished(
    stream: _Chunks | _Groups | _Once, index: int, line: ScriptLine
) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield a line's samples as the script asks for them, and whether they are its last.

    A line with speed or pitch is heard when it is complete: both need what comes after a sample.
    """
    by = retiming_of(line)
    chunks = stream.line(index)
    if not by.changes_nothing:
        whole = np.concatenate([samples for samples, _ in chunks])
        chunks = iter([(stretch(whole, stream.sample_rate, by) if len(whole) else whole, True)])
    for samples, ends_line in chunks:
        yield amplify(samples, line.gain_db), ends_line


def _zeros(count: int, portion: int) -> Iterator[np.ndarray]:
    for begin in range(0, count, portion):
        yield np.zeros(min(portion, count - begin), dtype=np.float32)
