"""Load modules of the package ``nodes`` without its __init__, which imports ComfyUI."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pack

PACKAGE = f"{pack.NAME}.nodes_without_comfyui"  # inside the pack: its modules import ..morph and ..postprocess


def load(name: str) -> ModuleType:
    """Return the module ``nodes.<name>``; what it imports at its top must not need ComfyUI."""
    if PACKAGE not in sys.modules:
        package = ModuleType(PACKAGE)
        package.__path__ = [str(Path(__file__).resolve().parents[2] / "nodes")]
        sys.modules[PACKAGE] = package
    return importlib.import_module(f"{PACKAGE}.{name}")
