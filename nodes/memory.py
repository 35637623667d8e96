"""A model behind ComfyUI's memory management: it leaves the GPU when others need room, and comes back."""

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

if TYPE_CHECKING:
    from ..morph.synthesizer import Synthesizer

log = logging.getLogger(__name__)

EVERYTHING = 1e32  # bytes; how ComfyUI itself says "the whole model"


class WholePatcher(ModelPatcher):
    """Moves a module between devices whole: upstream's layers cannot run from two, as ComfyUI's own can.

    It moves outside of inference mode, under which ComfyUI runs nodes: inside, a move would replace the module's
    parameters by other objects, and untie those that layers share. ``on_leave`` is called before the weights go.
    """

    on_leave: Callable[[], None] = staticmethod(lambda: None)

    def partially_load(
        self, device_to: torch.device, extra_memory: float = 0, force_patch_weights: bool = False
    ) -> float:
        """Load all of it, whatever room ComfyUI grants (under ``--novram`` that is none)."""
        with torch.inference_mode(False):
            return super().partially_load(device_to, EVERYTHING, force_patch_weights)

    def partially_unload(
        self, device_to: torch.device, memory_to_free: float = 0, force_patch_weights: bool = False
    ) -> float:
        """Free nothing in part: ComfyUI then unloads all of it."""
        return 0

    def unpatch_model(self, device_to: torch.device | None = None, unpatch_weights: bool = True) -> None:
        """Take the module off the device, and with it what the engine keeps there."""
        if unpatch_weights:  # else nothing moves: ComfyUI asks so before every use
            self.on_leave()
        with torch.inference_mode(False):
            super().unpatch_model(device_to, unpatch_weights)


class ManagedModel:
    """What the model socket carries. ComfyUI may evict the model at any time outside of ``use``."""

    def __init__(self, synthesizer: Synthesizer):
        model = synthesizer.model
        self._synthesizer = synthesizer
        self._patcher = WholePatcher(
            model.module, management.get_torch_device(), management.unet_offload_device()
        )
        self._patcher.on_leave = synthesizer.free
        # The talker holds the weights: when it goes, their memory is free.
        weakref.finalize(model.talker, log.info, "released %s", model.name).atexit = False

    @contextmanager
    def use(self) -> Iterator[Synthesizer]:
        """Yield the synthesizer, its model on the device, for the length of the ``with``.

        Raises:
            torch.cuda.OutOfMemoryError: with a hint at the fix; the model stays usable for the next run.
        """
        with explain_out_of_memory():
            management.load_models_gpu([self._patcher], force_full_load=True)
            yield self._synthesizer


def load_managed(path: Path, options: LoadOptions) -> ManagedModel:
    """Load a checkpoint for ComfyUI's device; it stays on the CPU until it is used."""
    from ..morph.synthesizer import Synthesizer

    return ManagedModel(Synthesizer.load(path, options, management.get_torch_device(), move=False))


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Add the fix to an out-of-memory error; its type stays, by which ComfyUI knows to unload its models."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise torch.cuda.OutOfMemoryError(
            f"{error}\nThe GPU's memory is full: choose a smaller batch size, shorter texts or the 0.6B "
            "checkpoint, or free memory in other programs. The model is unharmed and the next run can use "
            "it."
        ) from error
