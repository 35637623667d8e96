"""The values of the model socket: a model under ComfyUI's memory management, or a speech server.

ComfyUI moves a model off the GPU when other models need memory.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import comfy.model_management as management
import torch
from comfy.model_patcher import ModelPatcher

from ...morph.model.adapter import Adapter
from ...morph.model.model import Model
from ...morph.options import LoadOptions
from ...morph.voice.create import design_voice, preset_voice
from ...morph.voice.library import clone_recording
from ...morph.voice.recording import Recording
from ...morph.voice.voice import Voice, check_design
from ...serve.remote.facts import ServerFacts

if TYPE_CHECKING:
    from ...morph.batch.speech import Speaks
    from ...morph.synthesizer import Engine, Synthesizer

log = logging.getLogger(__name__)

EVERYTHING = 1e32  # bytes; the value ComfyUI itself uses for "load the complete model"


class WholePatcher(ModelPatcher):
    """Moves a module between devices as one unit: unlike ComfyUI's own layers, upstream's cannot be split over two.

    ComfyUI runs nodes in inference mode. A move in it would replace the module's parameters and so untie shared ones;
    therefore moves happen outside of it. ``engines`` are freed before the weights leave the device.
    """

    def __init__(self, *args: Any, **more: Any):
        super().__init__(*args, **more)
        self.engines: weakref.WeakSet[Engine] = weakref.WeakSet()

    def partially_load(
        self, device_to: torch.device, extra_memory: float = 0, force_patch_weights: bool = False
    ) -> float:
        """Load the complete module, however little memory ComfyUI grants (with ``--novram``: none)."""
        with torch.inference_mode(False):
            return super().partially_load(device_to, EVERYTHING, force_patch_weights)

    def partially_unload(
        self, device_to: torch.device, memory_to_free: float = 0, force_patch_weights: bool = False
    ) -> float:
        """Free nothing and return 0 bytes; ComfyUI then unloads the complete module."""
        return 0

    def unpatch_model(self, device_to: torch.device | None = None, unpatch_weights: bool = True) -> None:
        """Move the module off the device, and free the engine's memory there."""
        if unpatch_weights:  # otherwise nothing moves: ComfyUI calls this before every use
            for engine in list(self.engines):
                engine.free()
        with torch.inference_mode(False):
            super().unpatch_model(device_to, unpatch_weights)


@dataclass(frozen=True)
class Origin:
    """A model's folder, load options and device."""

    path: Path
    options: LoadOptions
    device: torch.device


class LoadedModel:
    """A checkpoint for one device; ComfyUI may evict it unless in use. ``patcher``: of a model with shared weights."""

    def __init__(self, synthesizer: Synthesizer, origin: Origin, patcher: WholePatcher | None = None):
        self.synthesizer, self.origin = synthesizer, origin
        if patcher is None:
            offload = management.unet_offload_device()
            # With --highvram models stay where they are: that is this model's device, not ComfyUI's.
            kept_on = offload if offload.type == "cpu" else origin.device
            patcher = WholePatcher(synthesizer.model.module, origin.device, kept_on)
        self.patcher = patcher
        self.patcher.engines.add(synthesizer.engine)
        self._adapted: weakref.WeakValueDictionary[tuple[str, float], LoadedModel] = weakref.WeakValueDictionary()
        # The talker owns the weights: once it is garbage-collected, their memory is free.
        model = synthesizer.model
        weakref.finalize(model.talker, log.info, "released %s", model.title).atexit = False

    def with_adapter(self, adapter: Adapter, strength: float) -> LoadedModel:
        """Return the model with an adapter, shared by all who hold it; errors as ``adapt``."""
        key = (adapter.digest, strength)
        if (found := self._adapted.get(key)) is not None:
            return found
        synthesizer = self.synthesizer.with_adapter(adapter, strength, self.origin.path)
        if synthesizer is self.synthesizer:
            return self
        found = self._adapted[key] = LoadedModel(synthesizer, self.origin, self.patcher)
        self.patcher.size = 0  # it has more weights now: ComfyUI adds them up again
        return found


