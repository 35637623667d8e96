"""For the table "stream": where the time to the first samples goes, and lines that arrive while others play.

The product knows nothing of it: requests, sources of lines and codecs are wrapped on their way to the engine. A
wrapper has what it changes; everything else is the product's own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.decode.decoded import Decoded
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.decode.source import NOTHING_AHEAD, Lines, LineSource, as_source
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.model.model import Model

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

    def watch(self, request: LineRequest) -> LineRequest:
        """Return the request with marks: an engine asks ``cancelled`` as soon as the prefill is launched."""

        def cancelled() -> bool:
            self.add("prefill_launched_ms")
            self.add_device("prefill_done_ms")
            return request.is_cancelled

        def on_codes(codes: np.ndarray) -> None:
            self.add("codes_ms")
            if request.on_codes is not None:
                request.on_codes(codes)

        return replace(request, cancelled=cancelled, on_codes=on_codes)


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


class WatchedSource(Wrapped):
    """A ``LineSource`` whose first line is marked."""

    def __init__(self, source: LineSource, marks: Marks):
        super().__init__(source)
        self._marks, self._first = marks, True

    def take(self) -> LineRequest:
        """See ``LineSource``."""
        request: LineRequest = self._inner.take()
        first, self._first = self._first, False
        return self._marks.watch(request) if first else request


class Arrivals(Wrapped):
    """A ``LineSource`` whose last lines arrive one at a time, spread evenly over the frames of the first one.

    A line arrives at a random moment within a frame, as a request to a server would. Its prompt is made already, and
    it speaks ``ARRIVAL_FRAMES`` frames.

    Args:
        source: gives all lines; each is one piece.
        together: how many begin at once.
        count: how many arrive.
        frames: of the lines that begin at once.
    """

    def __init__(self, source: LineSource, together: int, count: int, frames: int):
        super().__init__(source)
        self.late, self.ahead = True, NOTHING_AHEAD
        self.at: list[float] = []  # of each line that arrived while others played: time.perf_counter()
        self._together, self._count, self._frames = together, count, frames
        self._every = max(1, frames // (count + 1))
        self._random = random.Random(0)
        self._taken = self._made = 0
        self._frame_at = self._frame_s = 0.0
        self._due: float | None = None

    @property
    def ready(self) -> Sequence[LineRequest]:
        """See ``LineSource``."""
        waiting = list(self._inner.ready)
        if self._taken < self._together:
            return waiting[: self._together - self._taken]
        arrived = self._taken - self._together
        if self._due is None and self._made >= (arrived + 1) * self._every:
            self._due = time.perf_counter() + self._random.random() * self._frame_s
        return waiting[:1] if self._due is not None and time.perf_counter() >= self._due else []

    def take(self) -> LineRequest:
        """See ``LineSource``."""
        request: LineRequest = self._inner.take()
        self._taken += 1
        if self._taken == 1:
            return self._counting(request)
        if self._taken <= self._together:
            return request
        if self._due is not None and self._made < self._frames:
            self.at.append(self._due)
        self._due = None
        return replace(request, guard=Guard(min(ARRIVAL_FRAMES, self._frames), detect_loops=False))

    def wait(self) -> None:
        """See ``LineSource``: all others have ended, so the next line comes now."""
        if self._taken < self._together + self._count:
            self._due = time.perf_counter()
        else:
            self._inner.wait()

    def _counting(self, request: LineRequest) -> LineRequest:
        def on_codes(codes: np.ndarray) -> None:
            now = time.perf_counter()
            self._frame_s, self._frame_at = now - (self._frame_at or now), now
            self._made += 1
            if request.on_codes is not None:
                request.on_codes(codes)

        return replace(request, on_codes=on_codes)


class ProbedEngine(Engine):
    """An engine whose next decoding is marked, or gets lines late.

    Attributes:
        marks: of the next decoding, or None.
        spread: makes the source of the next decoding from the lines, or None.
    """

    marks: Marks | None = None
    spread: Callable[[LineSource], Any] | None = None

    def decode(self, model: Model, lines: Lines, *more: Any, **named: Any) -> list[Decoded]:
        """See ``Engine.decode``."""
        source: Any = lines
        if self.marks is not None:
            self.marks.add("prompt_ms")
            source = WatchedSource(as_source(source), self.marks)
        if self.spread is not None:
            source = self.spread(as_source(source))
        return super().decode(model, source, *more, **named)

    def open_codec(self, *asked: Any) -> Any:
        """See ``Engine.open_codec``."""
        codec = super().open_codec(*asked)
        return codec if self.marks is None else MarkedCodec(codec, self.marks)


class ProbedMeasured(Measured, ProbedEngine):
    """``Measured``, probed."""
