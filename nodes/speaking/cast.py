"""The nodes that give a script's characters their voices: one at a time, or all in one node."""

from dataclasses import replace
from typing import Any

from comfy_api.latest import io

from ...morph.voice.voice import Voice
from .. import inputs
from ..inputs import CastSocket, ModelSocket, VoiceSocket, schema
from ..models.values import AnyModel, check_cast, check_model, check_voice
from .characters import assign_voices, check_character, join_casts, read_names

VOICES = "voices"  # the group of inputs that grows
SLOT = "voice_"  # an input of the group: voices.voice_1
MOST_GROWN = 64
MOST_FIXED = 8  # where ComfyUI has no inputs that grow
EXAMPLE = "NARRATOR\nANNA\nBEN"


class CastNode(io.ComfyNode):
    define_schema = schema(
        "MorphTTSCast",
        inputs=lambda: [
            io.String.Input("name", default="ANNA"),
            VoiceSocket.Input("voice"),
            CastSocket.Input("cast", optional=True),
            ModelSocket.Input("model", optional=True),
        ],
        outputs=[CastSocket.Output("larger_cast")],
    )

    validate_inputs = inputs.judged(name=check_character)

    @classmethod
    def execute(
        cls, name: str, voice: Voice, cast: dict[str, Voice] | None = None, model: AnyModel | None = None
    ) -> io.NodeOutput:
        check_voice(voice)
        check_cast(cast or {})
        name = check_character(name)
        if model is not None:
            check_model(model)
            voice = replace(voice, by=model)
        return io.NodeOutput(join_casts(cast or {}, [(name, voice)]))


class WholeCast(io.ComfyNode):
    define_schema = schema(
        "MorphTTSWholeCast",
        inputs=lambda: [
            inputs.text_box("names", EXAMPLE),
            *voice_inputs(),
            CastSocket.Input("cast", optional=True),
        ],
        outputs=[CastSocket.Output("larger_cast")],
    )

    # Voices are checked when the node runs: ComfyUI from 0.13 on passes the inputs that grow, nested.
    validate_inputs = inputs.judged(names=read_names, voices=lambda _: True)

    @classmethod
    def execute(
        cls, names: str, cast: dict[str, Voice] | None = None, voices: dict[str, Any] | None = None, **fixed: Any
    ) -> io.NodeOutput:
        check_cast(cast or {})
        numbered = {}
        for name, voice in {**(voices or {}), **fixed}.items():
            if voice is not None:
                check_voice(voice, name)
                numbered[int(name.rpartition("_")[2])] = voice
        own = assign_voices(read_names(names), numbered)
        return io.NodeOutput(join_casts(cast or {}, own.items()))


def voice_inputs() -> list[io.Input]:
    """Return inputs that grow as voices are connected or, in older ComfyUIs, a fixed number of inputs.

    Both have the same names in a prompt, so that a workflow fits both.
    """
    growing: Any = getattr(io, "Autogrow", None)
    if growing is None:
        numbers = range(1, MOST_FIXED + 1)
        return [VoiceSocket.Input(f"{VOICES}.{SLOT}{number}", optional=number > 1) for number in numbers]
    voice = VoiceSocket.Input("voice", tooltip="The voice of the character in the same place among the names.")
    names = [f"{SLOT}{number}" for number in range(1, MOST_GROWN + 1)]
    template = growing.TemplateNames(input=voice, names=names, min=1)
    return [growing.Input(VOICES, template=template, tooltip="The characters' voices. Required: the first.")]
