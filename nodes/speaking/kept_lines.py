"""Cached lines: their folder in ComfyUI, and how many bytes they may take."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import folder_paths

if TYPE_CHECKING:
    from ...morph.kept.cache import LineCache
    from ...morph.kept.render import RenderOptions

SIZE_VARIABLE = "MORPH_TTS_CACHE_MB"  # the most that cached lines may take; 0 caches none
DEFAULT_MB = 2048
FOLDER = "qwen3_tts_morph"


def most_megabytes() -> int:
    """Return how many MB (10^6 bytes) cached lines may take; ValueError unless the setting is a whole number."""
    value = os.environ.get(SIZE_VARIABLE, "").strip() or str(DEFAULT_MB)
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise ValueError(f"{SIZE_VARIABLE} is {value[:40]!r}: write a whole number of MB, 0 to keep no lines")
    return int(value)


def kept_lines() -> LineCache:
    """Return the cache, to look at it and to clear it. Its folder, which no route of ComfyUI serves, may not exist."""
    from ...morph.kept.cache import LineCache

    # Below ``user/``: ComfyUI empties ``temp/`` when it starts.
    folder = Path(folder_paths.get_system_user_directory(FOLDER), "lines")
    return LineCache(folder, max(1, most_megabytes() * 10**6))


def render_options(given: Mapping[str, Any]) -> RenderOptions:
    from ...morph.kept.render import RenderOptions

    keeps = given.get("reuse_lines", True) and most_megabytes()
    return RenderOptions(kept_lines() if keeps else None, given.get("word_check"))
