"""Qwen3-TTS Morph: ComfyUI nodes around a hybrid crossbar decoder for Qwen3-TTS.

ComfyUI imports this file by path. Nothing heavy is imported until ComfyUI asks for the nodes, so that the engine
(``morph``) and the waveform tools (``postprocess``) can be used without ComfyUI (see ``pack.py``).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comfy_api.latest import ComfyExtension

log = logging.getLogger(__name__)

WEB_DIRECTORY = "./web"


async def comfy_entrypoint() -> ComfyExtension:
    """Return the pack's nodes to ComfyUI (V3 API), and add its routes to the server."""
    import comfyui_version
    from server import PromptServer

    from .morph.tested import describe_newer
    from .nodes import MorphTTSExtension
    from .nodes.routes import add_routes

    if (server := getattr(PromptServer, "instance", None)) is not None:  # other programs import nodes without one
        add_routes(server)
    if newer := describe_newer(more={"ComfyUI": comfyui_version.__version__}):
        log.warning("Qwen3-TTS Morph: %s", newer)
    return MorphTTSExtension()
