"""For the table "stream": where the time to the first samples goes, and lines that arrive while others play.

The product knows nothing of it: rows and codecs are wrapped on their way from the engine. A wrapper has what it
changes; everything else is the product's own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.decode.rows import Frame, RowPlan, Rows
from qwen3_tts_morph.morph.engine import Choice, Engine
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions

from .common import Measured

ARRIVAL_FRAMES = 12  # of a line that arrives: then its row is free for the next one
FRAMES_PER_ARRIVAL = 25


class Marks:
    """When steps were first reached, in ms since this object was made."""

    def __init__(self, device: torch.device):
        self._device = device
        self._host: dict[str, float] = {}
        self._events: dict[str, torch.cuda.Event] = {}
        self.add_device("began")
        self._began = time.perf_counter()

    def add(self, name: str) -> None:
        """Note that the host has reached a step."""
        self._host.setdefault(name, time.perf_counter())

    def add_device(self, name: str) -> None:
        """Note when the device finishes what has been launched so far; on a CPU that is now."""
        if self._device.type != "cuda":
            self.add(name)
        elif name not in self._events:
            self._events[name] = torch.cuda.Event(enable_timing=True)
            self._events[name].record()

    def read(self) -> dict[str, float]:
        """Return the ms of every step, once the device has finished all of them."""
        times = {name: 1000 * (at - self._began) for name, at in self._host.items()}
        for name, event in self._events.items():
            times[name] = self._events["began"].elapsed_time(event)
        times.pop("began")
        return times


class Wrapped:
    """What the product made, but for what a subclass changes."""

    def __init__(self, inner: Any):
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class MarkedWaves(Wrapped):
    """``WavesInFlight``, the first of which are marked when they are there."""

    def __init__(self, waves: Any, marks: Marks):
        super().__init__(waves)
        self._marks = marks

    def wait(self) -> dict[int, np.ndarray]:
        """See ``WavesInFlight``."""
        made: dict[int, np.ndarray] = self._inner.wait()
        self._marks.add("codec_done_ms")
        return made


class MarkedCodec(Wrapped):
    """A ``LineCodec`` whose first chunk is marked."""

    def __init__(self, codec: Any, marks: Marks):
        super().__init__(codec)
        self._marks = marks

    def begin_ahead(self, line: int, codes: torch.Tensor) -> None:
        """See ``LineCodec``."""
        self._marks.add("codec_began_ms")
        self._inner.begin_ahead(line, codes)

    def launch(self, codes: Mapping[int, torch.Tensor]) -> MarkedWaves:
        """See ``LineCodec``."""
        self._marks.add("codec_began_ms")
        return MarkedWaves(self._inner.launch(codes), self._marks)


class ProbedRows(Wrapped):
    """Rows whose state can be set, as a running batch does."""

    @property
    def late(self) -> bool:
        """See ``Rows``."""
        return bool(self._inner.late)

    @late.setter
    def late(self, late: bool) -> None:
        self._inner.late = late


class WatchedRows(ProbedRows):
    """Rows whose first line and first codes are marked."""

    def __init__(self, rows: Rows, marks: Marks):
        super().__init__(rows)
        self._marks = marks

    def admit(self, lines: Sequence[LineRequest]) -> list[int]:
        """See ``Rows``."""
        rows: list[int] = self._inner.admit(lines)
        self._marks.add("prefill_launched_ms")
        self._marks.add_device("prefill_done_ms")
        return rows

    def read(self) -> Frame | None:
        """See ``Rows``."""
        frame: Frame | None = self._inner.read()
        if frame is not None:
            self._marks.add("codes_ms")
        return frame


class Arrivals(ProbedRows):
    """Rows that the last lines get one at a time, spread evenly over the frames of the first one.

    A line arrives at a random moment within a frame, as a request to a server would. Its prompt is made already, and
    it speaks ``ARRIVAL_FRAMES`` frames.

    Args:
        rows: are asked for all lines; each is one piece.
        together: how many begin at once.
        count: how many arrive.
        frames: of the lines that begin at once.
    """

    def __init__(self, rows: Rows, together: int, count: int, frames: int):
        super().__init__(rows)
        self.at: list[float] = []  # of each line that arrived while others played: time.perf_counter()
        self._together, self._count, self._frames = together, count, frames
        self._every = max(1, frames // (count + 1))
        self._random = random.Random(0)
        self._taken = self._made = self._running = 0
        self._frame_at = self._frame_s = 0.0
        self._due: float | None = None

    def room(self, waiting: int) -> int:
        """See ``Rows``."""
        if self._taken < self._together:
            return int(self._inner.room(min(waiting, self._together - self._taken)))
        arrived = self._taken - self._together
        if self._due is None and (not self._running or self._made >= (arrived + 1) * self._every):
            self._due = time.perf_counter() + self._random.random() * self._frame_s * bool(self._running)
        is_due = self._due is not None and time.perf_counter() >= self._due
        return int(self._inner.room(1)) if is_due else 0

    def admit(self, lines: Sequence[LineRequest]) -> list[int]:
        """See ``Rows``."""
        if self._taken >= self._together:
            for line in lines:
                line.guard.max_frames, line.guard.detect_loops = min(ARRIVAL_FRAMES, self._frames), False
            if self._due is not None and self._made < self._frames:
                self.at.append(self._due)
            self._due = None
        self._taken, self._running = self._taken + len(lines), self._running + len(lines)
        rows: list[int] = self._inner.admit(lines)
        return rows

    def read(self) -> Frame | None:
        """See ``Rows``."""
        frame: Frame | None = self._inner.read()
        if frame is not None:
            now = time.perf_counter()
            self._frame_s, self._frame_at = now - (self._frame_at or now), now
            self._made += 1
        return frame

    def release(self, row: int) -> None:
        """See ``Rows``."""
        self._running -= 1
        self._inner.release(row)


class ProbedEngine(Engine):
    """An engine whose next decoding is marked, or gets lines late.

    Attributes:
        marks: of the next decoding, or None.
        spread: changes the rows of the next decoding, or None.
    """

    marks: Marks | None = None
    spread: Callable[[Rows], Arrivals] | None = None

    @contextmanager
    def open_rows(
        self, model: Model, options: GenerateOptions, plan: RowPlan, choice: Choice | None = None
    ) -> Iterator[Any]:
        """See ``Engine.open_rows``."""
        if self.marks is not None:
            self.marks.add("prompt_ms")
        late = plan.late or self.spread is not None
        with super().open_rows(model, options, replace(plan, late=late), choice) as rows:
            watched = rows if self.marks is None else WatchedRows(rows, self.marks)
            yield watched if self.spread is None else self.spread(watched)

    def open_codec(self, *asked: Any) -> Any:
        """See ``Engine.open_codec``."""
        codec = super().open_codec(*asked)
        return codec if self.marks is None else MarkedCodec(codec, self.marks)


class ProbedMeasured(Measured, ProbedEngine):
    """``Measured``, probed."""
