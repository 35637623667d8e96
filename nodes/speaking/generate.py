"""The Generate Speech node."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ...morph.options import GenerateOptions
from .. import inputs
from ..models.linked import check_voice
from ..page.clips import show
from ..page.live import announce
from ..page.progress import show_progress
from ..schema import output, schema
from ..sound.facts import Facts, describe_seeds, facts_of_line
from ..sound.words import SpokenWords
from .common import check_speaking, ignored, options_of, to_audios, to_clips, words_output
from .kept_lines import once_of
from .not_connected import connected_model, default_narrator
from .pronunciation import lists_of

if TYPE_CHECKING:
    from ...morph.speech.lines import Spoken

DEFAULTS = GenerateOptions()


class GenerateSpeech(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSGenerateSpeech",
            "Generate Speech",
            "Turns text into speech with a voice. SEQ_GROUPS trades accuracy for speed.",
            advanced="split_chars guard decoding retries normalize_text trim_silence reuse_lines wrong_words",
            inputs=[
                inputs.model(optional=True),
                inputs.voice(
                    "The voice to speak with, from Clone, Preset, Design, Blend or Load Voice. Default: not connected, "
                    "the checkpoint's first speaker; a Base checkpoint clones the recording in the pack.",
                    optional=True,
                ),
                inputs.text("Hello! One knob decides how much of my voice is computed step by step."),
                inputs.language(),
                inputs.seq_groups(),
                inputs.seed("Random seed: the same seed and inputs give the same speech."),
                inputs.sampling(),
                inputs.number(
                    "split_chars",
                    DEFAULTS.split_chars,
                    (0, 10000, 10),
                    "A longer text is spoken in pieces of at most this length, cut at sentence ends and joined "
                    "with a crossfade. Shorter pieces keep voice and words steadier; each has a melody of its own. "
                    "If the checkpoint works best with shorter ones (the demo voice: 100), that limit applies "
                    "instead. 0 never splits; otherwise use 40 or more. Unit: characters. Default: "
                    f"{DEFAULTS.split_chars}.",
                    optional=True,
                    display_name="longest piece",
                ),
                inputs.switch(
                    "guard",
                    DEFAULTS.guard,
                    "Stop speech that loops or runs far longer than its text should take: you hear no minutes of "
                    "babble. The report says when this happens. Default: on.",
                    optional=True,
                    display_name="stop runaway speech",
                ),
                inputs.decoding(),
                inputs.retries(),
                inputs.normalize_text(),
                inputs.trim_silence(),
                inputs.reuse_lines(),
                inputs.word_check(),
                inputs.wrong_words(),
                inputs.pronunciation(),
            ],
            outputs=[
                output(io.Audio, "audio", "The speech: mono, 24 kHz.", many=True),
                output(
                    io.String,
                    "report",
                    "Any problems, then duration and speed, then model, SEQ_GROUPS and engine, then seeds.",
                    many=True,
                ),
                words_output("the speech", many=True),
            ],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt],
            is_input_list=True,
            is_output_node=True,
        )

    @classmethod
    def validate_inputs(cls, text: Sequence[str | None] = (None,)) -> bool | str:
        return inputs.judge(text=(inputs.check_text, text[0]))

    @classmethod
    def execute(cls, **given: Sequence[Any]) -> io.NodeOutput:
        """Speak one text, or each text of a list. All texts are checked before the first one is spoken."""
        takes = inputs.spread(given)
        for number, take in enumerate(takes, start=1):
            check_take(take, "text" if len(takes) == 1 else f"text {number} of {len(takes)}")
        spoken = [cls.speak(take) for take in takes]
        lines, facts, reports, outcomes, words = (list(part) for part in zip(*spoken, strict=True))
        clips = [to_clips([line], own)[0] for line, own in zip(lines, words, strict=True)]
        shown = show("\n".join(outcomes), clips, report="\n\n".join(reports))
        return io.NodeOutput(to_audios(lines, facts), reports, words, ui=shown)

    @classmethod
    def speak(cls, take: dict[str, Any]) -> tuple[Spoken, Facts, str, str, SpokenWords]:
        """Return one spoken text, its facts, its report, the report's first lines, and its words.

        ``take``: the node's inputs.
        """
        from ...morph.speech.lines import Line
        from ...morph.speech.report import outcome

        node, options, voice = cls.hidden.unique_id, options_of(take), take.get("voice")
        model, chosen = connected_model(take.get("model"), [voice] if voice else [], node)
        if voice is None:
            narrator = default_narrator(model)
            voice = narrator.make()
            chosen.append(f"No voice is connected: {narrator.origin} {narrator.voice} speaks.")
        chosen += ignored(cls.hidden)
        said = {name: take[name] for name in ("text", "language", "seed")}
        line = Line(voice=voice, **said, pronunciation=lists_of(take.get("pronunciation")))
        with (
            model.open(options, once_of(take)) as voicing,
            show_progress(node) as progress,
            announce(node, voicing.speaks.rate) as page,
        ):
            started = time.perf_counter()
            spoken = voicing.speak_line(line, progress, page)
            elapsed = time.perf_counter() - started
            facts = facts_of_line(line, spoken, options, voicing.speaks.name)
            words = voicing.words([spoken])
            seed = describe_seeds([facts])
            parts = [voicing.describe([spoken], elapsed), *chosen, seed, words.describe()]
            report = "\n\n".join(filter(None, parts))
        return spoken, facts, report, f"{outcome([spoken], elapsed)}\n{seed}", words


def check_take(take: Mapping[str, Any], name: str) -> None:
    """Raise ValueError for inputs of the node that cannot be spoken; ``name``: what errors call the text."""
    check_speaking(take)
    if take.get("voice") is not None:
        check_voice(take["voice"])
    options_of(take)
    inputs.check_text(take["text"], name)
