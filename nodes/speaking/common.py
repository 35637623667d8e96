"""The base of the nodes that speak lines: Generate Speech, Render Script and Dub Captions."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web
from comfy_api.latest import io

from ...morph.checkpoint.files import read_object
from ...morph.checkpoint.find import DEMO_VOICE, PUBLISHED, fingerprint
from ...morph.options import GenerateOptions, LoadOptions, removed_in
from ...morph.setting import settings_of
from ...morph.speech.lines import Line, Spoken
from ...morph.text.scripts.script import Script, ScriptError, ScriptLine
from ...morph.voice.cast import PRESET, Character
from ...morph.voice.recording import read_recording
from ...morph.voice.voice import Voice, needs_of
from ...morph.words.timing import WordTime
from .. import inputs
from ..folders import kept_lines, local_checkpoint_paths, most_megabytes
from ..inputs import WordsSocket, schema
from ..models.values import AnyModel, ManagedModel, check_model, check_word_check, load_managed
from ..page.clips import Clip, to_clip
from ..page.live import PlayedSpeech, announce
from ..page.progress import show_progress
from ..sound.values import Facts, SpokenWords, describe_seeds, facts_of_line, to_audio, words_of
from ..voices.voices import PACKED
from .settings import lists_of

if TYPE_CHECKING:
    from ...morph.batch.speech import Speaks
    from ...morph.kept.render import Listener, RenderOptions
    from ...morph.script.dialogue import ScenePlayer

# The best comes first. VoiceDesign has no voice of its own.
PREFERRED = sorted(PUBLISHED, key=lambda name: ("Design" in name, "Custom" not in name, "1.7B" not in name))


class DefaultModel:
    """Keeps the last checkpoint loaded without a connected one while ComfyUI's cache has a node that may speak with it.

    ComfyUI creates and drops nodes in the thread that runs prompts. A model that another thread frees would change
    ComfyUI's list of loaded models, which that thread may be reading.
    """

    def __init__(self) -> None:
        self._kept: tuple[list[tuple[str, int, int]], ManagedModel] | None = None
        self._nodes = 0

    def keep_for(self, node: io.ComfyNode) -> None:
        self._nodes += 1
        weakref.finalize(node, self._forget_node).atexit = False

    def _forget_node(self) -> None:
        self._nodes -= 1
        if not self._nodes:
            self._kept = None

    def load(self, voices: Iterable[Voice], node: str | None) -> tuple[str, ManagedModel]:
        """Return the label of the best checkpoint on this machine that fits voices, and the checkpoint."""
        label, path = choose_checkpoint(voices)
        files = fingerprint(path)
        if self._kept is None or self._kept[0] != files:
            self._kept = None
            with show_progress(node) as progress:
                progress.say(f"loading {path.name}")
                self._kept = files, ManagedModel([load_managed(path, LoadOptions())])
        return label, self._kept[1]


APP_KEY = web.AppKey("qwen3_tts_morph.default_model", DefaultModel)  # where the server's application keeps it


def default_model() -> DefaultModel:
    from server import PromptServer

    app = PromptServer.instance.app  # type: ignore[attr-defined]  # set when ComfyUI starts
    return app.get(APP_KEY) or DefaultModel()


def choose_checkpoint(voices: Iterable[Voice]) -> tuple[str, Path]:
    here, needs = local_checkpoint_paths(), [needs_of(vars(voice)) for voice in voices]
    for label in (*PREFERRED[:-1], DEMO_VOICE, *here):
        if label in here and all(need.are_met_by(read_object(here[label] / "config.json")) for need in needs):
            return label, here[label]
    wanted = " and ".join(dict.fromkeys(map(str, needs))) or "complete"
    fix = "connect Load Qwen3-TTS Model"
    raise ValueError(f"model is not connected, and no checkpoint on this machine is {wanted}: {fix}")


def default_narrator(model: AnyModel) -> Character:
    """Return the narrator if none is connected: the model's first speaker, or the recording in the pack."""
    if speakers := model.speakers():
        return Character(PRESET, lambda: model.preset_voice(speakers[0], ""), speakers[0])
    if isinstance(model, ManagedModel) and model.first.can_clone:
        return Character("recording", lambda: model.clone_recording(read_recording(PACKED)), PACKED.stem)

    def refuse() -> Voice:
        raise ValueError("voice is not connected, and the model has no speakers: connect Design Voice or Load Voice")

    return Character("voice", refuse)


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


