"""A moving average of weights: what is validated and exported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch


class Average:
    """An exponential moving average of tensors that are changed in place, in the same dtype.

    Args:
        followed: the tensors by name.
        decay: what an update keeps; less in the first steps, so that the initial weights are soon forgotten.
    """

    def __init__(self, followed: Mapping[str, torch.Tensor], decay: float):
        self.followed = {name: value.detach() for name, value in followed.items()}
        self.decay = decay
        self.values = {name: value.clone() for name, value in self.followed.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the tensors after step ``step``."""
        keep = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.values.values()), list(self.followed.values()), 1 - keep)

    @torch.no_grad()
    def load(self, values: Mapping[str, torch.Tensor]) -> None:
        """Take up an average that was stored; KeyError when a tensor is missing."""
        for name, value in self.values.items():
            value.copy_(values[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The average's values in the followed tensors, for the length of the ``with``."""
        before = {name: value.clone() for name, value in self.followed.items()}
        self._put(self.values)
        try:
            yield
        finally:
            self._put(before)

    @torch.no_grad()
    def _put(self, values: Mapping[str, torch.Tensor]) -> None:
        torch._foreach_copy_(list(self.followed.values()), [values[name] for name in self.followed])
