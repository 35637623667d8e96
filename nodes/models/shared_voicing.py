"""Lines and scripts spoken with one checkpoint on several devices of this computer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..page.playing import Playing, Scene, speak_in_order
from .voicing import LocalVoicing

if TYPE_CHECKING:
    from ...morph.kept.shared_renderer import SharedRenderer
    from ...morph.script.dialogue import Dialogue, ScriptRequest
    from ...morph.speech.lines import Line, Spoken
    from ...morph.text.scripts.script import Script
    from ..page.live import Speaker
    from ..page.progress import Progress


@dataclass(frozen=True)
class SharedVoicing:
    """Several devices as ``Voicing``: scripts on all of them, a single line on the first.

    Args:
        renderer: with the models at hand.
    """

    renderer: SharedRenderer

    @property
    def _first(self) -> LocalVoicing:
        return LocalVoicing(self.renderer.renderers[0])

    @property
    def name(self) -> str:
        """See ``Voicing``."""
        return self._first.name

    @property
    def sample_rate(self) -> int:
        """See ``Voicing``."""
        return self._first.sample_rate

    def speak_line(self, line: Line, progress: Progress, speaker: Speaker) -> Spoken:
        """See ``Voicing``."""
        return self._first.speak_line(line, progress, speaker)

    def read_script(self, script: ScriptRequest) -> tuple[Script, list[Line]]:
        """See ``Voicing``."""
        return self._first.read_script(script)

    def speak_script(self, script: ScriptRequest, progress: Progress, speaker: Speaker) -> Dialogue:
        """See ``Voicing``."""
        from ...morph.script.dialogue import assemble
        from ...morph.speech.listener import Listener

        parsed, lines = self.read_script(script)
        quiet = Listener(progress, progress.say)
        if not speaker.is_heard:
            return assemble(parsed, self.renderer.render(lines, quiet), script)

        def speak(playing: Playing) -> list[Spoken]:
            heard = Listener(progress, progress.say, playing.add, playing.end)
            return self.renderer.render(lines, heard, in_order=True)

        return speak_in_order(Scene(parsed, lines, script, self.sample_rate), speaker, speak)

    def describe(self, spoken: Sequence[Spoken], elapsed_s: float) -> str:
        """See ``Voicing``."""
        return self._first.describe(spoken, elapsed_s)
