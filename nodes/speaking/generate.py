"""The Generate Speech node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfy_api.latest import io

from ...morph.options import GenerateOptions
from .. import inputs
from ..models.linked import check_voice
from ..page.clips import show
from ..schema import output
from ..sound.facts import describe_seeds
from .common import Performance, SpeakingNode, check_speaking, options_of, speaking_schema
from .not_connected import default_narrator
from .pronunciation import lists_of

DEFAULTS = GenerateOptions()


class GenerateSpeech(SpeakingNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return speaking_schema(
            "MorphTTSGenerateSpeech",
            "Generate Speech",
            "Turns text into speech with a voice. SEQ_GROUPS trades accuracy for speed.",
            "the speech",
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
            ],
            is_input_list=True,
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
        told = [f"{one.outcome}\n{describe_seeds(one.facts)}" for one in spoken]
        reports = [one.report for one in spoken]
        clips = [clip for one in spoken for clip in one.clips()]
        shown = show("\n".join(told), clips, report="\n\n".join(reports))
        audios = [audio for one in spoken for audio in one.audios()]
        return io.NodeOutput(audios, reports, [one.words for one in spoken], ui=shown)

    @classmethod
    def speak(cls, take: dict[str, Any]) -> Performance:
        """Speak one text; ``take``: the node's inputs."""
        from ...morph.speech.lines import Line
        from ...morph.text.scripts.script import Script, ScriptLine

        voice = take.get("voice")
        said = {name: take[name] for name in ("text", "language", "seed")}
        with cls.stage(take, {"voice": voice} if voice else {}) as stage:
            if voice is None:
                narrator = default_narrator(stage.model)
                voice = narrator.make()
                stage.notes.append(f"No voice is connected: {narrator.origin} {narrator.voice} speaks.")
            line = Line(voice=voice, **said, pronunciation=lists_of(take.get("pronunciation")))
            return stage.end([line], stage.speak([line], Script((ScriptLine(1, "", take["text"]),))))


def check_take(take: Mapping[str, Any], name: str) -> None:
    """Raise ValueError for inputs of the node that cannot be spoken; ``name``: what errors call the text."""
    check_speaking(take)
    if take.get("voice") is not None:
        check_voice(take["voice"])
    options_of(take)
    inputs.check_text(take["text"], name)
