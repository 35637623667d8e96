"""Train a voice: check its recordings, train a LoRA on them, and save it with the voice that belongs to it."""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from ..batch.batch import Batch
from ..checkpoint.adapter_file import adapt
from ..hearing.whisper import Whisper
from ..kept.render import in_words, speak_lines
from ..model.model import Model
from ..model.names import KIND_NAMES
from ..options import GenerateOptions
from ..runtime.atomic_file import name_beside
from ..speech.lines import Line, Spoken
from ..synthesizer import Engine, Synthesizer
from ..voice.create import CloneOptions, clone_voice
from ..voice.file import load_voice, save_voice, voice_digest
from ..voice.library import save_source
from ..voice.recording import Recording
from ..voice.voice import Voice
from .pairs import Selection, check_recordings, check_speaker, make_examples
from .trainer import Losses, Trainer, Training

log = logging.getLogger(__name__)

VOICE, TRAINED, CARD = "voice.safetensors", "training.json", "README.md"  # beside peft's files
TRAINABLE = ("x_vector", "preset")  # kinds of voices
SHARE_HELD_OUT, MOST_HELD_OUT = 5, 10  # one of 5 lines, and at most 10, are only measured
LITTLE_S = 60.0  # of speech: more would be better
SAMPLES = 4  # spoken while it trains
ROOM = 64 << 20  # bytes on the disk beside the adapter


