"""The Generate Speech node."""

from collections.abc import Mapping, Sequence
from typing import Any

from comfy_api.latest import io

from ...morph.text.scripts.script import Script, ScriptLine
from .. import inputs
from ..models.memory import check_voice
from ..page.clips import show
from ..schema import ModelSocket, PronunciationSocket, SamplingSocket, VoiceSocket
from ..sound.values import describe_seeds
from .common import Performance, SpeakingNode, check_speaking, default_narrator, options_of, speaking_schema
from .pronunciation import lists_of


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
        outputs=[
            io.Audio.Output("audio", is_output_list=True),
            io.String.Output("report", is_output_list=True),
        ],
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
        from ...morph.speech.lines import Line

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
