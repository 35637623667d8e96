"""Scripts as one continuous sound: the lines and pauses of a scene in the order they are heard, as they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...postprocess.join import silences
from ...postprocess.stretch import stretch
from ..batch.batch import SynthesizerChecks
from ..batch.speech import Chunk
from ..batch.stream import SpeechStream, stream_lines
from ..kept.once import Listener
from ..options import GenerateOptions
from ..speech.lines import Spoken
from ..speech.progress import OnFrame
from ..synthesizer import Synthesizer
from ..text.scripts.script import Script
from ..words.timing import WordTime, retime_words
from .dialogue import Dialogue, ScriptRequest, amplify, assemble, read_script, spacing_of
from .retime import retiming_of

PAUSE_PORTION_S = 1.0  # of a pause in one chunk: the reader of a live stream wants small ones
NOTHING = np.zeros(0, dtype=np.float32)


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


class Scene:
    """The sound of a script, from that of its lines: each after its pause, at its speed, pitch and level.

    Args:
        script: as it was read.
        gap_s: seconds of silence between lines, beside the script's own.
        rate: of the sound, in Hz.

    Raises:
        ValueError: for more silence than a track may have.
    """

    def __init__(self, script: Script, gap_s: float, rate: int):
        self.lines, self.rate = script.lines, rate
        lead, gaps, tail = silences(spacing_of(script, gap_s), len(self.lines) - 1, rate)
        self._silences = [lead, *gaps, tail]
        self._at = 0  # samples so far
        self._begun = 0  # lines so far

    def needs_all(self, index: int) -> bool:
        """Return whether a line is heard when it is complete: speed and pitch need what comes after a sample."""
        return not retiming_of(self.lines[index]).changes_nothing

    def add(self, index: int, samples: np.ndarray, ends: bool = False) -> Iterator[SceneChunk]:
        """Yield what follows for samples of a line, float32 ``[n]``. Lines come in their order.

        ``ends``: whether the line ends with them, which only tells the scene's last chunk.
        """
        line, mark = self.lines[index], None
        if index == self._begun:
            self._begun += 1
            yield from self._pause(index)
            mark = LineMark(index, line.name, line.text, self._at)
        if len(samples) and self.needs_all(index):
            samples = stretch(samples, self.rate, retiming_of(line))
        last = ends and index == len(self.lines) - 1 and not self._silences[-1]
        if len(samples) or mark is not None or last:
            # Zeros are added, as in the track: no -0.0.
            yield self._next(amplify(samples, line.gain_db) + np.float32(0), mark=mark, last=last)

    def end(self) -> Iterator[SceneChunk]:
        """Yield the silence after the last line."""
        yield from self._pause(len(self.lines))

    def _pause(self, index: int) -> Iterator[SceneChunk]:
        left, portion = self._silences[index], round(PAUSE_PORTION_S * self.rate)
        while left:
            zeros = np.zeros(min(left, portion), dtype=np.float32)
            left -= len(zeros)
            yield self._next(zeros, in_line=False, last=index == len(self.lines) and not left)

    def _next(
        self, samples: np.ndarray, mark: LineMark | None = None, in_line: bool = True, last: bool = False
    ) -> SceneChunk:
        start, self._at = self._at, self._at + len(samples)
        return SceneChunk(samples, in_line, start, mark, last)


class Player(Protocol):
    """Plays sound, such as ComfyUI's page."""

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""

    def begin(self, name: str, text: str) -> None:
        """Say which line comes next: its character or setting, and its words."""

    def play(self, samples: np.ndarray) -> None:
        """Play samples, float ``[n]``."""

    def show_words(self, line: int, words: Sequence[WordTime]) -> None:
        """Say when the words of a line are heard, in seconds from its beginning; ``line``: counts calls of ``begin``.

        A line may not have begun yet, or be heard already.
        """


