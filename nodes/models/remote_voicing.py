"""Lines and scripts spoken by a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..page.playing import Playing, Scene, speak_in_order

if TYPE_CHECKING:
    from ...morph.script.dialogue import Dialogue, ScriptRequest
    from ...morph.speech.lines import Line, Spoken
    from ...morph.text.scripts.script import Script
    from ...serve.remote.renderer import RemoteRenderer
    from ..page.live import Speaker
    from ..page.progress import Progress


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
        playing = Playing(speaker, [line], [0], [None])
        spoken = self._speak([line], playing, progress)
        playing.play_again(spoken)
        return spoken[0]

    def read_script(self, script: ScriptRequest) -> tuple[Script, list[Line]]:
        """See ``Voicing``."""
        from ...morph.script.dialogue import lines_of
        from ...morph.script.retime import check_retiming
        from ...morph.text.scripts.script import parse_script
        from ..inputs import LANGUAGES

        languages = list(self.renderer.facts.languages or LANGUAGES)
        parsed = parse_script(script.text, list(script.cast), languages)
        check_retiming(parsed.lines)
        return parsed, lines_of(parsed, script)

    def speak_script(self, script: ScriptRequest, progress: Progress, speaker: Speaker) -> Dialogue:
        """See ``Voicing``."""
        parsed, lines = self.read_script(script)
        scene = Scene(parsed, lines, script, self.sample_rate)
        return speak_in_order(scene, speaker, lambda playing: self._speak(lines, playing, progress))

    def _speak(self, lines: Sequence[Line], playing: Playing, progress: Progress) -> list[Spoken]:
        from ...morph.speech.listener import Listener

        on_sound = playing.add if playing.speaker.is_heard else Listener.on_sound
        return self.renderer.render(lines, Listener(progress, progress.say, on_sound, playing.end))

    def describe(self, spoken: Sequence[Spoken], elapsed_s: float) -> str:
        """See ``Voicing``."""
        from ...morph.speech.report import compose, engines_of

        facts, options = self.renderer.facts, self.renderer.options
        flight = f"server {facts}, up to {options.batch_size} lines in flight"
        return compose(spoken, elapsed_s, [*engines_of(spoken), flight])
