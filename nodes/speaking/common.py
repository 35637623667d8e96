"""The base of the nodes that speak lines: Generate Speech, Render Script and Dub Captions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ...morph.options import GenerateOptions, removed_in
from ...morph.setting import settings_of
from ...morph.text.scripts.script import Script, ScriptError, ScriptLine
from ...morph.voice.voice import Voice
from .. import inputs
from ..models.linked import check_model, check_word_check
from ..page.clips import Clip, to_clip
from ..page.live import PagePlayer, announce
from ..page.progress import show_progress
from ..schema import WordsSocket, output, schema
from ..sound.audio_io import Audio, to_audio
from ..sound.facts import Facts, describe_seeds, facts_of_line
from ..sound.words import SpokenWords, words_of
from .kept_lines import once_of
from .not_connected import APP_KEY, AnyModel, DefaultModel
from .pronunciation import lists_of

if TYPE_CHECKING:
    from ...morph.batch.speaks import Speaks
    from ...morph.kept.once import Listener, Once
    from ...morph.script.scene import ScenePlayer
    from ...morph.speech.lines import Line, Spoken
    from ...morph.words.timing import WordTime


def check_speaking(given: Mapping[str, Any]) -> None:
    if given.get("model") is not None:
        check_model(given["model"])
    check_word_check(given.get("word_check"))
    lists_of(given.get("pronunciation"))
    inputs.check_word("language", given["language"])


def options_of(given: Mapping[str, Any]) -> GenerateOptions:
    """Return how lines are spoken, from inputs by name; those that are missing have their defaults."""
    known = settings_of(GenerateOptions).values()
    options = {one.name: given[one.public] for one in known if one.public in given}
    return GenerateOptions(sampling=given.get("sampling"), **options)


def to_audios(spoken: Sequence[Spoken], facts: Sequence[Facts]) -> list[Audio]:
    return [
        to_audio(one.waveform, one.sample_rate, [known]) for one, known in zip(spoken, facts, strict=True)
    ]


@dataclass(frozen=True)
class Performance:
    """The spoken lines of a node, and what its outputs say of them. Words have their times in each line's sound."""

    lines: Sequence[Spoken]
    facts: Sequence[Facts]
    words: SpokenWords
    report: str
    outcome: str

    def audios(self) -> list[Audio]:
        return to_audios(self.lines, self.facts)

    def clips(self) -> list[Clip]:
        return [to_clip(one, words=own.words) for one, own in zip(self.lines, self.words.lines, strict=True)]


@dataclass
class Stage:
    """A running node's speech backend; ``notes`` go into its report, ``player`` plays lines in the page."""

    model: AnyModel
    speaks: Speaks
    options: GenerateOptions
    once: Once
    listener: Listener
    page: PagePlayer
    notes: list[str]
    player: ScenePlayer | None = None
    started: float = field(default_factory=time.perf_counter)

    def speak(self, lines: Sequence[Line], script: Script, gap_s: float = 0.0) -> list[Spoken]:
        """Return the lines of a script; a listener gets them meanwhile."""
        from ...morph.kept.once import speak_lines
        from ...morph.script.scene import ScenePlayer

        def words(one: Spoken) -> Sequence[WordTime]:
            return words_of(self.speaks, [one]).lines[0].words

        self.player = ScenePlayer(script, gap_s, self.speaks.rate, self.page, words)
        return speak_lines(self.speaks, lines, self.options, self.once, self.player.listen(self.listener))

    def end(
        self,
        asked: Sequence[Line],
        spoken: Sequence[Spoken],
        sources: Sequence[ScriptLine | None] = (None,),
        found: str = "",
        first: str = "",
    ) -> Performance:
        """Return what was spoken.

        ``asked`` are the lines of the request, ``spoken`` the same at their final speed, ``sources`` their lines in the
        script. ``found`` says which voices were found by their names; ``first`` begins the report.
        """
        from ...morph.speech.report import outcome

        if self.player is not None:
            self.player.finish(spoken)
        elapsed = time.perf_counter() - self.started
        facts = [
            facts_of_line(line, one, self.options, self.speaks.name, source)
            for line, one, source in zip(asked, spoken, sources, strict=True)
        ]
        words = words_of(self.speaks, spoken)
        how = self.speaks.describe(spoken, self.options, elapsed)
        seeds = describe_seeds(facts, [one.number or place for place, one in enumerate(spoken, start=1)])
        report = "\n\n".join(filter(None, [first, how, *self.notes, found, seeds, words.describe()]))
        return Performance(spoken, facts, words, report, outcome(spoken, elapsed))


class SpeakingNode(io.ComfyNode):
    @classmethod
    @contextmanager
    def stage(
        cls, given: Mapping[str, Any], cast: Mapping[str, Voice], is_live: bool = True
    ) -> Iterator[Stage]:
        """Yield the backend for a node's inputs and the connected voices, by name.

        ValueError for unusable inputs, also in place of a ScriptError, whose type users should not see.
        """
        from server import PromptServer

        from ...morph.kept.once import Listener

        check_speaking(given)
        node, prompt = cls.hidden.unique_id, cls.hidden.prompt or {}
        sent = prompt.get(node, {}).get("inputs", {})  # ComfyUI gives nodes no input that they do not have
        notes = [f"{name} is ignored: it was removed ({sent[name]})." for name in removed_in(sent)]
        model, options, once = given.get("model"), options_of(given), once_of(given)
        if model is None:
            app = PromptServer.instance.app  # type: ignore[attr-defined]  # set when ComfyUI starts
            keeper = app.get(APP_KEY, DefaultModel())
            label, model = keeper.load(cast.values(), node)
            notes.insert(0, f"No model is connected: {label} speaks.")
        with (
            model.open(options.batch_size, cast) as speaks,
            show_progress(node) as progress,
            announce(node if is_live else None, speaks.rate) as page,
        ):
            try:
                yield Stage(model, speaks, options, once, Listener(progress, progress.say), page, notes)
            except ScriptError as error:
                raise ValueError(str(error)) from None


def speaking_schema(node_id: str, **fields: Any) -> io.Schema:
    fields["outputs"].append(output(WordsSocket, "words", many=fields.get("is_input_list", False)))
    hidden = [io.Hidden.unique_id, io.Hidden.prompt]
    return schema(node_id, hidden=hidden, is_output_node=True, **fields)
