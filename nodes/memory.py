"""Wrap the model for ComfyUI's memory management, which moves it off the GPU when other models need memory."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import comfy.model_management as management
import torch
from comfy.model_patcher import ModelPatcher

from ..morph.options import LoadOptions
from .voicing import LocalVoicing, SpeakOptions, Voicing

if TYPE_CHECKING:
    from ..morph.synthesizer import Synthesizer
    from ..morph.voice.voice import Voice

log = logging.getLogger(__name__)

EVERYTHING = 1e32  # bytes; the value ComfyUI itself uses for "load the complete model"


class WholePatcher(ModelPatcher):
    """Move a module between devices as one unit: unlike ComfyUI's own layers, upstream's cannot be split over two.

    ComfyUI runs nodes in inference mode. A move in inference mode would replace the module's parameters with new
    objects and so untie shared parameters; therefore moves happen outside of it. ``on_leave`` is called before the
    weights leave the device.
    """

    on_leave: Callable[[], None] = staticmethod(lambda: None)

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
        """Move the module off the device, and free what the engine keeps there."""
        if unpatch_weights:  # otherwise nothing moves: ComfyUI calls this before every use
            self.on_leave()
        with torch.inference_mode(False):
            super().unpatch_model(device_to, unpatch_weights)


class ManagedModel:
    """The value of the model socket. Outside of ``use``, ComfyUI may evict the model at any time."""

    def __init__(self, synthesizer: Synthesizer):
        model = synthesizer.model
        self._synthesizer = synthesizer
        self._patcher = WholePatcher(
            model.module, management.get_torch_device(), management.unet_offload_device()
        )
        self._patcher.on_leave = synthesizer.free
        # The talker owns the weights: once it is garbage-collected, their memory is free.
        weakref.finalize(model.talker, log.info, "released %s", model.name).atexit = False

    @contextmanager
    def use(self) -> Iterator[Synthesizer]:
        """Move the model to its device and yield the synthesizer.

        Raises:
            torch.cuda.OutOfMemoryError: with advice on how to fix it; the model stays usable for the next run.
        """
        with explain_out_of_memory():
            management.load_models_gpu([self._patcher], force_full_load=True)
            yield self._synthesizer

    @contextmanager
    def open(self, options: SpeakOptions) -> Iterator[Voicing]:
        """Yield what speaks with the model on its device; errors as ``use``."""
        from ..morph.render.line_renderer import LineRenderer

        with self.use() as ready:
            yield LocalVoicing(LineRenderer(ready, options.generate, options.cache, options.check))

    def preset_voice(self, speaker: str, instruct: str) -> Voice:
        """Return a speaker of the checkpoint, with an instruction."""
        from ..morph.voice.create import preset_voice

        with self.use() as ready:
            return preset_voice(ready.model, speaker, instruct)

    def design_voice(self, description: str) -> Voice:
        """Return a voice made from a description."""
        from ..morph.voice.create import design_voice

        with self.use() as ready:
            return design_voice(ready.model, description)


def load_managed(path: Path, options: LoadOptions) -> ManagedModel:
    """Load a checkpoint for ComfyUI's device; the weights stay on the CPU until first use."""
    from ..morph.synthesizer import Synthesizer

    return ManagedModel(Synthesizer.load(path, options, management.get_torch_device(), move=False))


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Add advice to an out-of-memory error. Its type is kept, because ComfyUI unloads its models on that type."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise torch.cuda.OutOfMemoryError(
            f"{error}\nThe GPU is out of memory: lower batch_size, use shorter texts or the 0.6B checkpoint, or "
            "close other programs that use the GPU. The model stays usable for the next run."
        ) from error