class ManagedModel:
    """The value of the model socket: one checkpoint on devices that share its lines; other work uses the first."""

    def __init__(self, models: Sequence[LoadedModel]):
        self.models = tuple(dict.fromkeys(models))

    def __eq__(self, other: object) -> bool:
        """Compare the models: those of two Load LoRA nodes may be the same."""
        return isinstance(other, ManagedModel) and self.models == other.models

    def __hash__(self) -> int:
        return hash(self.models)

    @contextmanager
    def use(self, memory: int = 0) -> Iterator[Synthesizer]:
        """Move the first model to its device, with room for ``memory`` bytes more, and yield the synthesizer.

        An OutOfMemoryError gets advice on how to fix it; the model stays usable for the next run.
        """
        with on_devices(self.models[:1], memory) as [ready]:
            yield ready

    @contextmanager
    def open(self, rows: int, cast: Mapping[str, Voice] | None = None) -> Iterator[Speaks]:
        """Yield the backend, with ``rows`` rows on each device; out-of-memory errors as ``use``.

        ``cast``: characters whose voices may have models of their own (``Voice.by``). Raises ValueError if models on
        several devices differ, or a character's model has another checkpoint.
        """
        from ...morph.batch.batch import Batch, Fleet
        from ...morph.batch.speech import ByVoice

        others = {name: one for name, voice in (cast or {}).items() if (one := self._other(name, voice)) is not None}
        models = list(dict.fromkeys((self, *others.values())))
        with ExitStack() as opened:
            opened.enter_context(on_devices([part for one in models for part in one.models]))
            speaks: dict[ManagedModel, Speaks] = {}
            for one in models:
                batches = [Batch(part.synthesizer, rows, linger_s=None) for part in one.models]
                engine: AbstractContextManager[Speaks] = batches[0] if len(batches) == 1 else Fleet(batches)
                speaks[one] = opened.enter_context(engine)
            main = speaks.pop(self)
            yield ByVoice(main, speaks) if speaks else main

    def _other(self, name: str, voice: Voice) -> ManagedModel | None:
        """Return a character's own model, or None; ValueError if it cannot share a script."""
        own = voice.by
        if own is None or own == self:
            return None
        if not isinstance(own, ManagedModel) or own.first is not self.first:
            fix = "connect both to one Load Qwen3-TTS Model, with Load LoRA between"
            raise ValueError(f"{name}'s model is of another checkpoint than the one that speaks the script: {fix}")
        return own

    @property
    def first(self) -> Model:
        """The model without adapters, on the first device."""
        return self.models[0].synthesizer.model.first

    def with_adapter(self, adapter: Adapter, strength: float) -> ManagedModel:
        """Return the model with an adapter, on the same devices; errors as ``adapt``."""
        return ManagedModel([one.with_adapter(adapter, strength) for one in self.models])

    def speakers(self) -> list[str]:
        return self.models[0].synthesizer.model.speakers

    def clone_recording(self, recording: Recording) -> Voice:
        with self.use() as ready:
            return clone_recording(ready.model, recording)

    def preset_voice(self, speaker: str, instruct: str) -> Voice:
        with self.use() as ready:
            return preset_voice(ready.model, speaker, instruct)

    def design_voice(self, description: str) -> Voice:
        with self.use() as ready:
            return design_voice(ready.model, description)


def load_managed(path: Path, options: LoadOptions, device: torch.device | None = None) -> LoadedModel:
    """Load a checkpoint for a device, None for ComfyUI's own; the weights stay on the CPU until first use."""
    from ...morph.synthesizer import Synthesizer

    origin = Origin(path, options, device or management.get_torch_device())
    return LoadedModel(Synthesizer.load(path, options, origin.device, move=False), origin)


