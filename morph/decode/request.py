"""One line to decode, the input of both engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..voice.prompt import Prompt
from .guard import Guard


@dataclass(frozen=True)
class LineRequest:
    """A line to decode.

    Args:
        prompt: what to speak, and with which voice.
        guard: decides when the line must end without an EOS. It counts frames: use it for one decoding only.
        seed: of the line's random stream. The two engines use different generators.
        on_codes: called with the codes of each finished frame, int64 ``[16]`` on the CPU, in order. Frames past the
            line's end are never passed. What it raises ends the decoding of all lines and passes through.
        on_end: called once, after the last frame, with how the line ended: "eos", "cap" or "loop". Errors as above.
    """

    prompt: Prompt
    guard: Guard
    seed: int = 0
    on_codes: Callable[[torch.Tensor], None] | None = None
    on_end: Callable[[str], None] | None = None

    def end(self, ended: str) -> None:
        """Pass how the line ended to ``on_end``, if there is one."""
        if self.on_end is not None:
            self.on_end(ended)
