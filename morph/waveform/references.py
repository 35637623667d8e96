"""The codec's states after the references of ICL voices: made in parts, and kept for the lines to come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..runtime.recent import Recent

KEPT_REFERENCES = 8  # states of ICL voices: 2.6 MB each in bf16, 5.2 MB in fp32


class References(Recent[int, tuple[torch.Tensor, Any]]):
    """The codec's states after references: the most recently used ones are kept.

    A reference is known by its tensor's identity: a voice keeps its codes for as long as it lives. It is kept too: its
    id names nothing else as long as it lives. A state has ``frames``, the number of the reference's frames that it is
    after.
    """

    def __init__(self, kept: int = KEPT_REFERENCES):
        super().__init__(kept)

    def missing(self, reference: torch.Tensor) -> int:
        """Return how many frames of a reference must still be fed."""
        state = self._state(reference)
        return len(reference) if state is None else len(reference) - int(state.frames)

    def feed(self, reference: torch.Tensor, feed: Callable[[Any, torch.Tensor], Any]) -> None:
        """Have ``feed`` make the state after some more frames, from the one before, or None, and the reference."""
        self.keep(id(reference), (reference, feed(self._state(reference), reference)))

    def after(self, reference: torch.Tensor, feed: Callable[[Any, torch.Tensor], Any]) -> Any:
        """Return the state after all frames; what is missing is fed."""
        while self.missing(reference):
            self.feed(reference, feed)
        return self._state(reference)

    def _state(self, reference: torch.Tensor) -> Any:
        kept = self.get(id(reference))
        return None if kept is None else kept[1]
