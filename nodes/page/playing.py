"""Lines that come in any order, played in the page in theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .live import Speaker

if TYPE_CHECKING:
    from ...morph.script.dialogue import Dialogue, ScriptRequest
    from ...morph.speech.lines import Line, Spoken
    from ...morph.text.scripts.script import Script


@dataclass
class Playing:
    """Plays lines in their order, whichever comes first; the one whose turn it is while it comes.

    Args:
        speaker: of the page.
        lines: what is spoken.
        gaps: samples of silence before each line.
        gains: in dB, None for as it is.
    """

    speaker: Speaker
    lines: Sequence[Line]
    gaps: Sequence[int]
    gains: Sequence[float | None]
    heard: list[list[np.ndarray]] = field(default_factory=list)  # by line, as far as they have been played
    _parts: dict[int, list[np.ndarray]] = field(default_factory=dict)  # not played yet
    _ended: set[int] = field(default_factory=set)

    def add(self, index: int, samples: np.ndarray) -> None:
        """Take samples of a line, float32 ``[n]``."""
        self._parts.setdefault(index, []).append(samples)
        self._go_on()

    def end(self, index: int, spoken: Spoken) -> None:
        """Take the end of a line; one of which nothing has come was kept."""
        self._parts.setdefault(index, [spoken.waveform])
        self._ended.add(index)
        self._go_on()

    def play_again(self, spoken: Sequence[Spoken]) -> None:
        """Play the lines that were heard as other takes than they are."""
        for one, heard in zip(spoken, self.heard, strict=True):
            self.speaker.play_again(one, heard)

    def _go_on(self) -> None:
        while True:
            turn = len(self.heard) - 1
            if turn < 0 or turn in self._ended:
                if turn + 1 not in self._parts:
                    return
                turn += 1
                self._begin(turn)
            self._play(turn)
            if turn not in self._ended:
                return

    def _begin(self, index: int) -> None:
        self.speaker.play(np.zeros(self.gaps[index], dtype=np.float32))
        self.speaker.begin(self.lines[index].name, str(self.lines[index].text))
        self.heard.append([])

    def _play(self, index: int) -> None:
        from ...morph.script.dialogue import amplify

        for samples in self._parts[index]:
            self.heard[index].append(amplify(samples, self.gains[index]))
            self.speaker.play(self.heard[index][-1])
        self._parts[index] = []


@dataclass(frozen=True)
class Scene:
    """A script that was read.

    Args:
        script: as it was read.
        lines: its lines.
        request: what was asked for.
        sample_rate: of the speech, in Hz.
    """

    script: Script
    lines: Sequence[Line]
    request: ScriptRequest
    sample_rate: int


def speak_in_order(scene: Scene, speaker: Speaker, speak: Callable[[Playing], list[Spoken]]) -> Dialogue:
    """Speak a script; play its lines and pauses in their order.

    Args:
        scene: the script.
        speaker: of the page.
        speak: returns the lines; meanwhile it adds their sound to what it is called with.
    """
    from ...morph.script.dialogue import assemble, spacing_of
    from ...morph.script.retime import retiming_of
    from ...postprocess.join import silences

    script, lines = scene.script, scene.lines
    spacing = spacing_of(script, scene.request.gap_s)
    lead, between, tail = silences(spacing, len(lines) - 1, scene.sample_rate)
    gaps = [lead, *between]
    # A line at another speed or pitch is changed when all of it has come.
    as_made = all(retiming_of(line).changes_nothing for line in script.lines)
    live = speaker if as_made else Speaker(None, None)
    playing = Playing(live, lines, gaps, [line.gain_db for line in script.lines])
    dialogue = assemble(script, speak(playing), scene.request)
    if not as_made:
        for gap, one in zip(gaps, dialogue.lines, strict=True):
            speaker.play(np.zeros(gap, dtype=np.float32))
            speaker.begin(one.report.name, one.report.text)
            speaker.play(one.waveform)
    speaker.play(np.zeros(tail, dtype=np.float32))
    if as_made:
        playing.play_again(dialogue.lines)
    return dialogue
