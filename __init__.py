"""Qwen3-TTS Morph: ComfyUI nodes around a hybrid crossbar decoder for Qwen3-TTS.

ComfyUI imports this file by path. Nothing heavy is imported until ComfyUI asks for the nodes, so that the engine
(``morph``) and the waveform tools (``postprocess``) can be used without ComfyUI (see ``pack.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comfy_api.latest import ComfyExtension

WEB_DIRECTORY = "./web"


async def comfy_entrypoint() -> ComfyExtension:
    """Return the pack's nodes to ComfyUI (V3 API), and add its routes to the server."""
    from server import PromptServer

    from .nodes import MorphTTSExtension
    from .nodes.routes import add_routes

    if (
        server := getattr(PromptServer, "instance", None)
    ) is not None:  # other programs import nodes without one
        add_routes(server)
    return MorphTTSExtension()
