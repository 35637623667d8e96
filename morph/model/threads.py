"""How many threads torch computes with on a CPU, for the length of a rendering."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .model import Model

# Talkers of this width and below are small: the demo voice has 256, the smallest published checkpoint 1,024. Their
# products take some ten microseconds: what surrounds them counts, a second thread wins nothing, and where other
# programs run, threads wait for one another at each product.
SMALL_WIDTH = 512


def is_small_on_cpu(model: Model) -> bool:
    """Whether the model is on a CPU, and small (see ``SMALL_WIDTH``)."""
    return model.device.type == "cpu" and model.width <= SMALL_WIDTH


@contextmanager
def limit_threads(model: Model) -> Iterator[None]:
    """Let torch compute on one thread for a small model on a CPU, for the length of the ``with``.

    Larger models, and models on a GPU, leave torch's number alone. It is put back however the ``with`` ends.

    torch keeps the number for each thread, and gives the last one set to threads that start later: those that start
    inside the ``with`` have one as well, and of two renderings that overlap in threads, the last to end says what later
    threads get. Hold ``Engine.exclusive`` around it, and renderings of one model do not overlap.
    """
    if not is_small_on_cpu(model):
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
