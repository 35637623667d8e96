"""The Load LoRA node."""

from __future__ import annotations

from pathlib import Path

from comfy_api.latest import io

from ...morph.checkpoint.adapter_file import read_adapter
from ...morph.checkpoint.find import ADAPTER_FOLDERS, fingerprint, list_adapters
from ...morph.options import ADAPTER_STRENGTHS
from .. import inputs
from ..folders import adapter_roots
from ..page.progress import show_progress
from ..schema import listed, output, schema
from ..sockets import ModelSocket
from .linked import check_model
from .memory import ManagedModel
from .remote import ServedModel

NO_ADAPTER = "(no adapter is there)"
PLACES = f"models/{ADAPTER_FOLDERS[0]} or models/{ADAPTER_FOLDERS[1]}"


class LoadLora(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSLoadLora",
            inputs=[
                ModelSocket.Input("model"),
                io.Combo.Input(
                    "adapter",
                    options=listed(
                        "cannot list the adapters", lambda: list(list_adapters(adapter_roots())), [NO_ADAPTER]
                    ),
                ),
                inputs.number("strength", 1.0, (*ADAPTER_STRENGTHS, 0.05)),
            ],
            outputs=[output(ModelSocket, "adapted_model")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def validate_inputs(cls, adapter: str | None = None) -> bool | str:
        return inputs.judge(adapter=(find_adapter, adapter))

    @classmethod
    def fingerprint_inputs(cls, adapter: str | None = None, **_: object) -> list[tuple[str, int, int]]:
        """Change with the adapter's files, so that ComfyUI loads it again."""
        return [] if adapter is None else fingerprint(find_adapter(adapter))

    @classmethod
    def execute(cls, model: ManagedModel | ServedModel, adapter: str, strength: float) -> io.NodeOutput:
        check_model(model)
        path = find_adapter(adapter)
        with show_progress(cls.hidden.unique_id) as progress:
            progress.say(f"loading {adapter}")
            return io.NodeOutput(model.with_adapter(read_adapter(path), strength))


def find_adapter(name: str) -> Path:
    """Return an adapter's folder by its label in the list; ValueError for another name."""
    if name == NO_ADAPTER:
        raise ValueError(f"adapter is {name!r}: copy the folder that peft wrote into {PLACES} and press R")
    found = list_adapters(adapter_roots())
    if not isinstance(name, str) or name not in found:  # ComfyUI's API accepts any JSON value
        raise ValueError(
            f"adapter is {name!r}, which is not there: press R to reload the list and choose another"
        )
    return found[name]
