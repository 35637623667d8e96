"""The node Render Script."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ...morph.options import GenerateOptions
from ...morph.text.scripts.script import check_script
from .. import inputs
from ..models.linked import check_cast
from ..page.clips import show
from ..page.live import announce
from ..page.progress import show_progress
from ..schema import output, schema
from ..sound.audio_io import to_audio
from ..sound.facts import Facts, describe_seeds, facts_of_line
from ..voices.saved_voices import FileState
from .characters import find_characters, saved_states
from .common import (
    check_speaking,
    ignored,
    options_of,
    plain_errors,
    to_audios,
    to_clips,
    words_output,
)
from .kept_lines import once_of
from .not_connected import connected_model
from .pronunciation import lists_of

if TYPE_CHECKING:
    from ...morph.script.dialogue import Dialogue
    from ...morph.voice.voice import Voice

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
            "MorphTTSRenderScript",
            "Render Script",
            "Speaks a script of 'NAME: text' lines, several lines in parallel. 'NAME (softly): text' gives an "
            "instruction. Tags: [pause 0.5], [seed 7], [take 2], [gain -3], [speed 1.1], [pitch -2], "
            "[lang German], [instruct whispering]. # starts a comment.",
            advanced="batch_size decoding retries normalize_text trim_silence reuse_lines sentence_subtitles "
            "wrong_words",
            inputs=[
                inputs.model(optional=True),
                inputs.cast(),
                inputs.text_box(
                    "script",
                    EXAMPLE,
                    "One 'NAME: text' per line. A tag before a name or a text applies to that line; alone on a "
                    "line, it applies to all lines below. Default: an example for ANNA and BEN.",
                ),
                inputs.seq_groups(),
                inputs.seed(
                    "Random seed: a line without [seed] gets its own, derived from this one, its name and its text."
                ),
                inputs.batch_size("lines"),
                inputs.language(),
                inputs.number(
                    "gap",
                    0.3,
                    (0.0, 60.0, 0.05),
                    "Silence between the lines of the joined track; the script's pauses are added to it. Unit: "
                    "seconds. Default: 0.3.",
                ),
                inputs.sampling(),
                inputs.decoding(),
                inputs.retries(),
                inputs.normalize_text(),
                inputs.trim_silence(),
                inputs.reuse_lines(),
                inputs.word_check(),
                inputs.switch(
                    "sentence_subtitles",
                    False,
                    "One subtitle for each sentence, at the time at which it is heard, instead of one for each "
                    "line. Default: off.",
                    optional=True,
                ),
                inputs.wrong_words(),
                inputs.pronunciation(),
            ],
            outputs=[
                output(
                    io.Audio,
                    "lines",
                    "Each line as a separate recording, in script order: mono, 24 kHz.",
                    many=True,
                ),
                output(io.Audio, "audio", "All lines joined into one track: mono, 24 kHz."),
                output(io.String, "srt", "Subtitles for the joined audio."),
                output(
                    io.String,
                    "report",
                    "Any problems, then duration and speed, then how each line ended, then seeds.",
                ),
                words_output("the joined audio"),
            ],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt],
            is_output_node=True,
        )

    @classmethod
    def validate_inputs(cls, script: str | None = None) -> bool | str:
        return inputs.judge(script=(check_script, script))

    @classmethod
    def fingerprint_inputs(
        cls, script: str | None = None, **_: Any
    ) -> list[tuple[str, tuple[FileState, ...]]]:
        """Change when a saved voice that the script may name is saved, replaced or deleted."""
        return saved_states(script)

    @classmethod
    def execute(
        cls,
        script: str,
        seed: int,
        gap: float,
        cast: dict[str, Voice] | None = None,
        sentence_subtitles: bool = False,
        **given: Any,
    ) -> io.NodeOutput:
        """Speak a script; ``given``: the inputs that other nodes have too."""
        from ...morph.script.dialogue import ScriptRequest
        from ...morph.speech.report import outcome

        check_speaking(given)
        check_cast(cast or {})
        node, options = cls.hidden.unique_id, options_of(given)
        model, chosen = connected_model(given.get("model"), (cast or {}).values(), node)
        chosen += ignored(cls.hidden)
        characters = find_characters(model, cast)
        lists = lists_of(given.get("pronunciation"))
        request = ScriptRequest(
            script, characters, given["language"], seed, gap, sentence_subtitles, pronunciation=lists
        )
        with (
            model.open(options, once_of(given), cast) as voicing,
            show_progress(node) as progress,
            announce(node, voicing.speaks.rate) as page,
        ):
            started = time.perf_counter()
            with plain_errors():
                dialogue = voicing.speak_script(request, progress, page)
            elapsed = time.perf_counter() - started
            facts = facts_of_script(dialogue, options, voicing.speaks.name)
            described = voicing.describe(dialogue.lines, elapsed)
            words = voicing.words(dialogue.lines)
            parts = [described, *chosen, characters.describe_found(), describe_seeds(facts), words.describe()]
            report = "\n\n".join(filter(None, parts))
        joined = to_audio(dialogue.joined, dialogue.sample_rate, facts)
        said = show(outcome(dialogue.lines, elapsed), to_clips(dialogue.lines, words), report=report)
        heard = words.at(dialogue.starts, dialogue.sample_rate)
        return io.NodeOutput(to_audios(dialogue.lines, facts), joined, dialogue.srt, report, heard, ui=said)


def facts_of_script(dialogue: Dialogue, options: GenerateOptions, checkpoint: str) -> list[Facts]:
    """Return the facts of each line of a script that was spoken."""
    facts = []
    for line, spoken, source in zip(dialogue.asked, dialogue.lines, dialogue.script.lines, strict=True):
        known = facts_of_line(line, spoken, options, checkpoint)
        later = {"gain_db": source.gain_db, "speed": source.speed, "pitch": source.pitch}
        facts.append(replace(known, settings={**known.settings, **later}))
    return facts
