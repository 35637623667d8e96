"""The nodes that speak: Generate Speech, Render Script, Dub Captions, Speed/Quality Sweep; and Script From File."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from comfy_api.latest import io, ui

from ...morph.options import FitLimits, GenerateOptions, Sampling, parse_groups
from ...morph.speech.lines import Line, Spoken
from ...morph.text.encoding import read_text_file
from ...morph.text.names import name_key
from ...morph.text.scripts.captions import read_captions, read_dub
from ...morph.text.scripts.script import NARRATOR, Script, ScriptLine, check_script
from ...morph.voice.voice import Voice
from ...postprocess.checks import check_choice
from .. import inputs
from ..folders import chosen_file, chosen_state, input_files
from ..inputs import CastSocket, ModelSocket, PronunciationSocket, SamplingSocket, VoiceSocket, schema
from ..models.values import ManagedModel, check_cast, check_model, check_voice
from ..page.clips import show, to_clip
from ..page.live import announce
from ..page.progress import show_progress
from ..sound.values import describe_seeds, facts_of_line, to_audio
from .characters import find_characters, saved_states
from .common import Performance, SpeakingNode, check_speaking, default_narrator, options_of, speaking_schema, to_audios
from .settings import lists_of


class GenerateSpeech(SpeakingNode):
    define_schema = speaking_schema(
        "MorphTTSGenerateSpeech",
        advanced="split_chars guard decoding retries normalize_text trim_silence reuse_lines wrong_words",
        inputs=lambda: [
            ModelSocket.Input("model", optional=True),
            VoiceSocket.Input("voice", optional=True),
            inputs.text_box("text", "Hello! One knob decides how much of my voice is computed step by step."),
            inputs.language(),
            inputs.seq_groups(),
            inputs.seed(),
            SamplingSocket.Input("sampling", optional=True),
            inputs.setting("split_chars", optional=True),
            inputs.setting("guard", optional=True),
            *inputs.retries(),
            inputs.setting("wrong_words", optional=True),
            PronunciationSocket.Input("pronunciation", optional=True),
        ],
        outputs=[io.Audio.Output("audio", is_output_list=True), io.String.Output("report", is_output_list=True)],
        is_input_list=True,
    )

    validate_inputs = inputs.judged(True, text=inputs.check_text)

    @classmethod
    def execute(cls, **given: Sequence[Any]) -> io.NodeOutput:
        """Speak one text, or each text of a list. All texts are checked before the first one is spoken."""
        takes = inputs.spread(given)
        for number, take in enumerate(takes, start=1):
            check_take(take, "text" if len(takes) == 1 else f"text {number} of {len(takes)}")
        spoken = [cls.speak(take) for take in takes]
        told = [f"{one.outcome}\n{describe_seeds(one.facts)}" for one in spoken]
        reports = [one.report for one in spoken]
        clips = [clip for one in spoken for clip in one.clips()]
        shown = show("\n".join(told), clips, report="\n\n".join(reports))
        audios = [audio for one in spoken for audio in one.audios()]
        return io.NodeOutput(audios, reports, [one.words for one in spoken], ui=shown)

    @classmethod
    def speak(cls, take: dict[str, Any]) -> Performance:
        voice = take.get("voice")
        fields = {name: take[name] for name in ("text", "language", "seed")}
        with cls.stage(take, {"voice": voice} if voice else {}) as stage:
            if voice is None:
                narrator = default_narrator(stage.model)
                voice = narrator.make()
                stage.notes.append(f"No voice is connected: {narrator.origin} {narrator.voice} speaks.")
            line = Line(voice=voice, **fields, pronunciation=lists_of(take.get("pronunciation")))
            return stage.end([line], stage.speak([line], Script((ScriptLine(1, "", take["text"]),))))


def check_take(take: Mapping[str, Any], name: str) -> None:
    """Raise ValueError for inputs that cannot be spoken; ``name``: what errors call the text."""
    check_speaking(take)
    if take.get("voice") is not None:
        check_voice(take["voice"])
    options_of(take)
    inputs.check_text(take["text"], name)


EXAMPLE = """\
# The narrator speaks lines without a name. 'NAME: text' is for a name of Cast, the saved voices or the speakers.
Good morning! Did you sleep at all?
Not a minute. [pause 0.5]
[seed 7] Then let us walk. The rain has stopped.
"""
KINDS = (".txt", ".md", ".srt", ".vtt")
EXAMPLE_FILE = "example script (in the pack)"  # so that the node runs before a user has a file
EXAMPLE_PATH = Path(__file__).resolve().parents[2] / "workflows" / "example script.txt"


class RenderScript(SpeakingNode):
    define_schema = speaking_schema(
        "MorphTTSRenderScript",
        advanced="batch_size decoding retries normalize_text trim_silence reuse_lines sentence_subtitles wrong_words",
        inputs=lambda: [
            ModelSocket.Input("model", optional=True),
            CastSocket.Input("cast", optional=True),
            inputs.text_box("script", EXAMPLE),
            *inputs.batch(),
            inputs.number("gap", 0.3, (0.0, 60.0, 0.05)),
            SamplingSocket.Input("sampling", optional=True),
            *inputs.retries(),
            io.Boolean.Input("sentence_subtitles", default=False, optional=True),
            inputs.setting("wrong_words", optional=True),
            PronunciationSocket.Input("pronunciation", optional=True),
        ],
        outputs=[
            io.Audio.Output("lines", is_output_list=True),
            io.Audio.Output("audio"),
            io.String.Output("srt"),
            io.String.Output("report"),
        ],
    )

    validate_inputs = inputs.judged(script=check_script)

    fingerprint_inputs = inputs.changing("script", saved_states, saved_states)

    @classmethod
    def execute(
        cls, script: str, seed: int, gap: float, cast: dict[str, Voice] | None = None, **given: Any
    ) -> io.NodeOutput:
        from ...morph.script.dialogue import ScriptRequest, assemble, read_script

        check_cast(cast := cast or {})
        with cls.stage(given, cast) as stage:
            characters, lists = find_characters(stage.model, cast), lists_of(given.get("pronunciation"))
            request = ScriptRequest(script, characters, given["language"], seed, lists)
            read, lines = read_script(stage.speaks, request, stage.options)
            by_sentence = given.get("sentence_subtitles", False)
            scene = assemble(read, stage.speak(lines, read, gap), gap, by_sentence)
            stage.notes.append(characters.describe_found())
            result = stage.end(lines, scene.lines, read.lines)
        joined = to_audio(scene.joined, scene.sample_rate, result.facts)
        shown = show(result.outcome, result.clips(), report=result.report)
        words = result.words.at(scene.starts, scene.sample_rate)
        return io.NodeOutput(result.audios(), joined, scene.srt, result.report, words, ui=shown)


class ScriptFromFile(io.ComfyNode):
    define_schema = schema(
        "MorphTTSScriptFromFile",
        inputs=lambda: [inputs.choice("file", [*input_files(KINDS), EXAMPLE_FILE])],
        outputs=[io.String.Output("file_text")],
    )

    validate_inputs = inputs.judged(file=lambda name: read_file(name))

    fingerprint_inputs = inputs.changing("file", lambda name: chosen_state(name, KINDS, EXAMPLE_FILE))

    @classmethod
    def execute(cls, file: str) -> io.NodeOutput:
        text = read_file(file)
        lines = f"{len(text.splitlines())} lines, {len(text)} characters"
        return io.NodeOutput(text, ui=ui.PreviewText(f"{file}: {lines}"))


def read_file(name: str) -> str:
    text = read_text_file(EXAMPLE_PATH if name == EXAMPLE_FILE else chosen_file(name, KINDS))
    if not text.strip():
        raise ValueError(f"{name} is empty: write a text into it, and save it")
    return text


LATER, OVER = OVERLAPS = ("move later", "speak over the next")
CAPTIONS = """\
1
00:00:00,500 --> 00:00:02,500
Good morning! Did you sleep at all?

