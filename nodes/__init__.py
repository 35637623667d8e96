"""The pack's nodes, in ComfyUI's V3 API."""

from importlib import import_module

from comfy_api.latest import ComfyExtension, io

MODULES = (
    *("models.load", "models.remote", "saving.save", "sound.audio", "sound.transcribe"),
    *("speaking.cast", "speaking.generate", "speaking.pronunciation", "speaking.sampling"),
    *("speaking.script", "speaking.sweep", "voices.library", "voices.trim", "voices.voices"),
)


def nodes_in(name: str) -> list[type[io.ComfyNode]]:
    """Return the nodes that a module defines, in their order."""
    module = import_module(f".{name}", __name__)
    classes = [
        one for one in vars(module).values() if isinstance(one, type) and issubclass(one, io.ComfyNode)
    ]
    return [one for one in classes if one.__module__ == module.__name__]


NODES = tuple(node for name in MODULES for node in nodes_in(name))


class MorphTTSExtension(ComfyExtension):
    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return list(NODES)
