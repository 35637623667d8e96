"""A moving average of weights: these weights are validated and exported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch


class Average:
    """An exponential moving average of tensors that are updated in place, in their dtype.

    Args:
        followed: the tensors by name.
        decay: weight of the old average in an update; smaller in the first steps, to forget the initial weights soon.
    """

    def __init__(self, followed: Mapping[str, torch.Tensor], decay: float):
        self.followed = {name: value.detach() for name, value in followed.items()}
        self.decay = decay
        self.values = {name: value.clone() for name, value in self.followed.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average with the tensors' values after step ``step``."""
        keep = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.values.values()), list(self.followed.values()), 1 - keep)

    @torch.no_grad()
    def load(self, values: Mapping[str, torch.Tensor]) -> None:
        """Restore a stored average; raises KeyError if a tensor is missing."""
        for name, value in self.values.items():
            value.copy_(values[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Context in which the followed tensors hold the average's values."""
        before = {name: value.clone() for name, value in self.followed.items()}
        self._put(self.values)
        try:
            yield
        finally:
            self._put(before)

    @torch.no_grad()
    def _put(self, values: Mapping[str, torch.Tensor]) -> None:
        torch._foreach_copy_(list(self.followed.values()), [values[name] for name in self.followed])
