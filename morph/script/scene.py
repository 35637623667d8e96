"""Scripts as one continuous stream: lines and pauses in order, as they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...postprocess.join import silences
from ...postprocess.stretch import stretch
from ..kept.once import Listener
from ..speech.lines import Spoken
from ..text.scripts.script import Script, ScriptLine
from ..words.timing import WordTime, retime_words
from .dialogue import amplify, spacing_of
from .retime import retiming_of

PAUSE_PORTION_S = 1.0  # of a pause per chunk: the reader of a stream wants small ones
NOTHING = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class SceneChunk:
    """Samples of a scene, which follow those of the chunk before."""

    samples: np.ndarray  # float32 ``[n]``; zeros in a pause
    in_line: bool
    begins: ScriptLine | None = None  # the line that begins with this chunk


class Scene:
    """The stream of a script, made from its lines: each after its pause, at its speed, pitch and level.

    ``gap_s``: seconds of silence between lines, beside the script's own. Raises ValueError for more silence than a
    track may have.
    """

    def __init__(self, script: Script, gap_s: float, rate: int):
        self.lines, self.rate = script.lines, rate
        lead, gaps, tail = silences(spacing_of(script, gap_s), len(self.lines) - 1, rate)
        self._silences = [lead, *gaps, tail]
        self._begun = 0  # lines

    def needs_all(self, index: int) -> bool:
        """Return whether a line can play only when complete: speed and pitch need later samples."""
        return not retiming_of(self.lines[index]).changes_nothing

    def add(self, index: int, samples: np.ndarray) -> Iterator[SceneChunk]:
        """Yield the chunks that follow from a line's samples, float32 ``[n]``. Lines come in order."""
        line, begins = self.lines[index], None
        if index == self._begun:
            self._begun += 1
            yield from self._pause(index)
            begins = line
        if len(samples) and self.needs_all(index):
            samples = stretch(samples, self.rate, retiming_of(line))
        if len(samples) or begins is not None:
            # Adding zero turns -0.0 into 0.0, as in the track.
            yield SceneChunk(amplify(samples, line.gain_db) + np.float32(0), True, begins)

    def end(self) -> Iterator[SceneChunk]:
        """Yield the silence after the last line."""
        yield from self._pause(len(self.lines))

    def _pause(self, index: int) -> Iterator[SceneChunk]:
        left, portion = self._silences[index], round(PAUSE_PORTION_S * self.rate)
        while left:
            zeros = np.zeros(min(left, portion), dtype=np.float32)
            left -= len(zeros)
            yield SceneChunk(zeros, in_line=False)


class Player(Protocol):
    """Plays audio, such as ComfyUI's page."""

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""

    def begin(self, name: str, text: str) -> None:
        """Announce the next line: its character or setting, and its words."""

    def play(self, samples: np.ndarray) -> None:
        """Play samples, float ``[n]``."""

    def show_words(self, line: int, words: Sequence[WordTime]) -> None:
        """Show a line's word times, in seconds from its beginning; ``line`` counts the calls of ``begin``.

        The line may not have begun yet, or be over already.
        """


class ScenePlayer:
    """Plays a script while it is made, in the order of its lines; with ``words``, their times too."""

    def __init__(
        self, scene: Scene, player: Player, words: Callable[[Spoken], Sequence[WordTime]] | None = None
    ):
        self._scene, self._player, self._words = scene, player, words
        self._heard: dict[int, list[np.ndarray]] = {}  # the played samples
        self._complete: dict[int, np.ndarray] = {}  # lines that play only when complete

    def listen(self, listener: Listener) -> Listener:
        """Return the listener for ``speak_lines``; ``listener`` still gets the progress."""
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
        if self._words is not None and spoken.report.takes == 1:  # another take was not what played
            speed = retiming_of(self._scene.lines[index]).speed
            self._player.show_words(index, retime_words(self._words(spoken), speed))
        if self._scene.needs_all(index):
            self._complete[index] = spoken.waveform
            self._play_complete(index)

    def _play_complete(self, index: int) -> None:
        if index in self._heard and index in self._complete:
            self._play(index, self._complete.pop(index))

    def _play(self, index: int, samples: np.ndarray) -> None:
        self._play_chunks(self._scene.add(index, samples), self._heard[index])

    def _play_chunks(self, chunks: Iterator[SceneChunk], heard: list[np.ndarray]) -> None:
        for chunk in chunks:
            if chunk.begins is not None:
                self._player.begin(chunk.begins.name, chunk.begins.text)
            if chunk.in_line:
                heard.append(chunk.samples)
            self._player.play(chunk.samples)

    def finish(self, spoken: Sequence[Spoken]) -> None:
        """Play the silence at the end, and each line again whose final take differs from what was played."""
        if not self._player.is_heard:
            return
        self._play_chunks(self._scene.end(), [])
        for index, one in enumerate(spoken):
            if not np.array_equal(np.concatenate([*self._heard[index], NOTHING]), one.waveform):
                self._player.begin(f"{one.report.name} again".strip(), one.report.text)
                self._player.play(one.waveform)