@contextmanager
def on_devices(models: Sequence[LoadedModel], memory: int = 0) -> Iterator[list[Synthesizer]]:
    """Yield models on their devices; an OutOfMemoryError gets advice, and keeps its type, on which ComfyUI unloads."""
    patchers = dict.fromkeys(one.patcher for one in models)  # models with adapters share the first one's
    try:
        management.load_models_gpu(list(patchers), memory, force_full_load=True)
        yield [one.synthesizer for one in models]
    except torch.cuda.OutOfMemoryError as error:
        raise torch.cuda.OutOfMemoryError(
            f"{error}\nThe GPU is out of memory: lower batch_size, use shorter texts or the 0.6B checkpoint, or "
            "close other programs that use the GPU. The model stays usable for the next run."
        ) from error


@dataclass(frozen=True)
class ServedModel:
    """The value of the model socket for a server; see ``ManagedModel``. ``consent``: cloned voices may be sent."""

    facts: ServerFacts
    consent: bool = False

    @contextmanager
    def open(self, rows: int, cast: Mapping[str, Voice] | None = None) -> Iterator[Speaks]:
        """Yield the server's backend; ConnectionError if it is gone, ValueError for a character's own model."""
        from ...serve.remote.connection import ServerGone
        from ...serve.remote.speaks import RemoteSpeaks

        if own := [name for name, voice in (cast or {}).items() if voice.by is not None]:
            fix = "which speaks all lines: disconnect that model from Cast"
            raise ValueError(f"{own[0]} has a model of its own, and model is server {self.facts}, {fix}")
        try:
            with RemoteSpeaks(self.facts, self.consent, rows) as speaks:
                yield speaks
        except ServerGone as error:  # the page shows other than built-in types with their module's path
            raise ConnectionError(str(error)) from error

    def use(self) -> NoReturn:
        fix = "connect Load Qwen3-TTS Model"
        raise ValueError(f"model is server {self.facts}, and this node needs one of this computer: {fix}")

    def with_adapter(self, *_: object) -> NoReturn:
        fix = "start it with --lora, and connect it without this node"
        why = "which speaks with the adapter that it was started with"
        raise ValueError(f"model is server {self.facts}, {why}: {fix}")

    def speakers(self) -> list[str]:
        return list(self.facts.voices)

    def clone_recording(self, recording: Recording) -> NoReturn:
        fix = "clone and save it on this computer first, with Clone Voice and Save Voice"
        raise ValueError(f"voice {recording.name!r} is a recording, and model is server {self.facts}: {fix}")

    def preset_voice(self, speaker: str, instruct: str) -> Voice:
        """Return one of the server's voices; ValueError if it does not have it."""
        name = self.facts.speaker(speaker)
        return Voice("preset", self.facts.size, name=name, speaker=name, instruct=instruct.strip() or None)

    def design_voice(self, description: str) -> Voice:
        """Return a voice from a description, which the server reads with each line."""
        return Voice("design", self.facts.size, name="designed voice", instruct=check_design(description))


AnyModel: TypeAlias = ManagedModel | ServedModel

# Links: a caller of ComfyUI's API may send any value.


def check_model(value: object) -> None:
    if not isinstance(value, ManagedModel | ServedModel):
        raise ValueError(f"model is {shown(value)}: connect Load Qwen3-TTS Model")


def check_voice(value: object, name: str = "voice") -> None:
    if not isinstance(value, Voice):
        raise ValueError(f"{name} is {shown(value)}: connect a voice, such as that of Preset Voice")


def check_cast(value: object) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(one, Voice) for one in value.values()):
        raise ValueError(f"cast is {shown(value)}: connect Cast or Whole Cast")


def check_word_check(value: object) -> None:
    from ...morph.kept.render import WordCheck

    if value is not None and not isinstance(value, WordCheck):
        raise ValueError(f"word_check is {shown(value)}: connect Word Check, or disconnect it")


def shown(value: object) -> str:
    return repr(value)[:40]
