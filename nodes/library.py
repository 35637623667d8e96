"""The voice library nodes: Save Voice and Load Voice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io, ui

from . import inputs
from .folders import NO_VOICE, VOICE_FOLDER, list_voices, voice_library
from .linked import check_voice
from .saved_voices import FileState, Fingerprint, file_state, saved_voices
from .sockets import CATEGORY, VoiceSocket

if TYPE_CHECKING:
    from ..morph.voice.voice import Voice


class SaveVoice(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MorphTTSSaveVoice",
            display_name="Save Voice (Qwen3-TTS)",
            category=CATEGORY,
            description=(f"Saves a voice by name to the voice library, models/{VOICE_FOLDER} (safetensors)."),
            inputs=[
                inputs.voice("The voice to save. Required."),
                io.String.Input(
                    "name",
                    default="my voice",
                    tooltip=(
                        "The voice's name in the library: only letters, digits, spaces and - _ . , at most 80 "
                        "characters. Default: my voice."
                    ),
                ),
                io.Boolean.Input(
                    "overwrite",
                    default=False,
                    tooltip=(
                        "Replace a different voice saved under the same name; if off, this is an error. Default: off."
                    ),
                ),
            ],
            outputs=[
                VoiceSocket.Output(
                    "saved_voice", display_name="voice", tooltip="The same voice, with its name set."
                )
            ],
            is_output_node=True,
        )

    @classmethod
    def validate_inputs(cls, name: str | None = None) -> bool | str:
        return inputs.judge(name=(voice_path, name))

    @classmethod
    def fingerprint_inputs(cls, name: str | None = None, **_: Any) -> Fingerprint:
        """Change when the file is deleted or replaced, so that ComfyUI runs the node and saves the voice again.

        That the node itself saved the file is no change: all that follows the node would run again.
        """
        return None if name is None else saved_voices().fingerprint(voice_path(name))

    @classmethod
    def execute(cls, voice: Voice, name: str, overwrite: bool) -> io.NodeOutput:
        from ..morph.voice.file import holds_voice, save_voice

        check_voice(voice)
        path = voice_path(name)
        name = path.stem
        named = replace(voice, name=name)
        if holds_voice(path, named):  # leave the file alone: it would count as changed
            return io.NodeOutput(
                named, ui=ui.PreviewText(f"{VOICE_FOLDER}/{path.name} already contains this voice")
            )
        if path.exists() and (path.is_dir() or not overwrite):
            raise ValueError(
                f"a voice named {name!r} already exists: choose another name, or turn on overwrite"
            )
        with saved_voices().saving(path):
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
                    options=list_voices(),
                    tooltip="A saved voice. Press R to refresh the list. Default: the first voice.",
                ),
            ],
            outputs=[
                VoiceSocket.Output(
                    "loaded_voice",
                    display_name="voice",
                    tooltip="The voice. It works with checkpoints of the size it was made with.",
                )
            ],
        )

    @classmethod
    def validate_inputs(cls, name: str | None = None) -> bool | str:
        return inputs.judge(name=(read_voice, name))

    @classmethod
    def fingerprint_inputs(cls, name: str | None = None) -> FileState:
        """Change when the file is replaced, so that ComfyUI loads it again."""
        path = None if name is None else voice_library().files().get(name)
        return None if path is None else file_state(path)

    @classmethod
    def execute(cls, name: str) -> io.NodeOutput:
        return io.NodeOutput(read_voice(name))


def voice_path(name: str) -> Path:
    """Return the path under which a voice with this name is saved; ValueError if it is not a valid file name."""
    return voice_library().path(name)


def read_voice(name: str) -> Voice:
    """Load a voice from the library; ValueError, naming the voices there are, if it does not exist or is damaged."""
    inputs.check_word("name", name)
    if name == NO_VOICE:
        raise ValueError(f"name is {name!r}: save one with Save Voice, then press R and choose it")
    return voice_library().load(name)
