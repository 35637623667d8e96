"""Break down the time to the first samples, for the table "stream".

Rows and codecs of the engine are wrapped in proxies that mark steps, without changes of the product.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.decode.rows import Frame, LineRequest, RowPlan, Rows
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.synthesizer import Choice, Engine

from .common import NamedEngine


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


class Proxy:
    """A proxy of an object, of which a subclass overrides methods."""

    def __init__(self, inner: Any):
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class MarkedWaves(Proxy):
    """``WavesInFlight`` that mark the first samples."""

    def __init__(self, waves: Any, marks: Marks):
        super().__init__(waves)
        self._marks = marks

    def wait(self) -> dict[int, np.ndarray]:
        made: dict[int, np.ndarray] = self._inner.wait()
        self._marks.add("codec_done_ms")
        return made


class MarkedCodec(Proxy):
    """A ``LineCodec`` whose first chunk is marked."""

    def __init__(self, codec: Any, marks: Marks):
        super().__init__(codec)
        self._marks = marks

    def begin_ahead(self, line: int, codes: torch.Tensor) -> None:
        self._marks.add("codec_began_ms")
        self._inner.begin_ahead(line, codes)

    def launch(self, codes: Mapping[int, torch.Tensor]) -> MarkedWaves:
        self._marks.add("codec_began_ms")
        return MarkedWaves(self._inner.launch(codes), self._marks)


class MarkedRows(Proxy):
    """Rows whose first line and first codes are marked."""

    def __init__(self, rows: Rows, marks: Marks):
        super().__init__(rows)
        self._marks = marks

    @property
    def late(self) -> bool:
        return bool(self._inner.late)

    @late.setter
    def late(self, late: bool) -> None:
        self._inner.late = late

    def admit(self, lines: Sequence[LineRequest]) -> list[int]:
        rows: list[int] = self._inner.admit(lines)
        self._marks.add("prefill_launched_ms")
        self._marks.add_device("prefill_done_ms")
        return rows

    def read(self) -> Frame | None:
        frame: Frame | None = self._inner.read()
        if frame is not None:
            self._marks.add("codes_ms")
        return frame


class ProbedEngine(Engine):
    """An engine whose next decoding is marked, if ``marks`` is given."""

    marks: Marks | None = None

    @contextmanager
    def open_rows(
        self, model: Model, options: GenerateOptions, plan: RowPlan, choice: Choice | None = None
    ) -> Iterator[Any]:
        if self.marks is not None:
            self.marks.add("prompt_ms")
        with super().open_rows(model, options, plan, choice) as rows:
            yield rows if self.marks is None else MarkedRows(rows, self.marks)

    def open_codec(self, *asked: Any) -> Any:
        codec = super().open_codec(*asked)
        return codec if self.marks is None else MarkedCodec(codec, self.marks)


class ProbedNamedEngine(NamedEngine, ProbedEngine):
    """``NamedEngine``, probed."""