2
00:00:03,000 --> 00:00:04,200
Not a minute.

3
00:00:05,000 --> 00:00:07,500
Then let us walk. The rain has stopped.
"""


class DubCaptions(SpeakingNode):
    define_schema = speaking_schema(
        "MorphTTSDub",
        advanced="batch_size language max_speed overrun decoding retries normalize_text reuse_lines overlap "
        "read_sounds",
        inputs=lambda: [
            ModelSocket.Input("model", optional=True),
            inputs.text_box("captions", CAPTIONS),
            *inputs.batch(),
            inputs.setting("max_speed", FitLimits),
            inputs.setting("overrun", FitLimits),
            VoiceSocket.Input("voice", optional=True),
            CastSocket.Input("cast", optional=True),
            SamplingSocket.Input("sampling", optional=True),
            *inputs.retries(trims=False),
            inputs.choice("overlap", OVERLAPS, LATER, optional=True),
            io.Boolean.Input("read_sounds", default=False, optional=True),
            PronunciationSocket.Input("pronunciation", optional=True),
        ],
        outputs=[
            io.Audio.Output("lines", is_output_list=True),
            io.Audio.Output("audio"),
            io.String.Output("srt"),
            io.String.Output("misfits"),
            io.String.Output("report"),
        ],
    )

    validate_inputs = inputs.judged(captions=read_captions)

    fingerprint_inputs = inputs.changing("captions", saved_states, saved_states)

    @classmethod
    def execute(
        cls, captions: str, voice: Voice | None = None, cast: dict[str, Voice] | None = None, **given: Any
    ) -> io.NodeOutput:
        from ...morph.script.dialogue import ScriptRequest
        from ...morph.script.dub import DOES_NOT_FIT, assemble_dub, make_dub_lines

        overlap = check_choice("overlap", given.get("overlap", LATER), OVERLAPS)
        limits = FitLimits(given["max_speed"], given["overrun"], overlap == OVER)
        speakers = with_narrator(cast, voice)
        with cls.stage({**given, "trim_silence": True}, speakers, is_live=False) as stage:
            characters, lists = find_characters(stage.model, speakers), lists_of(given.get("pronunciation"))
            request = ScriptRequest(captions, characters, given["language"], given["seed"], lists)
            languages, sounds = stage.speaks.languages, given.get("read_sounds", False)
            dubbed, silent = read_dub(read_captions(captions), list(characters), languages, sounds)
            lines = make_dub_lines(stage.speaks, dubbed, request, stage.options, limits)
            script = Script(tuple(one.line for one in dubbed))
            dub = assemble_dub(dubbed, silent, stage.speak(lines, script), limits)
            sources = [replace(one.source.line, speed=one.speed) for one in dub.placed]
            stage.notes.append(characters.describe_found())
            result = stage.end(lines, [one.spoken for one in dub.placed], sources)
        clips = [
            clip if one.fits else replace(clip, problems=(*clip.problems, DOES_NOT_FIT))
            for clip, one in zip(result.clips(), dub.placed, strict=True)
        ]
        report = f"{dub.summary}\n\n{result.report}"
        shown = show(f"{dub.summary}\n{result.outcome}", clips, report=report)
        track = to_audio(dub.track, dub.sample_rate, result.facts)
        words = result.words.at([one.start for one in dub.placed], dub.sample_rate)
        return io.NodeOutput(result.audios(), track, dub.srt, dub.misfits, report, words, ui=shown)


def with_narrator(cast: Mapping[str, Voice] | None, voice: Voice | None) -> dict[str, Voice]:
    """Return the cast with the voice of captions that name none; ValueError for two of these."""
    check_cast(cast or {})
    speakers = dict(cast or {})
    if voice is None:
        return speakers
    check_voice(voice)
    if NARRATOR in {name_key(name) for name in speakers}:
        raise ValueError("voice is connected and the cast has a NARRATOR: disconnect one of them")
    return {**speakers, NARRATOR.upper(): voice}


class SweepNode(io.ComfyNode):
    define_schema = schema(
        "MorphTTSSweep",
        inputs=lambda: [
            ModelSocket.Input("model"),
            VoiceSocket.Input("voice"),
            inputs.text_box("text", "The same sentence, spoken faster and faster: can you hear the difference?"),
            inputs.language(),
            io.String.Input("seq_groups", default="1, 3, 5, 7, 15"),
            inputs.seed(),
            SamplingSocket.Input("sampling", optional=True),
        ],
        outputs=[io.Image.Output("plot"), io.Audio.Output("lines", is_output_list=True), io.String.Output("table")],
        hidden=[io.Hidden.unique_id],
        is_output_node=True,
    )

    validate_inputs = inputs.judged(text=inputs.check_text)

    @classmethod
    def execute(
        cls, model: ManagedModel, seq_groups: str, sampling: Sampling | None = None, **given: Any
    ) -> io.NodeOutput:
        from ...morph.study.plot import plot_sweep
        from ...morph.study.sweep import sweep, table

        check_model(model)
        check_voice(given["voice"])
        inputs.check_word("language", given["language"])
        line = Line(**given)
        groups = parse_groups(seq_groups)
        node, options = cls.hidden.unique_id, GenerateOptions(sampling=sampling)
        with model.use() as ready, show_progress(node) as progress, announce(node, ready.model.sample_rate) as page:

            def play(seq_groups: int, spoken: Spoken) -> None:
                page.begin(f"SEQ_GROUPS {seq_groups}", given["text"])
                page.play(spoken.waveform)

            result = sweep(ready, line, groups, options, progress, play)
        facts, clips, shown = [], [], []  # the node shows no table
        for one, row in zip(result.spoken, result.rows, strict=True):
            name, used = f"SEQ_GROUPS {row.seq_groups}", replace(options, seq_groups=row.seq_groups)
            facts.append(facts_of_line(line, one, used, ready.model.name))
            clips.append(to_clip(one, name))
            shown.append(f"{name}: {row.ms_per_frame:.1f} ms per frame, RTF {row.rtf:.3f}, distance {row.distance:.3f}")
        image = torch.from_numpy(plot_sweep(result)).float()[None] / 255
        text = "\n".join(shown)
        return io.NodeOutput(image, to_audios(result.spoken, facts), table(result), ui=show(text, clips, compare=True))
