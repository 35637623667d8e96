"""One line to decode, the input of both engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from ..model.finite import NotFinite
from ..options import Sampling
from ..voice.prompt import Prompt
from .guard import Guard


class LateText(Protocol):
    """The text of a line that comes while the line is spoken. Only the thread that decodes calls it."""

    def ready(self, frame: int) -> bool:
        """Return whether all that a frame (from 0) depends on has come; until then the line makes no frame."""

    def take(self) -> LatePart | None:
        """Return what has come since the last call, or None."""


@dataclass(frozen=True)
class LatePart:
    """What follows a prompt's ``trailing``: ``rows`` ``[N, H]``, and what is known of the line by now.

    That is its ``min_frames``, and the number of its ``text_tokens``, those of the prompt included.
    """

    rows: torch.Tensor
    min_frames: int
    text_tokens: int = 0


@dataclass(frozen=True)
class LineRequest:
    """A line to decode.

    Args:
        prompt: what to speak, and with which voice.
        guard: decides when the line must end without an EOS. It counts frames: use it for one decoding only.
        seed: of the line's random stream. The two engines use different generators.
        on_codes: called with the report of each finished frame, int64 ``[REPORT_WIDTH]``, in order: its 16 codes come
            first (see ``decoded.py``). It may be a view of what all lines have, so what is kept should be a copy.
            Frames past the line's end are never passed. What it raises ends the decoding of all lines and passes
            through.
        on_launch: of a line that is heard while it is made: called when the device has its first frame to make and the
            host would wait for it, for what must be ready by then and takes time. It gets the codes that the frame will
            have, int64 ``[16]`` on the device; None if other lines begin with the same frame. Called again if that
            frame has to be made again, because the model was moved. Only the graph engine calls it.
        on_end: called once, after the last frame, with how the line ended: "eos", "cap", "loop" or "cancelled". Errors
            as above.
        on_broken: called once, in the place of ``on_end``, if the line's numbers are not finite: the line has ended,
            and the others go on. None: the decoding of all lines ends with that error.
        cancelled: asked before each frame; once it returns True, the line ends there as "cancelled", and its row is
            free.
        text: the rest of the prompt's text; None: the prompt has all of it.
        sampling: how its tokens are chosen; its limits are the guard's. None: as the options of the decoding say.
    """

    prompt: Prompt
    guard: Guard
    seed: int = 0
    on_codes: Callable[[np.ndarray], None] | None = None
    on_end: Callable[[str], None] | None = None
    on_launch: Callable[[torch.Tensor | None], None] | None = None
    cancelled: Callable[[], bool] | None = None
    text: LateText | None = None
    sampling: Sampling | None = None
    on_broken: Callable[[NotFinite], None] | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether the line is to end before its next frame."""
        return self.cancelled is not None and self.cancelled()

    def end(self, ended: str) -> None:
        """Pass how the line ended to ``on_end``, if there is one."""
        if self.on_end is not None:
            self.on_end(ended)

    def break_off(self, error: NotFinite) -> None:
        """Pass the error of numbers that are not finite to ``on_broken``; raise it if there is none."""
        if self.on_broken is None:
            raise error
        self.on_broken(error)
