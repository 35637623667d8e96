"""The voice library nodes: Save Voice and Load Voice."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from comfy_api.latest import io, ui

from ...morph.runtime.atomic_file import FileState
from ...morph.voice.file import holds_voice
from ...morph.voice.fits import Needs
from ...morph.voice.library import is_recording, load_source, save_list, save_source, source_states
from ...morph.voice.voice import Voice
from ...serve.terminal.folders import VOICE_FOLDER
from .. import inputs
from ..folders import NO_VOICE, local_checkpoints, voice_library
from ..inputs import ModelSocket, VoiceSocket, listed, schema
from ..models.values import ManagedModel, ServedModel, check_model, check_voice
from .saved_voices import Fingerprint, saved_voices

NO_LIST = "cannot list the voice library"


class SaveVoice(io.ComfyNode):
    define_schema = schema(
        "MorphTTSSaveVoice",
        inputs=lambda: [
            VoiceSocket.Input("voice"),
            io.String.Input("name", default="my voice"),
            io.Boolean.Input("overwrite", default=False),
        ],
        outputs=[VoiceSocket.Output("saved_voice")],
        is_output_node=True,
    )

    validate_inputs = inputs.judged(name=lambda name: voice_library().path(name))

    @classmethod
    def fingerprint_inputs(cls, name: str | None = None, **_: Any) -> Fingerprint:
        """Change when the file is deleted or replaced, so that ComfyUI runs the node and saves the voice again.

        The node's own save is no change: all nodes after it would run again.
        """
        return None if name is None else saved_voices().fingerprint(voice_library().path(name))

    @classmethod
    def execute(cls, voice: Voice, name: str, overwrite: bool) -> io.NodeOutput:
        check_voice(voice)
        path = voice_library().path(name)
        named = replace(voice, name=path.stem)
        if holds_voice(path, named):  # leave the file alone: it would count as changed
            save_list(named, path)
            return io.NodeOutput(named, ui=ui.PreviewText(f"{VOICE_FOLDER}/{path.name} already contains this voice"))
        if path.exists() and (path.is_dir() or not overwrite):
            raise ValueError(f"a voice named {path.stem!r} already exists: choose another name, or turn on overwrite")
        with saved_voices().saving(path):
            save_source(named, path)
        shown, name, preset = f"saved {VOICE_FOLDER}/{path.name}", path.stem, Needs("", speakers=(path.stem,))
        if any(preset.are_met_by(config) for config in local_checkpoints().values()):
            shown += f"\n{name} is also a preset speaker: a script that names {name} now gets the saved voice"
        return io.NodeOutput(named, ui=ui.PreviewText(shown))


class LoadVoice(io.ComfyNode):
    define_schema = schema(
        "MorphTTSLoadVoice",
        inputs=lambda: [
            inputs.choice("name", listed(NO_LIST, lambda: voice_library().sources(), NO_VOICE)),
            ModelSocket.Input("model", optional=True),
        ],
        outputs=[VoiceSocket.Output("loaded_voice")],
    )

    validate_inputs = inputs.judged(name=lambda name: is_recording(path := find_source(name)) or load_source(path))

    @classmethod
    def fingerprint_inputs(cls, name: str | None = None, **_: Any) -> tuple[FileState, ...]:
        """Change when the file, or what is written beside it, is replaced, so that ComfyUI loads it again."""
        try:
            return source_states(voice_library().source(name or ""))
        except ValueError:
            return ()

    @classmethod
    def execute(cls, name: str, model: ManagedModel | ServedModel | None = None) -> io.NodeOutput:
        path = find_source(name)
        if model is not None:
            check_model(model)
        elif is_recording(path):
            raise ValueError(f"voice {name!r} is a recording: connect model, the checkpoint that is to clone it")
        voice = load_source(path, None if model is None else model.clone_recording)
        shown = [*voice.notes, *filter(None, [voice.recipe])]
        return io.NodeOutput(voice, ui=ui.PreviewText("\n".join(shown))) if shown else io.NodeOutput(voice)


def find_source(name: str) -> Path:
    """Return the file of a voice or a recording; ValueError, naming the voices there are, if it does not exist."""
    inputs.check_word("name", name)
    if name == NO_VOICE:
        raise ValueError(f"name is {name!r}: save one with Save Voice, then press R and choose it")
    return voice_library().source(name)
