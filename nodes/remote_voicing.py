"""Lines and scripts spoken by a server, played in the page in their order while they come in any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .live import Speaker

if TYPE_CHECKING:
    from ..morph.render.dialogue import Dialogue, ScriptRequest
    from ..morph.render.lines import Line, Spoken
    from ..morph.text.script import Script
    from ..serve.remote.renderer import RemoteRenderer
    from .progress import Progress


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
        """Take the end of a line; one of which nothing has come is from before."""
        self._parts.setdefault(index, [spoken.waveform])
        self._ended.add(index)
        self._go_on()

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
        from ..morph.render.dialogue import amplify

        for samples in self._parts[index]:
            self.heard[index].append(amplify(samples, self.gains[index]))
            self.speaker.play(self.heard[index][-1])
        self._parts[index] = []


@dataclass(frozen=True)
class RemoteVoicing:
    """A server as ``Voicing``.

    Args:
        renderer: with the options of the node.
    """

    renderer: RemoteRenderer

    @property
    def name(self) -> str:
        """See ``Voicing``."""
        return f"{self.renderer.facts.model or 'unnamed'} at {self.renderer.facts.server.name}"

    @property
    def sample_rate(self) -> int:
        """See ``Voicing``."""
        return self.renderer.facts.sample_rate

    def speak_line(self, line: Line, progress: Progress, speaker: Speaker) -> Spoken:
        """See ``Voicing``."""
        [spoken] = self._speak([line], Playing(speaker, [line], [0], [None]), progress)
        return spoken

    def read_script(self, script: ScriptRequest) -> tuple[Script, list[Line]]:
        """See ``Voicing``."""
        from ..morph.render.dialogue import lines_of
        from ..morph.render.retime import check_retiming
        from ..morph.text.script import parse_script
        from .inputs import LANGUAGES

        languages = list(self.renderer.facts.languages or LANGUAGES)
        parsed = parse_script(script.text, list(script.cast), languages)
        check_retiming(parsed.lines)
        return parsed, lines_of(parsed, script)

    def speak_script(self, script: ScriptRequest, progress: Progress, speaker: Speaker) -> Dialogue:
        """See ``Voicing``."""
        from ..morph.render.dialogue import assemble, spacing_of
        from ..morph.render.retime import retiming_of
        from ..postprocess.join import silences

        parsed, lines = self.read_script(script)
        rate = self.sample_rate
        lead, between, tail = silences(spacing_of(parsed, script.gap_s), len(lines) - 1, rate)
        gaps = [lead, *between]
        # A line at another speed or pitch is changed when all of it has come.
        as_made = all(retiming_of(line).changes_nothing for line in parsed.lines)
        live = speaker if as_made else Speaker(None, None)
        playing = Playing(live, lines, gaps, [line.gain_db for line in parsed.lines])
        dialogue = assemble(parsed, self._speak(lines, playing, progress, checked=False), script)
        if not as_made:
            for gap, one in zip(gaps, dialogue.lines, strict=True):
                speaker.play(np.zeros(gap, dtype=np.float32))
                speaker.begin(one.report.name, one.report.text)
                speaker.play(one.waveform)
        speaker.play(np.zeros(tail, dtype=np.float32))
        if as_made:
            self._play_again(dialogue.lines, playing)
        return dialogue

    def _speak(
        self, lines: Sequence[Line], playing: Playing, progress: Progress, checked: bool = True
    ) -> list[Spoken]:
        """Speak lines; play those that were heard as other takes than they are (``checked``: here, at once)."""
        from ..serve.remote.renderer import Listener

        spoken = self.renderer.render(lines, Listener(progress, progress.say, playing.add, playing.end))
        if checked:
            self._play_again(spoken, playing)
        return spoken

    @staticmethod
    def _play_again(spoken: Sequence[Spoken], playing: Playing) -> None:
        for one, heard in zip(spoken, playing.heard, strict=True):
            playing.speaker.play_again(one, heard)

    def describe(self, spoken: Sequence[Spoken], elapsed_s: float) -> str:
        """See ``Voicing``."""
        from ..morph.render.report import compose, engines_of

        facts, options = self.renderer.facts, self.renderer.options
        flight = f"server {facts}, up to {options.batch_size} lines in flight"
        return compose(spoken, elapsed_s, [*engines_of(spoken), flight])
