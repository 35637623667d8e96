"""Scripts as one continuous sound: the lines and pauses of a scene in the order they are heard, as they are made."""

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

PAUSE_PORTION_S = 1.0  # of a pause in one chunk: the reader of a live stream wants small ones
NOTHING = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class SceneChunk:
    """Samples of a scene, which follow those of the chunk before.

    Args:
        samples: float32 ``[n]``: of one line, or zeros of a pause.
        in_line: whether they are of a line.
        begins: the line that begins with this chunk, or None.
    """

    samples: np.ndarray
    in_line: bool
    begins: ScriptLine | None = None


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
        self._begun = 0  # lines so far

    def needs_all(self, index: int) -> bool:
        """Return whether a line is played when it is complete: speed and pitch need what comes after a sample."""
        return not retiming_of(self.lines[index]).changes_nothing

    def add(self, index: int, samples: np.ndarray) -> Iterator[SceneChunk]:
        """Yield what follows for samples of a line, float32 ``[n]``. Lines come in their order."""
        line, begins = self.lines[index], None
        if index == self._begun:
            self._begun += 1
            yield from self._pause(index)
            begins = line
        if len(samples) and self.needs_all(index):
            samples = stretch(samples, self.rate, retiming_of(line))
        if len(samples) or begins is not None:
            # Zeros are added, as in the track: no -0.0.
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
        """Play the silence at the end, and each line again that was heard otherwise than it is in ``spoken``."""
        if not self._player.is_heard:
            return
        self._play_chunks(self._scene.end(), [])
        for index, one in enumerate(spoken):
            if not np.array_equal(np.concatenate([*self._heard[index], NOTHING]), one.waveform):
                self._player.begin(f"{one.report.name} again".strip(), one.report.text)
                self._player.play(one.waveform)
