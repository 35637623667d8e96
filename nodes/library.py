"""The voice library: Save Voice and Load Voice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from comfy_api.latest import io, ui

from . import inputs
from .folders import VOICE_FOLDER, VOICE_SUFFIX, list_voices, voice_library
from .names import check_name, confine
from .sockets import CATEGORY, VoiceSocket

if TYPE_CHECKING:
    from ..morph.voice import Voice


class SaveVoice(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MorphTTSSaveVoice",
            display_name="Save Voice (Qwen3-TTS)",
            category=CATEGORY,
            description=(
                f"Saves a voice under a name to the voice library, models/{VOICE_FOLDER} (safetensors)."
            ),
            inputs=[
                inputs.voice("The voice to save. Required."),
                io.String.Input(
                    "name",
                    default="my voice",
                    tooltip=(
                        "The voice's name in the library: letters, digits, spaces and - _ . only, at most 80 "
                        "characters. Default: my voice."
                    ),
                ),
                io.Boolean.Input(
                    "overwrite",
                    default=False,
                    tooltip="Replace a saved voice of the same name; off refuses to. Default: off.",
                ),
            ],
            outputs=[
                VoiceSocket.Output("saved_voice", display_name="voice", tooltip="The voice, with its name.")
            ],
            is_output_node=True,
        )

    @classmethod
    def validate_inputs(cls, name: str | None) -> bool | str:
        return inputs.refuse(check_name, name)

    @classmethod
    def execute(cls, voice: Voice, name: str, overwrite: bool) -> io.NodeOutput:
        from ..morph.voice_file import save_voice

        name = check_name(name)
        path = confine(voice_library(), name + VOICE_SUFFIX)
        if path.exists() and not overwrite:
            raise ValueError(
                f"a voice named {name!r} is saved already: choose another name, or turn overwrite on"
            )
        named = replace(voice, name=name)
        save_voice(named, path)
        return io.NodeOutput(named, ui=ui.PreviewText(f"saved {VOICE_FOLDER}/{path.name}"))


class LoadVoice(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MorphTTSLoadVoice",
            display_name="Load Voice (Qwen3-TTS)",
            category=CATEGORY,
            description=f"Loads a voice from the voice library, models/{VOICE_FOLDER}.",
            inputs=[
                io.Combo.Input(
                    "name",
                    options=list(list_voices()),
                    tooltip="A saved voice. Press R to see voices saved since. Default: the first.",
                ),
            ],
            outputs=[
                VoiceSocket.Output(
                    "loaded_voice",
                    display_name="voice",
                    tooltip="The voice, for checkpoints of the size that it was made with.",
                )
            ],
        )

    @classmethod
    def validate_inputs(cls, name: str | None) -> bool | str:
        return True if name is None or name in list_voices() else missing(name)

    @classmethod
    def fingerprint_inputs(cls, name: str) -> tuple[int, int] | None:
        """Changes when the file is replaced, so that it is loaded again."""
        path = list_voices().get(name)
        return None if path is None else (path.stat().st_mtime_ns, path.stat().st_size)

    @classmethod
    def execute(cls, name: str) -> io.NodeOutput:
        from ..morph.voice_file import load_voice

        path = list_voices().get(name)
        if path is None:
            raise ValueError(missing(name))
        return io.NodeOutput(load_voice(path))


def missing(name: str | None) -> str:
    """The sentence for a voice that the library lacks."""
    return f"voice {name!r} is not in the library: save one with Save Voice, press R, and choose it"
