"""What a model's move to another device and back does to its tensors."""

import torch


def move(module: torch.nn.Module) -> None:
    """Give every parameter and buffer a separate storage."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = tensor.data.clone()
