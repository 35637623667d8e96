"""A line to decode, the input of both engines."""

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
    """A line's text that comes while the line is decoded. Only the decoding thread calls it."""

    def ready(self, frame: int) -> bool:
        """Return whether all text that a frame (from 0) depends on has come; until then the line stalls."""

    def take(self) -> LatePart | None:
        """Return the text since the last call, or None."""


@dataclass(frozen=True)
class LatePart:
    """Text after a prompt's ``trailing``."""

    rows: torch.Tensor  # ``[N, H]``
    min_frames: int  # of the line, as known by now
    text_tokens: int = 0  # of the line by now, those of the prompt included


@dataclass(frozen=True)
class LineRequest:
    """A line to decode. Errors of its callbacks end the decoding of all lines and propagate.

    Args:
        guard: decides when the line must end without an EOS. It counts frames: use it for one decoding only.
        seed: of the line's random stream. The two engines use different generators.
        on_codes: called with the report of each frame up to the line's end, int64 ``[REPORT_WIDTH]``, in order: its 16
            codes come first (see ``decoded.py``). It may be a view of all lines' reports: copy what you keep.
        on_launch: of a streamed line: called once the first frame is launched, while the host is idle, for slow
            preparations. It gets the frame's codes, int64 ``[16]`` on the device; None if other lines begin with the
            same frame. Called again if that frame is made again, because the model was moved. Only the graph engine
            calls it.
        on_end: called once, after the last frame, with "eos", "cap", "loop" or "cancelled".
        on_broken: called once, in place of ``on_end``, if the line's numbers are not finite; the other lines go on.
            None: the decoding of all lines ends with that error.
        cancelled: asked before each frame; once it returns True, the line ends as "cancelled", and its row is free.
        text: the rest of the prompt's text; None: the prompt has all of it.
        sampling: None: as the options of the decoding say. Its limits are the guard's.
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
        return self.cancelled is not None and self.cancelled()

    def end(self, ended: str) -> None:
        if self.on_end is not None:
            self.on_end(ended)

    def break_off(self, error: NotFinite) -> None:
        """Pass the error to ``on_broken``; raise it if there is none."""
        if self.on_broken is None:
            raise error
        self.on_broken(error)
