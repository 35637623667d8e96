"""What nodes speak with: a model here, one on several devices, or a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...morph.batch.speaks import Speaks
    from ...morph.kept.once import Once
    from ...morph.options import GenerateOptions
    from ...morph.script.dialogue import Dialogue, ScriptRequest
    from ...morph.script.dub import Dub, DubRequest
    from ...morph.script.scene import ScenePlayer
    from ...morph.speech.lines import Line, Spoken
    from ...morph.words.timing import WordTime
    from ..page.live import PagePlayer
    from ..page.progress import Progress
    from ..sound.words import SpokenWords


@dataclass(frozen=True)
class Voicing:
    """Speaks lines, scripts and captions, with options that were chosen when it was opened."""

    speaks: Speaks
    options: GenerateOptions
    once: Once

    def speak_line(self, line: Line, progress: Progress, page: PagePlayer) -> Spoken:
        """Speak one line, and stream it to a page that listens."""
        from ...morph.script.scene import Scene, ScenePlayer
        from ...morph.text.scripts.script import Script, ScriptLine

        script = Script((ScriptLine(1, line.name, str(line.text)),))
        player = ScenePlayer(Scene(script, 0.0, self.speaks.rate), page, self._words_of_one)
        spoken = self._speak([line], progress, player)
        player.finish(spoken)
        return spoken[0]

    def speak_script(self, request: ScriptRequest, progress: Progress, page: PagePlayer) -> Dialogue:
        """Speak a script, and stream it to a page that listens."""
        from ...morph.script.dialogue import assemble, read_script
        from ...morph.script.scene import Scene, ScenePlayer

        parsed, lines = read_script(self.speaks, request, self.options)
        player = ScenePlayer(Scene(parsed, request.gap_s, self.speaks.rate), page, self._words_of_one)
        dialogue = assemble(parsed, lines, self._speak(lines, progress, player), request)
        player.finish(dialogue.lines)
        return dialogue

    def _speak(self, lines: Sequence[Line], progress: Progress, player: ScenePlayer) -> list[Spoken]:
        from ...morph.kept.once import Listener, speak_lines

        listener = player.listen(Listener(progress, progress.say))
        return speak_lines(self.speaks, lines, self.options, self.once, listener)

    def speak_captions(self, request: DubRequest, progress: Progress) -> Dub:
        from ...morph.kept.once import Listener
        from ...morph.script.dub import render_dub

        listener = Listener(progress, progress.say)
        return render_dub(self.speaks, request, self.options, self.once, listener)

    def words(self, spoken: Sequence[Spoken]) -> SpokenWords:
        """Return the words of lines spoken here; see ``words_of``."""
        from ..sound.words import words_of

        return words_of(self.speaks, spoken)

    def _words_of_one(self, spoken: Spoken) -> tuple[WordTime, ...]:
        return self.words([spoken]).lines[0].words

    def describe(self, spoken: Sequence[Spoken], elapsed_s: float) -> str:
        return self.speaks.describe(spoken, self.options, elapsed_s)