def to_audios(spoken: Sequence[Spoken], facts: Sequence[Facts]) -> list[dict[str, Any]]:
    return [to_audio(one.waveform, one.sample_rate, [known]) for one, known in zip(spoken, facts, strict=True)]


@dataclass(frozen=True)
class Performance:
    """The results of a speaking node. ``words`` have their times in each line's own audio."""

    lines: Sequence[Spoken]
    facts: Sequence[Facts]
    words: SpokenWords
    report: str
    outcome: str

    def audios(self) -> list[dict[str, Any]]:
        return to_audios(self.lines, self.facts)

    def clips(self) -> list[Clip]:
        return [to_clip(one, words=own.words) for one, own in zip(self.lines, self.words.lines, strict=True)]


@dataclass
class Stage:
    """A running node's speech backend; ``notes`` go into its report, ``player`` plays lines in the page."""

    model: AnyModel
    speaks: Speaks
    options: GenerateOptions
    render: RenderOptions
    listener: Listener
    page: PlayedSpeech
    notes: list[str]
    player: ScenePlayer | None = None
    started: float = field(default_factory=time.perf_counter)

    def speak(self, lines: Sequence[Line], script: Script, gap_s: float = 0.0) -> list[Spoken]:
        """Return the lines of a script; a listener gets them meanwhile."""
        from ...morph.kept.render import speak_lines
        from ...morph.script.dialogue import ScenePlayer

        def words(one: Spoken) -> Sequence[WordTime]:
            return words_of(self.speaks, [one]).lines[0].words

        self.player = ScenePlayer(script, gap_s, self.page, words)
        return speak_lines(self.speaks, lines, self.options, self.render, self.player.listen(self.listener))

    def end(
        self,
        asked: Sequence[Line],
        spoken: Sequence[Spoken],
        sources: Sequence[ScriptLine | None] = (None,),
    ) -> Performance:
        """Return the node's results.

        ``asked`` are the lines of the request, ``spoken`` the same at their final speed, ``sources`` their lines in the
        script.
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
        report = "\n\n".join(filter(None, [how, *self.notes, seeds, words.describe()]))
        return Performance(spoken, facts, words, report, outcome(spoken, elapsed))


class SpeakingNode(io.ComfyNode):
    def __init__(self) -> None:
        super().__init__()
        default_model().keep_for(self)

    @classmethod
    @contextmanager
    def stage(cls, given: Mapping[str, Any], cast: Mapping[str, Voice], is_live: bool = True) -> Iterator[Stage]:
        """Yield the backend for a node's inputs and the connected voices, by name.

        ValueError for unusable inputs, also in place of a ScriptError, whose type users should not see.
        """
        from ...morph.kept.render import Listener, RenderOptions

        check_speaking(given)
        node, prompt = cls.hidden.unique_id, cls.hidden.prompt or {}
        sent = prompt.get(node, {}).get("inputs", {})  # ComfyUI gives nodes no input that they do not have
        notes = [f"{name} is ignored: it was removed ({sent[name]})." for name in removed_in(sent)]
        model, options = given.get("model"), options_of(given)
        caches = given.get("reuse_lines", True) and most_megabytes()
        render = RenderOptions(kept_lines() if caches else None, given.get("word_check"))
        if model is None:
            label, model = default_model().load(cast.values(), node)
            notes.insert(0, f"No model is connected: {label} speaks.")
        with (
            model.open(options.batch_size, cast) as speaks,
            show_progress(node) as progress,
            announce(node if is_live else None, speaks.rate) as page,
        ):
            try:
                yield Stage(model, speaks, options, render, Listener(progress, progress.say), page, notes)
            except ScriptError as error:
                raise ValueError(str(error)) from None


def speaking_schema(node_id: str, inputs: Callable[[], list[Any]], outputs: Sequence[io.Output], **fields: Any) -> Any:
    words = WordsSocket.Output("words", is_output_list=fields.get("is_input_list", False))
    hidden = [io.Hidden.unique_id, io.Hidden.prompt]
    return schema(node_id, inputs, outputs=[*outputs, words], hidden=hidden, is_output_node=True, **fields)
