"""The number of threads that torch uses on a CPU during a rendering."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .model import Model

# The demo voice has 256, the smallest published checkpoint 1,024. GEMMs up to this width take about ten microseconds: a
# second thread gains nothing, and beside other programs, threads wait for one another at each GEMM.
SMALL_WIDTH = 512


def is_small_on_cpu(model: Model) -> bool:
    return model.device.type == "cpu" and model.width <= SMALL_WIDTH


@contextmanager
def limit_threads(model: Model) -> Iterator[None]:
    """Let torch compute on one thread for a small model on a CPU, for the length of the ``with``.

    torch keeps the number per thread, and threads that start later get the number set last. Threads that start inside
    the ``with`` therefore also use one; if two renderings overlap, the last to end decides for later threads. Use it
    inside ``Model.exclusive``: then renderings of one model do not overlap.
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
