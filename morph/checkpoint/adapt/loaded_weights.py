"""Keep loaded weights: upstream's initialisation must not overwrite them.

transformers marks loaded parameters and then initialises the rest. Upstream's functions ignore the mark, as they write
through ``weight.data``. From 5.4 to 5.14 transformers calls them for loaded modules too: the talker was random.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import nn

INIT = "_init_weights"
MARK = "_is_hf_initialized"  # transformers' own, on parameters


def keep_loaded_weights(*modelings: ModuleType) -> None:
    """Let the classes of these upstream modules initialise only parameters that were not loaded."""
    for modeling in modelings:
        for value in vars(modeling).values():
            if isinstance(value, type) and value.__module__ == modeling.__name__ and INIT in vars(value):
                setattr(value, INIT, _sparing_loaded(vars(value)[INIT]))


def _sparing_loaded(initialise: Callable[[Any, nn.Module], None]) -> Callable[[Any, nn.Module], None]:
    @functools.wraps(initialise)
    def spare(self: Any, module: nn.Module) -> None:
        own = list(module.parameters(recurse=False))
        if not own or not all(getattr(parameter, MARK, False) for parameter in own):
            initialise(self, module)

    return spare
