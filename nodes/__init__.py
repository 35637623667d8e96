"""The pack's nodes, in ComfyUI's V3 API."""

from importlib import import_module

from comfy_api.latest import ComfyExtension, io

MODULES = (
    *("models.load", "saving.save", "sound.audio", "speaking.cast", "speaking.settings", "speaking.speak"),
    *("voices.train", "voices.voices"),
)
NODES = tuple(
    node
    for name in MODULES
    for node in vars(import_module(f".{name}", __name__)).values()
    if isinstance(node, type) and issubclass(node, io.ComfyNode) and node.__module__ == f"{__name__}.{name}"
)


class MorphTTSExtension(ComfyExtension):
    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return list(NODES)
