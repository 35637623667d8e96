"""Load Model."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import comfy.model_management as management
from comfy_api.latest import io

from ..morph.checkpoint.download import fetch_checkpoint
from ..morph.checkpoint.find import DEMO_VOICE, PUBLISHED, fingerprint, list_checkpoints, resolve_checkpoint
from ..morph.options import ATTENTIONS, ENGINES, PRECISIONS, WEIGHTS, LoadOptions
from . import inputs
from .folders import checkpoint_roots, download_root
from .memory import load_managed
from .progress import show_progress
from .sockets import CATEGORY, ModelSocket

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)


class LoadModel(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MorphTTSLoadModel",
            display_name="Load Qwen3-TTS Model",
            category=CATEGORY,
            description=(
                "Loads a Qwen3-TTS checkpoint: the demo voice that comes with the pack (small, English "
                "only), one from ComfyUI's model folders, or a published one, which is downloaded to "
                "models/qwen-tts when the graph runs and it is not on this machine. Base clones voices, "
                "CustomVoice has preset speakers, VoiceDesign makes a voice from words; the demo voice does "
                "the first two."
            ),
            inputs=[
                io.Combo.Input(
                    "checkpoint",
                    options=[DEMO_VOICE, *PUBLISHED, *found_checkpoints()],
                    default=DEMO_VOICE,
                    tooltip=(
                        "The demo voice (small, English only; needs no download), a published checkpoint "
                        "(taken from your model folders or the Hugging Face cache when it is there, else "
                        "downloaded, 2 to 5 GB), or a folder found under models/. "
                        f"Default: {DEMO_VOICE}."
                    ),
                ),
                io.Combo.Input(
                    "precision",
                    options=list(PRECISIONS),
                    default="auto",
                    tooltip=(
                        "Number format of the weights. auto: bf16 where the GPU computes in it, else fp32. "
                        "Default: auto."
                    ),
                ),
                io.Combo.Input(
                    "attention",
                    options=list(ATTENTIONS),
                    default="auto",
                    tooltip=(
                        "Attention implementation. auto: flash_attention_2 where flash-attn is installed, "
                        "else sdpa. The graph engine always takes sdpa's. Default: auto."
                    ),
                ),
                io.Combo.Input(
                    "engine",
                    options=list(ENGINES),
                    default="auto",
                    tooltip=(
                        "What runs the layers. eager: the original modules, on any device. graph: the same "
                        "arithmetic in fewer steps, replayed as CUDA graphs; its rounding and "
                        "its seeds differ from eager's. auto: graph on CUDA and for small models on a CPU, else eager. "
                        "Default: auto."
                    ),
                ),
                io.Combo.Input(
                    "weights",
                    options=list(WEIGHTS),
                    default=LoadOptions.weights,
                    optional=True,
                    tooltip=(
                        "int8 keeps the layers' weights as 8-bit whole numbers: a smaller model, not a "
                        "faster one, and approximate: the speech differs from full's at SEQ_GROUPS 15 too. full: "
                        "all digits of the precision above. Default: full."
                    ),
                ),
            ],
            outputs=[
                ModelSocket.Output(
                    "loaded_model",
                    display_name="model",
                    tooltip=(
                        "The checkpoint, managed by ComfyUI: it leaves the GPU when other models need room."
                    ),
                )
            ],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def validate_inputs(
        cls,
        checkpoint: str | None = None,
        precision: str | None = None,
        attention: str | None = None,
        engine: str | None = None,
        weights: str | None = None,
    ) -> bool | str:
        """Refuse what cannot be loaded before anything runs or is downloaded; wired inputs are None here."""
        chosen = {"precision": precision, "attention": attention, "engine": engine, "weights": weights}
        try:
            options = LoadOptions(**{name: value for name, value in chosen.items() if value is not None})
            if precision is not None and attention is not None:
                check_device(options, management.get_torch_device())
        except ValueError as error:
            return str(error)
        return inputs.refuse(lambda name: resolve_checkpoint(name, checkpoint_roots()), checkpoint)

    @classmethod
    def fingerprint_inputs(cls, checkpoint: str, **_: str) -> list[tuple[str, int, int]]:
        """Changes when the checkpoint's folder is replaced, so that it is loaded again."""
        path = resolve_checkpoint(checkpoint, checkpoint_roots())
        return [] if path is None else fingerprint(path)

    @classmethod
    def execute(
        cls,
        checkpoint: str,
        precision: str,
        attention: str,
        engine: str,
        weights: str = LoadOptions.weights,
    ) -> io.NodeOutput:
        options = LoadOptions(precision, attention, engine, weights)
        path = resolve_checkpoint(checkpoint, checkpoint_roots())
        with show_progress(cls.hidden.unique_id) as progress:
            if path is None:
                progress.say(f"downloading {checkpoint}")
                path = fetch_checkpoint(checkpoint, download_root(), progress)
            progress.say(f"loading {checkpoint}")
            return io.NodeOutput(load_managed(path, options))


def check_device(options: LoadOptions, device: torch.device) -> None:
    """Raise ValueError for a precision or an attention that the device cannot do."""
    from ..morph.checkpoint.load import choose_attention, choose_dtype

    dtype = choose_dtype(options.precision, device)
    if options.attention != "auto":
        choose_attention(options.attention, device, dtype)


def found_checkpoints() -> list[str]:
    """Labels of the checkpoints in the model folders; none, and a warning, where they cannot be listed.

    ComfyUI asks all of a pack's schemas in one ``try``: an error here would take every node away.
    """
    try:
        return list(list_checkpoints(checkpoint_roots()))
    except Exception as error:
        log.warning("the model folders cannot be listed (%s): %s is there", error, DEMO_VOICE, exc_info=True)
        return []
