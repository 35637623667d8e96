"""Whether weights are stacked, and how to undo it, for tests."""

import torch
from qwen3_tts_morph.morph.model.weights import joined


def stacked(modules: torch.nn.ModuleList) -> torch.Tensor | None:
    """Return the ``[N, V, H]`` tensor that the modules' weights are views of, or None if they are not stacked."""
    tensor = joined(modules)
    return None if tensor is None else tensor.unflatten(0, (len(modules), -1))
