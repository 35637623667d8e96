"""The HTTP route that tells the page which checkpoints are on this machine, and how much the others would download."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

ROOT = "/morph/checkpoints"


class CheckpointRoutes:
    """Handler of the route.

    Args:
        labels: returns what the list of Load Qwen3-TTS Model shows for each of its values; it is called in a thread,
            because it looks into folders.
    """

    def __init__(self, labels: Callable[[], dict[str, str]]):
        self._labels = labels

    async def show(self, request: web.Request) -> web.StreamResponse:
        """``{"labels": {value: label}}``."""
        labels = await asyncio.to_thread(self._labels)
        return web.json_response({"labels": labels}, headers={"Cache-Control": "no-store"})
