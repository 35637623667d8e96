"""One line to decode, the input of both engines."""

from __future__ import annotations

from dataclasses import dataclass

from ..voice.prompt import Prompt
from .guard import Guard


@dataclass(frozen=True)
class LineRequest:
    """A line to decode.

    Args:
        prompt: what to speak, and with which voice.
        guard: decides when the line must end without an EOS. It counts frames: use it for one decoding only.
        seed: of the line's random stream. The two engines use different generators.
    """

    prompt: Prompt
    guard: Guard
    seed: int = 0
