"""The node Render Script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from comfy_api.latest import io

from ...morph.options import GenerateOptions, Sampling, check_decoding
from ...morph.text.scripts.script import ScriptError, check_script
from .. import inputs
from ..models.linked import check_cast, check_model, check_word_check
from ..models.memory import ManagedModel, ManagedModels
from ..models.remote import ServedModel
from ..page.clips import show, to_clip
from ..page.live import announce
from ..page.progress import show_progress
from ..schema import schema
from ..sockets import CATEGORY, CastSocket
from ..sound.audio_io import to_audio
from ..sound.facts import Facts, describe_seeds, facts_of_line
from .characters import find_characters
from .kept_lines import once_of

if TYPE_CHECKING:
    from ...morph.kept.word_check import WordCheck
    from ...morph.script.dialogue import Dialogue
    from ...morph.text.scripts.script import ScriptLine
    from ...morph.voice.voice import Voice

DEFAULTS = GenerateOptions()
EXAMPLE = """\
# NAME: what the character says. The names come from Cast, the saved voices or the speakers.
ANNA: Good morning! Did you sleep at all?
BEN: Not a minute. [pause 0.5]
[seed 7] ANNA: Then let us walk. The rain has stopped.
"""


class RenderScript(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="MorphTTSRenderScript",
            display_name="Render Script",
            category=CATEGORY,
            description=(
                "Speaks a script of 'NAME: text' lines, several lines in parallel. 'NAME (softly): text' gives an "
                "instruction. Tags: [pause 0.5], [seed 7], [take 2], [gain -3], [speed 1.1], [pitch -2], "
                "[lang German], [instruct whispering]. # starts a comment."
            ),
            inputs=[
                inputs.model(),
                CastSocket.Input(
                    "cast",
                    optional=True,
                    tooltip=(
                        "The characters' voices, from Cast or Whole Cast. A name that it does not have is looked up "
                        "among the saved voices, then among the checkpoint's speakers. Default: not connected."
                    ),
                ),
                io.String.Input(
                    "script",
                    multiline=True,
                    default=EXAMPLE,
                    dynamic_prompts=False,
                    tooltip=(
                        "One 'NAME: text' per line. A tag before a name or a text applies to that line; alone on a "
                        "line, it applies to all lines below. Default: an example for ANNA and BEN."
                    ),
                ),
                inputs.seq_groups(),
                inputs.seed(
                    "Random seed: a line without [seed] gets its own, derived from this one, its name and its text."
                ),
                inputs.batch_size("lines"),
                inputs.language(),
                io.Float.Input(
                    "gap",
                    default=0.3,
                    min=0.0,
                    max=60.0,
                    step=0.05,
                    tooltip=(
                        "Silence between the lines of the joined track; the script's pauses are added to it. Unit: "
                        "seconds. Default: 0.3."
                    ),
                ),
                inputs.sampling(),
                inputs.advanced(inputs.decoding()),
                inputs.advanced(inputs.retries()),
                inputs.advanced(inputs.normalize_text()),
                inputs.trim_silence(),
                inputs.advanced(inputs.reuse_lines()),
                inputs.word_check(),
                io.Boolean.Input(
                    "sentence_subtitles",
                    default=False,
                    optional=True,
                    tooltip=(
                        "One subtitle for each sentence, at the time at which it is heard, instead of one for each "
                        "line. Default: off."
                    ),
                ),
            ],
            outputs=[
                io.Audio.Output(
                    "lines",
                    display_name="lines",
                    is_output_list=True,
                    tooltip="Each line as a separate recording, in script order: mono, 24 kHz.",
                ),
                io.Audio.Output(
                    "audio", display_name="audio", tooltip="All lines joined into one track: mono, 24 kHz."
                ),
                io.String.Output("srt", display_name="srt", tooltip="Subtitles for the joined audio."),
                io.String.Output(
                    "report",
                    display_name="report",
                    tooltip="Any problems, then duration, RTF and ms per frame, then how each line ended.",
                ),
            ],
            hidden=[io.Hidden.unique_id],
            is_output_node=True,
        )

    @classmethod
    def validate_inputs(
        cls,
        script: str | None = None,
        language: str | None = None,
        decoding: str | None = None,
        normalize_text: str | None = None,
    ) -> bool | str:
        return inputs.judge(
            language=(inputs.check_language, language),
            decoding=(check_decoding, decoding),
            normalize_text=(inputs.check_normalize, normalize_text),
            script=(check_script, script),
        )

    @classmethod
    def execute(
        cls,
        model: ManagedModel | ManagedModels | ServedModel,
        script: str,
        seq_groups: int,
        seed: int,
        batch_size: int,
        language: str,
        gap: float,
        cast: dict[str, Voice] | None = None,
        sampling: Sampling | None = None,
        decoding: str = DEFAULTS.decoding,
        retries: int = DEFAULTS.retries,
        normalize_text: str = DEFAULTS.normalize,
        trim_silence: bool = DEFAULTS.trim_ends,
        reuse_lines: bool = True,
        word_check: WordCheck | None = None,
        sentence_subtitles: bool = False,
    ) -> io.NodeOutput:
        from ...morph.script.dialogue import ScriptRequest
        from ...morph.speech.report import outcome

        check_model(model)
        check_cast(cast or {})
        check_word_check(word_check)
        inputs.check_word("language", language)
        inputs.check_normalize(normalize_text)
        options = GenerateOptions(
            seq_groups,
            sampling,
            batch_size,
            decoding=decoding,
            retries=retries,
            normalize=normalize_text,
            trim_ends=trim_silence,
        )
        characters = find_characters(model, cast)
        request = ScriptRequest(script, characters, language, seed, gap, sentence_subtitles)
        node, once = cls.hidden.unique_id, once_of(reuse_lines, word_check)
        with (
            model.open(options, once) as voicing,
            show_progress(node) as progress,
            announce(node, voicing.speaks.rate) as page,
        ):
            started = time.perf_counter()
            with plain_errors():
                dialogue = voicing.speak_script(request, progress, page)
            elapsed = time.perf_counter() - started
            facts = facts_of_script(dialogue, options, voicing.speaks.name)
            described = voicing.describe(dialogue.lines, elapsed)
            report = "\n\n".join(
                filter(None, [described, characters.describe_found(), describe_seeds(facts)])
            )
        lines = [
            to_audio(line.waveform, line.sample_rate, [known])
            for line, known in zip(dialogue.lines, facts, strict=True)
        ]
        joined = to_audio(dialogue.joined, dialogue.sample_rate, facts)
        clips = [to_clip(line) for line in dialogue.lines]
        said = show(outcome(dialogue.lines, elapsed), clips, report=report)
        return io.NodeOutput(lines, joined, dialogue.srt, report, ui=said)


def facts_of_script(dialogue: Dialogue, options: GenerateOptions, checkpoint: str) -> list[Facts]:
    """Return the facts of each line of a script that was spoken."""
    facts = []
    for line, spoken, source in zip(dialogue.asked, dialogue.lines, dialogue.script.lines, strict=True):
        known = facts_of_line(line, spoken, options, checkpoint)
        facts.append(replace(known, settings={**known.settings, **finish_of(source)}))
    return facts


def finish_of(line: ScriptLine) -> dict[str, float | None]:
    """Return what a script asks for that is done to a line after it was spoken."""
    return {"gain_db": line.gain_db, "speed": line.speed, "pitch": line.pitch}


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn ScriptError into ValueError: the page shows the type with its module path, which users should not see."""
    try:
        yield
    except ScriptError as error:
        raise ValueError(str(error)) from None
