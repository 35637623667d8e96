"""Load checkpoints without ``generation_config.json``, which trainers leave out and upstream requires."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

GENERATION = "generation_config.json"
INSTEAD = Path(__file__).with_name(GENERATION)  # what upstream's defaults are not


def allow_no_generation_config(modeling: ModuleType) -> None:
    """Let upstream's ``modeling_qwen3_tts`` read INSTEAD if a folder has no GENERATION."""
    find = modeling.cached_file

    def cached_file(folder: str, name: str, **more: Any) -> Any:
        if name == GENERATION and not Path(folder, name).is_file():
            return str(INSTEAD)
        return find(folder, name, **more)

    modeling.cached_file = cached_file  # type: ignore[attr-defined]
