"""The Train Voice node: a LoRA and its voice from recordings of one speaker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import comfy.model_management as management
import folder_paths
import torch
from comfy_api.latest import io

from ...morph.checkpoint.adapter_file import read_adapter
from ...morph.hearing.whisper import check_installed
from ...morph.options import CONSENT, RECOGNISER, RECOGNISERS, TRAINING_UPDATES
from ...morph.runtime.atomic_file import FileState, file_state
from ...morph.speech.lines import Spoken
from ...morph.voice.recording import SUFFIXES, Recording
from .. import inputs
from ..folders import folders, voice_library
from ..inputs import ModelSocket, VoiceSocket, listed, schema
from ..models.load import load_recogniser
from ..models.values import ManagedModel, check_voice, shown
from ..page.clips import show, to_clip
from ..page.live import PlayedSpeech, announce
from ..page.progress import NodeProgress, show_progress
from ..sound.values import to_waveforms
from .voices import NO_RECOGNISER

if TYPE_CHECKING:
    from ...morph.training.train_voice import TrainedVoice, VoiceTraining
    from ...morph.training.trainer import Losses

NO_FOLDER, NO_LIST = "(no folder)", "cannot list the folders of recordings"
TRAINED_BY = {"rank": "rank", "layers": "layers", "rate": "rate", "batch_size": "batch"}  # inputs: fields of Training
NEEDED_BYTES = 4 << 30  # asked of ComfyUI beside the weights; an estimate


class TrainVoice(io.ComfyNode):
    define_schema = schema(
        "MorphTTSTrainVoice",
        advanced="recogniser layers rank steps rate batch_size",
        inputs=lambda: [
            ModelSocket.Input("model"),
            io.String.Input("name", default="my voice"),
            inputs.choice("folder", [NO_FOLDER, *listed(NO_LIST, recording_folders)], NO_FOLDER),
            inputs.choice("length", TRAINING_UPDATES, "normal"),
            io.Boolean.Input("consent", default=False),
            inputs.language(),
            io.Audio.Input("audio", optional=True),
            io.String.Input("transcripts", optional=True, force_input=True),
            VoiceSocket.Input("voice", optional=True),
            inputs.choice("recogniser", [NO_RECOGNISER, *RECOGNISERS], RECOGNISER, optional=True),
            inputs.choice("layers", ("predictor", "talker", "all"), "predictor", optional=True),
            inputs.number("rank", 16, (1, 128), optional=True),
            inputs.number("steps", 0, (0, 10_000), optional=True),
            inputs.number("rate", 1e-3, (1e-6, 1.0, 1e-6), optional=True),
            inputs.number("batch_size", 8, (1, 64), optional=True),
        ],
        outputs=[
            ModelSocket.Output("trained_model"),
            VoiceSocket.Output("trained_voice"),
            io.String.Output("report"),
            io.Image.Output("plot"),
        ],
        hidden=[io.Hidden.unique_id],
        is_input_list=True,
        is_output_node=True,
    )

    validate_inputs = inputs.judged(
        True,
        consent=lambda given: check_consent(given),
        name=lambda name: voice_library().path(name),
        folder=lambda name: find_folder(name),
        recogniser=lambda size: None if size == NO_RECOGNISER else check_installed(),
    )

    @classmethod
    def fingerprint_inputs(cls, folder: Sequence[str | None] = (None,), **_: Any) -> list[tuple[str, FileState]]:
        """Change with the files of the folder, so that ComfyUI runs the node again."""
        files = recording_folders().get(folder[0] or "", [])
        return [(path.name, file_state(path)) for path in files]

    @classmethod
    def execute(cls, audio: Sequence[Any] = (), transcripts: Sequence[str] = (), **given: Any) -> io.NodeOutput:
        from ...morph.training.trainer import plot_losses

        one = {name: values[0] for name, values in given.items() if values}
        model = one["model"]
        if not isinstance(model, ManagedModel):
            raise ValueError(f"model is {shown(model)}, which cannot be trained: connect Load Qwen3-TTS Model")
        check_consent(one["consent"])
        asked = request_of(one, [*audio], [*transcripts])
        display = cls.train(model, asked, one.get("recogniser", NO_RECOGNISER))
        trained = display.trained
        plot = torch.from_numpy(plot_losses(trained.history)).float()[None] / 255
        adapted = model.with_adapter(read_adapter(trained.folder), 1.0)
        clips = [to_clip(spoken, name) for name, spoken in display.samples]
        ui = show(trained.report, clips, compare=True)
        return io.NodeOutput(adapted, trained.voice, trained.report, plot, ui=ui)

    @classmethod
    def train(cls, model: ManagedModel, asked: VoiceTraining, recogniser: str) -> NodeDisplay:
        """Train on the model's device; its memory is free afterwards."""
        from ...morph.training.train_voice import Places, train_voice

        node, voice = cls.hidden.unique_id, voice_library().path(asked.name)
        places = Places(folders().adapters[0] / asked.name, voice)
        try:
            with (
                model.use(NEEDED_BYTES) as ready,
                show_progress(node) as progress,
                announce(node, ready.model.sample_rate) as page,
            ):
                whisper = None if recogniser == NO_RECOGNISER else load_recogniser(recogniser, progress)
                display = NodeDisplay(progress, page)
                display.trained = train_voice(ready.model, asked, whisper, places, display)
                return display
        finally:
            management.soft_empty_cache()