class ScenePlayer:
    """Plays a script while it is made, in the order of its lines.

    Args:
        scene: the script, of which nothing was heard yet.
        player: plays it.
        words: returns the words of a line, as it was spoken; None: the player gets none.
    """

    def __init__(
        self, scene: Scene, player: Player, words: Callable[[Spoken], Sequence[WordTime]] | None = None
    ):
        self._scene, self._player, self._words = scene, player, words
        self._heard: dict[int, list[np.ndarray]] = {}  # as far as it was played
        self._complete: dict[int, np.ndarray] = {}  # lines that are heard when they are complete

    def listen(self, listener: Listener) -> Listener:
        """Return what hears the lines, for ``speak_lines``; ``listener`` hears of their progress."""
        if not self._player.is_heard:
            return listener
        return Listener(listener.on_frame, listener.on_phase, self._add, self._end)

    def _add(self, index: int, samples: np.ndarray) -> None:
        self._heard.setdefault(index, [])
        if self._scene.needs_all(index):
            self._play_complete(index)
        else:
            self._play(index, samples)

    def _end(self, index: int, spoken: Spoken) -> None:
        if self._words is not None and spoken.report.takes == 1:  # another take is not what was heard
            speed = retiming_of(self._scene.lines[index]).speed
            self._player.show_words(index, retime_words(self._words(spoken), speed))
        if self._scene.needs_all(index):
            self._complete[index] = spoken.waveform
            self._play_complete(index)

    def _play_complete(self, index: int) -> None:
        """Play a line whose turn it is, if it is complete."""
        if index in self._heard and index in self._complete:
            self._play(index, self._complete.pop(index))

    def _play(self, index: int, samples: np.ndarray) -> None:
        self._play_chunks(self._scene.add(index, samples), self._heard[index])

    def _play_chunks(self, chunks: Iterator[SceneChunk], heard: list[np.ndarray]) -> None:
        for chunk in chunks:
            if chunk.mark is not None:
                self._player.begin(chunk.mark.name, chunk.mark.text)
            if chunk.in_line:
                heard.append(chunk.samples)
            self._player.play(chunk.samples)

    def finish(self, spoken: Sequence[Spoken]) -> None:
        """Play the silence at the end, and each line again that was heard otherwise than it is in ``spoken``."""
        if not self._player.is_heard:
            return
        self._play_chunks(self._scene.end(), [])
        for index, one in enumerate(spoken):
            if not np.array_equal(np.concatenate([*self._heard[index], NOTHING]), one.waveform):
                self._player.begin(f"{one.report.name} again".strip(), one.report.text)
                self._player.play(one.waveform)


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

    Other arguments and errors are those of ``stream_lines``.

    Raises:
        ScriptError: for a script that cannot be read.
        ValueError: as ``stream_lines``, and for more silence than a track may have.
    """
    options = options or GenerateOptions()
    parsed, lines = read_script(SynthesizerChecks(synthesizer), script, options)
    scene = Scene(parsed, script.gap_s, synthesizer.model.sample_rate)
    stream = stream_lines(synthesizer, lines, options, on_frame, in_turn=True)
    return ScriptStream(stream, scene, lambda spoken: assemble(parsed, lines, spoken, script))


class ScriptStream:
    """An iterator over the sound of a scene. Close it, or leave its ``with``, to end the decoding within a frame."""

    def __init__(
        self, stream: SpeechStream, scene: Scene, assemble_lines: Callable[[Sequence[Spoken]], Dialogue]
    ):
        self.sample_rate, self.lines = stream.sample_rate, len(scene.lines)
        self._stream, self._assemble, self._closed = stream, assemble_lines, False
        # Not a method: its generator would refer to this object, which then is not freed when it is dropped.
        self._sound = _sound_of(stream, scene)

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
        return self._assemble(self._stream.spoken)


def _sound_of(stream: SpeechStream, scene: Scene) -> Iterator[SceneChunk]:
    """Yield the sound of a scene from the chunks of its lines, which come side by side."""
    waiting: list[list[Chunk]] = [[] for _ in scene.lines]
    turn = 0
    for came in stream:
        waiting[came.line].append(came)
        while turn < len(waiting) and (chunks := waiting[turn]):
            ends = chunks[-1].last
            if scene.needs_all(turn) and not ends:
                break
            waiting[turn] = []
            yield from scene.add(turn, np.concatenate([chunk.samples for chunk in chunks]), ends)
            turn += ends
            if turn == len(waiting):
                yield from scene.end()
