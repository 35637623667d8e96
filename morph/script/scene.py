"""Play a script while it is made: lines and pauses in order, as one continuous sound."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ...postprocess.join import silences
from ...postprocess.stretch import stretch
from ..kept.render import Listener
from ..speech.lines import Spoken
from ..text.scripts.script import Script
from ..words.timing import WordTime, retime_words
from .dialogue import amplify, retiming_of, spacing_of

PAUSE_PORTION_S = 1.0  # of a pause per chunk: the reader of a stream wants small ones


class Player(Protocol):
    """Plays audio, such as ComfyUI's page."""

    @property
    def has_listener(self) -> bool: ...
    def begin(self, name: str, text: str) -> None:
        """Announce the next line: its character or setting, and its words."""

    def play(self, samples: np.ndarray) -> None: ...
    def show_words(self, line: int, words: Sequence[WordTime]) -> None:
        """Show the word times of call ``line`` of ``begin``, which may not have come yet, or be over already."""


class ScenePlayer:
    """Plays a script while it is made: each line after its pause, at its speed, pitch and level, in order.

    ``gap_s``: seconds of silence between lines, beside the script's own; ``rate``: of the sound in Hz. ``words``: the
    word times of a spoken line. Raises ValueError for more silence than a track may have.
    """

    def __init__(
        self,
        script: Script,
        gap_s: float,
        rate: int,
        player: Player,
        words: Callable[[Spoken], Sequence[WordTime]] | None = None,
    ):
        self._lines, self._rate, self._player, self._words = script.lines, rate, player, words
        lead, gaps, tail = silences(spacing_of(script, gap_s), len(self._lines) - 1, rate)
        self._silences = [lead, *gaps, tail]
        self._played: dict[int, list[np.ndarray]] = {}

    def listen(self, listener: Listener) -> Listener:
        """Return the listener for ``speak_lines``; ``listener`` still gets the progress."""
        if not self._player.has_listener:
            return listener
        # Speed and pitch need later samples.
        retimed = {index for index, line in enumerate(self._lines) if not retiming_of(line).changes_nothing}
        return Listener(listener.on_frame, listener.on_phase, self._play, self._show_words, retimed)

    def _play(self, index: int, samples: np.ndarray) -> None:
        line, by = self._lines[index], retiming_of(self._lines[index])
        if index not in self._played:
            self._pause(index)
            self._player.begin(line.name, line.text)
        if len(samples) and not by.changes_nothing:
            samples = stretch(samples, self._rate, by)
        # Adding zero turns -0.0 into 0.0, as in the track.
        played = amplify(samples, line.gain_db) + np.float32(0)
        self._played.setdefault(index, []).append(played)
        self._player.play(played)

    def _show_words(self, index: int, spoken: Spoken) -> None:
        if self._words is not None and spoken.report.takes == 1:  # another take was not what played
            speed = retiming_of(self._lines[index]).speed
            self._player.show_words(index, retime_words(self._words(spoken), speed))

    def _pause(self, index: int) -> None:
        left, portion = self._silences[index], round(PAUSE_PORTION_S * self._rate)
        while left:
            self._player.play(np.zeros(min(left, portion), dtype=np.float32))
            left -= min(left, portion)

    def finish(self, spoken: Sequence[Spoken]) -> None:
        """Play the silence at the end, and each line again whose final take differs from what was played."""
        if not self._player.has_listener:
            return
        self._pause(len(self._lines))
        for index, one in enumerate(spoken):
            if not np.array_equal(np.concatenate(self._played[index]), one.waveform):
                self._player.begin(f"{one.report.name} again".strip(), one.report.text)
                self._player.play(one.waveform)
