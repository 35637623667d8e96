"""The model and the voice that speak when none is connected."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from aiohttp import web

from ...morph.checkpoint.find import DEMO_VOICE, PUBLISHED, fingerprint
from ...morph.checkpoint.json_file import read_object
from ...morph.options import LoadOptions
from ...morph.voice.cast import PRESET, Part
from ...morph.voice.fits import needs_of
from ...morph.voice.recording import read_recording
from ...morph.voice.voice import Voice
from ..folders import local_checkpoint_paths
from ..models.memory import ManagedModel, load_managed
from ..models.remote import ServedModel
from ..page.progress import show_progress
from ..voices.voices import PACKED

# The best comes first. VoiceDesign has no voice of its own.
PREFERRED = sorted(PUBLISHED, key=lambda name: ("Design" in name, "Custom" not in name, "1.7B" not in name))

AnyModel: TypeAlias = ManagedModel | ServedModel


class DefaultModel:
    """Keeps the last checkpoint loaded without a connected one, as ComfyUI's cache keeps Load Model's."""

    def __init__(self) -> None:
        self._kept: tuple[list[tuple[str, int, int]], ManagedModel] | None = None

    def load(self, voices: Iterable[Voice], node: str | None) -> tuple[str, ManagedModel]:
        """Return the label of the best checkpoint on this machine that fits voices, and the checkpoint."""
        label, path = choose_checkpoint(voices)
        files = fingerprint(path)
        if self._kept is None or self._kept[0] != files:
            self._kept = None
            with show_progress(node) as progress:
                progress.say(f"loading {path.name}")
                self._kept = files, ManagedModel([load_managed(path, LoadOptions())])
        return label, self._kept[1]

    async def release(self, request: web.Request, _: web.StreamResponse) -> None:
        """Release the checkpoint when the page asks ComfyUI to free memory."""
        if request.path.endswith("/free"):
            self._kept = None


APP_KEY = web.AppKey("qwen3_tts_morph.default_model", DefaultModel)  # where the server's application keeps it


def choose_checkpoint(voices: Iterable[Voice]) -> tuple[str, Path]:
    here, needs = local_checkpoint_paths(), [needs_of(vars(voice)) for voice in voices]
    for label in (*PREFERRED[:-1], DEMO_VOICE, *here):
        if label in here and all(need.are_met_by(read_object(here[label] / "config.json")) for need in needs):
            return label, here[label]
    wanted = " and ".join(dict.fromkeys(map(str, needs))) or "complete"
    raise ValueError(
        f"model is not connected, and no checkpoint on this machine is {wanted}: connect Load Qwen3-TTS Model"
    )


def default_narrator(model: AnyModel) -> Part:
    """Return the narrator if none is connected: the model's first speaker, or the recording in the pack."""
    if speakers := model.speakers():
        return Part(PRESET, lambda: model.preset_voice(speakers[0], ""), speakers[0])
    if isinstance(model, ManagedModel) and model.first.can_clone:
        return Part("recording", lambda: model.clone_recording(read_recording(PACKED)), PACKED.stem)

    def refuse() -> Voice:
        raise ValueError(
            "voice is not connected, and the model has no speakers: connect Design Voice or Load Voice"
        )

    return Part("voice", refuse)
