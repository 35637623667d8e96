"""What Generate Speech and Render Script speak with, whichever engine it is: a model here, or a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..page.live import Speaker, speak_line, speak_script
from ..page.progress import Progress

if TYPE_CHECKING:
    from ...morph.kept.line_cache import LineCache
    from ...morph.kept.line_renderer import LineRenderer
    from ...morph.kept.word_check import WordCheck
    from ...morph.options import GenerateOptions
    from ...morph.script.dialogue import Dialogue, ScriptRequest
    from ...morph.speech.lines import Line, Spoken
    from ...morph.text.scripts.script import Script


@dataclass(frozen=True)
class SpeakOptions:
    """How lines are spoken: the engine's options, kept lines (None: none), a word check (None: none)."""

    generate: GenerateOptions
    cache: LineCache | None = None
    check: WordCheck | None = None


class Voicing(Protocol):
    """Speaks lines and scripts, with options that were chosen when it was opened."""

    @property
    def name(self) -> str:
        """The checkpoint's name."""

    @property
    def sample_rate(self) -> int:
        """In Hz."""

    def speak_line(self, line: Line, progress: Progress, speaker: Speaker) -> Spoken:
        """Speak one line; where somebody listens, while it is heard."""

    def read_script(self, script: ScriptRequest) -> tuple[Script, list[Line]]:
        """Return a script as it was read, and its lines; ScriptError if it cannot be read."""

    def speak_script(self, script: ScriptRequest, progress: Progress, speaker: Speaker) -> Dialogue:
        """Speak a script; where somebody listens, while it is heard."""

    def describe(self, spoken: Sequence[Spoken], elapsed_s: float) -> str:
        """Return the report of lines that took ``elapsed_s`` seconds."""


@dataclass(frozen=True)
class LocalVoicing:
    """The engine of this computer.

    Args:
        renderer: with the model at hand.
    """

    renderer: LineRenderer

    @property
    def name(self) -> str:
        """See ``Voicing``."""
        return self.renderer.synthesizer.model.name

    @property
    def sample_rate(self) -> int:
        """See ``Voicing``."""
        return self.renderer.synthesizer.model.sample_rate

    def speak_line(self, line: Line, progress: Progress, speaker: Speaker) -> Spoken:
        """See ``Voicing``."""
        return speak_line(self.renderer, line, progress, speaker)

    def read_script(self, script: ScriptRequest) -> tuple[Script, list[Line]]:
        """See ``Voicing``."""
        from ...morph.script.dialogue import read_script

        return read_script(self.renderer.synthesizer, script)

    def speak_script(self, script: ScriptRequest, progress: Progress, speaker: Speaker) -> Dialogue:
        """See ``Voicing``."""
        return speak_script(self.renderer, script, progress, speaker)

    def describe(self, spoken: Sequence[Spoken], elapsed_s: float) -> str:
        """See ``Voicing``."""
        from ...morph.speech.report import describe

        return describe(self.renderer.synthesizer.model, spoken, self.renderer.options, elapsed_s)
