"""Scripts as one continuous sound: the lines and pauses of a scene in the order they are heard, as they are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...postprocess.join import silences
from ..options import GenerateOptions
from ..synthesizer import Synthesizer
from ..text.script import Script, ScriptLine
from .dialogue import Dialogue, ScriptRequest, amplify, assemble, read_script, spacing_of
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
) -> ScriptStream:
    """Speak a script as one continuous sound: its lines and pauses, in the order they are heard.

    Lines are decoded in that order, ``options.batch_size`` pieces at a time. The joined chunks equal
    ``ScriptStream.dialogue.joined`` to the bit, unless a piece was spoken again (``options.retries``). What needs the
    complete track (peak and loudness normalisation) cannot be streamed: apply it to that track.

    Arguments and errors are those of ``render_script`` and ``stream_lines``.

    Raises:
        ScriptError: for a script that cannot be read.
        ValueError: as ``stream_lines``, and for more silence than a track may have.
    """
    parsed, lines = read_script(synthesizer, script)
    # Too much silence is refused before a frame is made.
    _silences(parsed, script.gap_s, synthesizer.model.sample_rate)
    stream = stream_lines(synthesizer, lines, options, on_frame, in_turn=True)
    return ScriptStream(stream, parsed, script.gap_s)


class ScriptStream:
    """An iterator over the sound of a scene. Close it, or leave its ``with``, to end the decoding within a frame."""

    def __init__(self, stream: SpeechStream, script: Script, gap_s: float):
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
        return next(self._sound)

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


def _scene(stream: SpeechStream, lines: Sequence[ScriptLine], gaps: Sequence[int]) -> Iterator[SceneChunk]:
    """Yield the chunks of a scene; ``gaps`` are the samples of silence before each line and after the last."""
    at, portion = 0, round(PAUSE_PORTION_S * stream.sample_rate)
    for index, line in enumerate(lines):
        for zeros in _zeros(gaps[index], portion):
            yield SceneChunk(zeros, False, at, None, False)
            at += len(zeros)
        mark: LineMark | None = LineMark(index, line.name, line.text, at)
        ends_scene = index == len(lines) - 1 and not gaps[-1]
        for chunk in stream.line(index):
            last = chunk.last and ends_scene
            if len(chunk.samples) or mark is not None or last:
                # Zeros are added, as in the track: no -0.0.
                samples = amplify(chunk.samples, line.gain_db) + np.float32(0)
                yield SceneChunk(samples, True, at, mark, last)
            at, mark = at + len(chunk.samples), None
    left = gaps[-1]
    for zeros in _zeros(left, portion):
        left -= len(zeros)
        yield SceneChunk(zeros, False, at, None, not left)
        at += len(zeros)
    for _ in stream:  # its end is that of the worker, which makes the reports
        pass


def _zeros(count: int, portion: int) -> Iterator[np.ndarray]:
    for begin in range(0, count, portion):
        yield np.zeros(min(portion, count - begin), dtype=np.float32)
