"""Cache the codec's states after the references of ICL voices, which are decoded in parts."""

from collections.abc import Callable
from typing import Any

import torch

from ..runtime.recent import Recent

KEPT_REFERENCES = 8  # states of ICL voices: 2.6 MB each in bf16, 5.2 MB in fp32


class References(Recent[int, tuple[torch.Tensor, Any]]):
    """The codec's states after references: the most recently used ones are kept.

    A reference is known by its tensor's identity: a voice keeps its codes for as long as it lives, and so does this
    cache, so that the id stays unique. A state's ``frames`` counts the reference's frames before it.
    """

    def __init__(self, kept: int = KEPT_REFERENCES):
        super().__init__(kept)

    def missing(self, reference: torch.Tensor) -> int:
        """Return how many frames of a reference must still be fed."""
        state = self._state(reference)
        return len(reference) if state is None else len(reference) - int(state.frames)

    def feed(self, reference: torch.Tensor, feed: Callable[[Any, torch.Tensor], Any]) -> None:
        """Advance a reference's state by some frames: ``feed`` gets the last state, or None, and the reference."""
        self.keep(id(reference), (reference, feed(self._state(reference), reference)))

    def after(self, reference: torch.Tensor, feed: Callable[[Any, torch.Tensor], Any]) -> Any:
        """Return the state after all frames; missing frames are fed."""
        while self.missing(reference):
            self.feed(reference, feed)
        return self._state(reference)

    def _state(self, reference: torch.Tensor) -> Any:
        kept = self.get(id(reference))
        return None if kept is None else kept[1]