@dataclass(frozen=True)
class VoiceTraining:
    """A request to train a voice.

    Args:
        name: of the adapter's folder and of the voice.
        recordings: of one speaker; those without a text get the recogniser's.
        voice: of all lines, an x-vector or a preset; None: a clone of the longest recording.
        language: of the recordings.
        options: of the training.
        refused: reasons by name for recordings that could not be read.
    """

    name: str
    recordings: Sequence[Recording]
    voice: Voice | None = None
    language: str = "auto"
    options: Training = field(default_factory=Training)
    refused: dict[str, str] = field(default_factory=dict)

    def key(self, model: Model, recogniser: Whisper | None) -> str:
        """Return a hash of everything that the result depends on."""
        parts = [model.fingerprint, self.language, recogniser.name if recogniser else "", repr(self.options)]
        parts.append("" if self.voice is None else voice_digest(self.voice))
        digest = hashlib.sha256("\0".join(parts).encode())
        for one in self.recordings:
            digest.update(f"\0{one.name}\0{one.sample_rate}\0{one.transcript or ''}\0".encode())
            digest.update(one.waveform.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class TrainedVoice:
    """A trained adapter's folder, its voice, and a report for people."""

    folder: Path
    voice: Voice
    report: str
    history: Sequence[Losses]


@dataclass(frozen=True)
class Places:
    """The folder of the new adapter, and the file of its voice in the library."""

    folder: Path
    voice: Path


class Watcher(Protocol):
    """Callbacks that show a training. Each may raise to end it."""

    def say(self, text: str) -> None:
        """Show a few words about the present phase."""

    def advance(self, done: int, of: int, left: str) -> None:
        """Show how many updates are done, and the time left in words."""

    def show_losses(self, history: Sequence[Losses]) -> None:
        """Show the losses so far."""

    def play(self, name: str, sample: Spoken) -> None:
        """Play a line spoken with the weights so far."""


def check_trainable(model: Model, voice: Voice | None) -> None:
    """Raise ValueError if an adapter cannot be trained for a model, or for a voice."""
    if model.weights == "int8":
        raise ValueError(f"{model.name} has int8 weights, which cannot be trained: choose weights full")
    if model.adapters:
        raise ValueError(f"{model.title} has an adapter: train the checkpoint without Load LoRA")
    if voice is not None and voice.kind not in TRAINABLE:
        raise ValueError(f"voice {voice.name} is of kind {voice.kind}: give an x-vector clone or a preset, or none")
    if model.type == "voice_design" or (voice is None and not model.can_clone):
        kind = KIND_NAMES.get(model.type, model.type)
        fix = "load a Base checkpoint" + (", or give a preset voice" if model.speakers else "")
        raise ValueError(f"{model.name} is a {kind} checkpoint and cannot clone voices: {fix}")


def train_voice(
    model: Model, asked: VoiceTraining, recogniser: Whisper | None, places: Places, watcher: Watcher
) -> TrainedVoice:
    """Train an adapter, and save it with its voice; return it at once if it is there from the same inputs.

    If it is interrupted, by Ctrl+C or by the watcher, the best weights so far are saved. Raises ValueError, before the
    training, for inputs that cannot be used, and for an adapter or a voice of that name.
    """
    key = asked.key(model, recogniser)
    if places.folder.exists():
        trained = _read_trained(places.folder, key)
        if not places.voice.exists():
            save_source(trained.voice, places.voice)
        return trained
    if places.voice.exists():
        raise ValueError(f"a voice named {places.voice.stem} exists already: choose another name")
    check_trainable(model, asked.voice)
    found = check_recordings(asked.recordings, model.sample_rate, asked.language, recogniser, watcher.say)
    check_speaker(model, found)
    found.refused = {**asked.refused, **found.refused}
    if not found.pairs:
        raise ValueError(f"no recording can be used: {_list_refused(found)}")
    run = _TrainingRun(model, asked, found, watcher)
    return run.train(places, key)


def _read_trained(folder: Path, key: str) -> TrainedVoice:
    try:
        known = json.loads((folder / TRAINED).read_text(encoding="utf-8"))
        if known["key"] == key:
            history = [Losses(**one) for one in known["history"]]
            report = f"It was trained before with the same inputs.\n{known['report']}"
            return TrainedVoice(folder, load_voice(folder / VOICE), report, history)
    except (OSError, ValueError, KeyError, TypeError):
        log.debug("%s has no training of ours", folder.name)
    raise ValueError(f"a LoRA named {folder.name} exists already: choose another name, or remove its folder")


def _list_refused(found: Selection) -> str:
    return "\n".join(f"{name}: {reason}" for name, reason in found.refused.items())


class _TrainingRun:
    """One training."""

    def __init__(self, model: Model, asked: VoiceTraining, found: Selection, watcher: Watcher):
        self.model, self.asked, self.found, self.watcher = model, asked, found, watcher
        longest = max(found.pairs, key=lambda one: len(one.waveform)).waveform
        self.voice = asked.voice or clone_voice(model, longest, model.sample_rate, CloneOptions(name=asked.name))
        self.began = 0.0
        self.options = asked.options
        self.held_out = min(len(found.pairs) // SHARE_HELD_OUT, MOST_HELD_OUT)
        checks = max(1, self.options.steps // self.options.check)
        self.sample_every = self.options.check * max(1, checks // SAMPLES)

    def train(self, places: Places, key: str) -> TrainedVoice:
        self.watcher.say("encoding the recordings")
        lines = make_examples(self.model, self.found.pairs, self.voice, self.asked.language)
        cut = len(lines) - self.held_out
        # ComfyUI runs nodes in inference mode, in which nothing can be trained.
        with torch.inference_mode(False), torch.enable_grad():
            self.trainer = Trainer(self.model, self.options, self._updated, self.voice)
            _check_room(places.folder, self.trainer)
            if self.model.device.type == "cpu":
                seconds = self.options.steps * self.trainer.seconds_per_update(lines)
                self.watcher.say(f"training on the CPU will take about {in_words(max(seconds, 1))}")
            self.began = time.monotonic()
            try:
                self.trainer.train(lines[:cut], lines[cut:])
            except BaseException as error:
                if self.trainer.kept.step:
                    self.trainer.stopped = "it was stopped" if not str(error) else str(error)
                    self._save(places, key)
                raise
            return self._save(places, key)

    def _updated(self, step: int) -> None:
        steps = self.options.steps
        left = (time.monotonic() - self.began) / step * (steps - step)
        self.watcher.advance(step, steps, in_words(max(left, 1)))
        if step % self.options.check == 0 or step == steps:
            self.watcher.show_losses(self.trainer.history)
        if step % self.sample_every == 0 or step == steps:
            self.watcher.play(f"after {step} updates", self._speak())

    @torch.inference_mode()
    def _speak(self) -> Spoken:
        """Speak the text of the last line, which is held out if any is, with the weights so far."""
        model = adapt(self.model, self.trainer.adapter(self.asked.name), 1.0, Path())
        line = Line(self.found.pairs[-1].text, self.trainer.trained_voice(self.voice), self.asked.language)
        with Batch(Synthesizer(model, Engine("eager")), 1, linger_s=None) as batch:
            return speak_lines(batch, [line], GenerateOptions(retries=0))[0]

    def _save(self, places: Places, key: str) -> TrainedVoice:
        """Write the adapter's folder, complete or not at all, and the voice."""
        folder, self.voice = places.folder, self.trainer.trained_voice(self.voice)
        about, unfinished = self._about(), name_beside(folder)
        report = self._report(about)
        about |= {"key": key, "report": report}
        try:
            self.trainer.save(unfinished)
            save_voice(self.voice, unfinished / VOICE)
            (unfinished / TRAINED).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            (unfinished / CARD).write_text(self._card(report), encoding="utf-8")
            unfinished.rename(folder)
            save_source(self.voice, places.voice)
        except OSError as error:
            raise ValueError(f"LoRA {folder.name} cannot be saved ({error.strerror}): check its disk") from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return TrainedVoice(folder, self.voice, report, self.trainer.history)

    def _about(self) -> dict[str, Any]:
        on_gpu = self.model.device.type == "cuda"
        used = self.found.pairs[: len(self.found.pairs) - self.held_out]
        return {
            "lines": len(used),
            "speech_s": round(sum(len(one.waveform) for one in used) / self.model.sample_rate, 1),
            "trained_on": torch.cuda.get_device_name(self.model.device) if on_gpu else "CPU",
            "wall_s": round(time.monotonic() - self.began, 1),
            "kept_step": self.trainer.kept.step,
            "losses_before": self.trainer.history[0].held_out or (),
            "losses": self.trainer.kept.held_out or (),
            "history": [asdict(one) for one in self.trainer.history],
            "texts": {one.name: one.text for one in self.found.pairs},
            "refused": self.found.refused,
            **asdict(self.options),
        }

    def _report(self, about: dict[str, Any]) -> str:
        kept = self.trainer.kept
        lines = [
            f"trained {self.asked.name} on {about['lines']} recordings ({about['speech_s']:.0f} s) in "
            f"{in_words(max(about['wall_s'], 1))}: the weights of update {kept.step} of {self.options.steps} are saved"
        ]
        if self.trainer.stopped:
            lines += [f"It ended early: {self.trainer.stopped}."]
        if kept.held_out:
            before = sum(about["losses_before"])
            lines += [f"Loss of {self.held_out} held-out recordings: {before:.2f} to {sum(kept.held_out):.2f}."]
        if about["speech_s"] < LITTLE_S:
            lines += [f"{about['speech_s']:.0f} s of speech are little: 1 to 10 minutes keep more words."]
        if self.found.refused:
            lines += ["Left out:", _list_refused(self.found)]
        written = [one for one in self.asked.recordings if not one.transcript]
        texts = about["texts"]
        if heard := [f"{one.name}: {texts[one.name]}" for one in written if one.name in texts]:
            lines += ["Texts by the recogniser:", *heard]
        return "\n".join(lines)

    def _card(self, report: str) -> str:
        """Return the model card that belongs to peft's format."""
        head = f"---\nbase_model: {self.model.name}\nlibrary_name: peft\ntags: [lora, text-to-speech, qwen3-tts]\n---"
        options = ", ".join(f"{name} {value}" for name, value in asdict(self.options).items())
        use = f"The voice that it was trained with is {VOICE}. Load both with the checkpoint {self.model.name}."
        consent = "The speaker has agreed to the training; ask again before you pass it on."
        return "\n\n".join([head, f"# {self.asked.name}", use, consent, report, f"Options: {options}."]) + "\n"


def _check_room(folder: Path, trainer: Trainer) -> None:
    """Make the folder around an adapter; ValueError if it cannot be written there, or the disk has no room for it."""
    size = ROOM + sum(one.numel() * one.element_size() for one in trainer.weights)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
    except OSError as error:
        raise ValueError(f"{folder.parent} cannot be written ({error.strerror}): check its disk") from error
    if free < size:
        raise ValueError(
            f"the disk has {free / 1e6:.0f} MB free and the LoRA needs {size / 1e6:.0f} MB: make room for it"
        )