class NodeDisplay:
    """The training's ``Watcher`` on the node: its text, bar, plot of losses, and samples that are played."""

    trained: TrainedVoice

    def __init__(self, progress: NodeProgress, page: PlayedSpeech):
        self.say, self._progress, self._page = progress.say, progress, page
        self.samples: list[tuple[str, Spoken]] = []

    def advance(self, done: int, of: int, left: str) -> None:
        self._progress(done, of)
        self._progress.say(f"training: update {done} of {of}, {left} left")

    def show_losses(self, history: Sequence[Losses]) -> None:
        from ...morph.training.trainer import plot_losses

        self._progress.show_image(plot_losses(history))

    def play(self, name: str, sample: Spoken) -> None:
        self.samples.append((name, sample))
        self._page.begin(name, sample.report.text)
        self._page.play(sample.waveform)


def check_consent(given: object) -> None:
    if given is not True:
        raise ValueError(f"consent is off: {CONSENT}")


def recording_folders() -> dict[str, list[Path]]:
    """Return the folders in ComfyUI's input folder that have recordings, with their sounds and texts."""
    found = {}
    for folder in sorted(Path(folder_paths.get_input_directory()).iterdir()):
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        if any(path.suffix.lower() in SUFFIXES for path in files):
            found[folder.name] = [path for path in files if path.suffix.lower() in (*SUFFIXES, ".txt")]
    return found


def find_folder(name: str) -> Path | None:
    """Return a folder in ComfyUI's input folder, None for none; ValueError if it is not there."""
    inputs.check_word("folder", name)
    if name == NO_FOLDER:
        return None
    if name not in recording_folders():
        fix = "press R and choose another"
        raise ValueError(f"folder is {name!r}, which has no recordings in ComfyUI's input folder: {fix}")
    return Path(folder_paths.get_input_directory(), name)


def request_of(one: Mapping[str, Any], audio: Sequence[Any], transcripts: Sequence[str]) -> VoiceTraining:
    """Return the training that a node's inputs ask for; ValueError that names a wrong one."""
    from ...morph.training.pairs import read_folder
    from ...morph.training.train_voice import VoiceTraining
    from ...morph.training.trainer import Training

    if (voice := one.get("voice")) is not None:
        check_voice(voice)
    inputs.check_word("language", one["language"])
    folder = find_folder(one["folder"])
    recordings, refused = ([], {}) if folder is None else read_folder(folder)
    recordings = recordings + listed_recordings(audio, transcripts)
    if not recordings and not refused:
        raise ValueError("there are no recordings: choose a folder, or connect audio")
    given = {field: one[name] for name, field in TRAINED_BY.items() if name in one}
    options = Training(steps=one.get("steps") or TRAINING_UPDATES[one["length"]], **given)
    name = voice_library().path(one["name"]).stem
    return VoiceTraining(name, recordings, voice, one["language"], options, refused)


def listed_recordings(audio: Sequence[Any], transcripts: Sequence[str]) -> list[Recording]:
    found = [(one, sound["sample_rate"]) for sound in audio for one in to_waveforms(sound)]
    if (count := len(transcripts)) not in (0, len(found)):
        raise ValueError(f"transcripts are {count} and audio has {len(found)} recordings: connect one for each")
    texts = [*transcripts] or [""] * len(found)
    return [
        Recording(f"recording {number}", waveform, rate, text.strip() or None)
        for number, ((waveform, rate), text) in enumerate(zip(found, texts, strict=True), start=1)
    ]
