"""Load this folder as the package ``qwen3_tts_morph``, by path, as ComfyUI loads a custom node.

For programs outside ComfyUI: the folder may have a name with a hyphen, which ``import`` cannot load.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

NAME = "qwen3_tts_morph"
ROOT = Path(__file__).resolve().parent


def load() -> ModuleType:
    """Register the repository root as the package ``qwen3_tts_morph`` and return it; later calls return the same."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    spec = importlib.util.spec_from_file_location(NAME, ROOT / "__init__.py", submodule_search_locations=[str(ROOT)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{ROOT} has no __init__.py: clone the repository again")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module
