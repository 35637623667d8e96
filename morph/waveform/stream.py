"""Decode streamed lines as their codes arrive, line by line or in a shared row."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..codec.stream import CodecState, CodecStream
from ..codec.weights import CodecWeights
from ..model.model import Model
from ..runtime.capture import CapturedGraphs, CaptureStream, graphs_keep_memory
from ..runtime.lru_cache import LruCache
from .engine import BatchCodec
from .in_flight import SamplesInFlight
from .incremental import CodecSnapshot, RowStream, StepsInFlight, count_steps

KEPT_REFERENCES = 8  # states of ICL voices: 2.6 MB each in bf16, 5.2 MB in fp32
SPARE_LINES = 2  # a row is used again for streams of at least half as many lines


class References(LruCache[int, tuple[torch.Tensor, Any]]):
    """An LRU cache of the codec's states after ICL references.

    A reference is identified by its tensor's id, which stays unique because the cache keeps the tensor. A state's
    ``frames`` counts the reference's frames before it.
    """

    def missing(self, reference: torch.Tensor) -> int:
        """Return how many frames of a reference must still be fed."""
        state = self._state(reference)
        return len(reference) if state is None else len(reference) - int(state.frames)

    def feed(self, reference: torch.Tensor, feed: Callable[[Any, torch.Tensor], Any]) -> None:
        """Advance a reference's state by some frames: ``feed`` gets the last state, or None, and the reference."""
        self.put(id(reference), (reference, feed(self._state(reference), reference)))

    def after(self, reference: torch.Tensor, feed: Callable[[Any, torch.Tensor], Any]) -> Any:
        """Return the state after all frames; missing frames are fed."""
        while self.missing(reference):
            self.feed(reference, feed)
        return self._state(reference)

    def _state(self, reference: torch.Tensor) -> Any:
        kept = self.get(id(reference))
        return None if kept is None else kept[1]


class WavesInFlight:
    """Samples of lines by line; in subclasses the device may still compute them."""

    def __init__(self, waves: dict[int, np.ndarray]):
        self.waves = waves

    @property
    def is_ready(self) -> bool:
        """Whether ``wait`` returns immediately."""
        return True

    @property
    def seconds(self) -> float | None:
        """The device's time for them, after ``wait``; None if it was not measured."""
        return None

    def wait(self) -> dict[int, np.ndarray]:
        """Return them by line, float32 ``[n * 1920]`` on the CPU. Call it once."""
        return self.waves


class LineCodec(ABC):
    """The base of streaming codecs: decode lines, numbered by the caller, step by step. Not thread-safe.

    A line begins once the reference of its voice is decoded. By default nothing is prepared, and every chunk is a step.
    """

    def __init__(self, references: References):
        self._references = references
        self._behind: dict[
            int, torch.Tensor
        ] = {}  # references of lines, until the state after them is decoded

    def prepare(self) -> None:  # noqa: B027 - nothing to prepare, by default
        """Capture and measure, so that no line waits for it later."""

    def step_s(self, lines: int) -> float | None:
        """Return the device's seconds for a chunk of each of ``lines``; None if unknown."""
        return None

    def steps(self, line: int, frames: int) -> int:
        """Return in how many steps a line's next ``frames`` are decoded: more than one if a chunk begins."""
        return 1

    def begin(self, line: int, reference: torch.Tensor | None) -> None:
        """Begin a line, after an ICL voice's codes ``[R, groups]``; drop the number's last line."""
        self.end(line)
        if reference is None:
            self._start(line, None)
        else:
            self._behind[line] = reference
        self._take_kept(line)

    def missing(self, line: int) -> int:
        """Return how many frames of its reference must still be decoded before a line's own."""
        return self._references.missing(self._behind[line]) if line in self._behind else 0

    def feed(self, line: int) -> None:
        """Decode some of the missing frames, in a time as short as that of a chunk."""
        self._references.feed(self._behind[line], self._feed)
        self._take_kept(line)

    @abstractmethod
    def launch(self, codes: Mapping[int, torch.Tensor]) -> WavesInFlight:
        """Launch the next frames of lines that have begun, ``[n, groups]`` each, if possible without waiting.

        Missing frames of a reference are decoded before.
        """

    def begin_ahead(self, line: int, codes: torch.Tensor) -> None:  # noqa: B027 - not by default
        """Launch a line's next frame, ``[groups]`` on the device, before the host knows its codes, if possible.

        ``launch`` gets these codes next.
        """

    def end(self, line: int) -> None:
        """Release a line's state."""
        self._behind.pop(line, None)

    def _take_kept(self, line: int) -> None:
        if not self.missing(line):
            self._take_state(line)

    def _take_state(self, line: int) -> None:
        """Begin a line with the state after its reference, whose missing frames are decoded."""
        if (reference := self._behind.pop(line, None)) is not None:
            self._start(line, self._references.after(reference, self._feed))

    @abstractmethod
    def _start(self, line: int, state: Any) -> None:
        """Begin a line with a state, or without a reference."""

    @abstractmethod
    def _feed(self, state: Any, reference: torch.Tensor) -> Any:
        """Return the state after some more frames of a reference; ``state`` None: from its first."""


class SingleLines(LineCodec):
    """A ``LineCodec`` that decodes line by line, with upstream's arithmetic."""

    def __init__(self, model: Model, references: References):
        super().__init__(references)
        self._codec = CodecStream(model)
        self._states: dict[int, CodecState] = {}

    def _start(self, line: int, state: CodecState | None) -> None:
        self._states[line] = CodecState() if state is None else state.copy()

    def _feed(self, state: CodecState | None, reference: torch.Tensor) -> CodecState:
        state = state or CodecState()
        self._codec.feed(state, reference)
        return state

    def launch(self, codes: Mapping[int, torch.Tensor]) -> WavesInFlight:
        """Decode while the host waits."""
        for line in codes:
            self._take_state(line)
        return WavesInFlight(
            {line: self._codec.decode(self._states[line], part) for line, part in codes.items()}
        )

    def end(self, line: int) -> None:
        super().end(line)
        self._states.pop(line, None)


class SharedRow(LineCodec):
    """A ``LineCodec`` over a row of many lines. A line without an index in the row is paused."""

    def __init__(self, row: RowStream, references: References):
        super().__init__(references)
        self._row = row
        self._holders: list[int | None] = [None] * row.lines
        self._indices: dict[int, int] = {}  # of the lines among them
        self._paused: dict[int, CodecSnapshot | None] = {}
        self._early: dict[int, np.ndarray] = {}  # samples that were begun ahead, of paused lines

    def prepare(self) -> None:
        self._row.prepare()

    def step_s(self, lines: int) -> float | None:
        return self._row.step_s(lines)

    def steps(self, line: int, frames: int) -> int:
        if (index := self._indices.get(line)) is not None:
            return self._row.steps(index, frames)
        if (reference := self._behind.get(line)) is not None:
            return count_steps(len(reference), frames)
        snapshot = self._paused.get(line)
        return count_steps(0 if snapshot is None else snapshot.frames, frames)

    def _start(self, line: int, state: CodecSnapshot | None) -> None:
        self._paused[line] = state

    def _take_kept(self, line: int) -> None:
        super()._take_kept(line)
        if line in self._paused and len(self._indices) < len(self._holders):
            self._index(line, [])

    def _feed(self, snapshot: CodecSnapshot | None, reference: torch.Tensor) -> CodecSnapshot:
        return self._row.feed(self._free_index([]), snapshot, reference)

    def begin_ahead(self, line: int, codes: torch.Tensor) -> None:
        if (index := self._indices.get(line)) is not None:
            self._row.begin_ahead(index, codes)

    def launch(self, codes: Mapping[int, torch.Tensor]) -> WavesInFlight:
        for line in codes:  # first: this may take indices
            self._take_state(line)
        begun = {
            line: one for line, part in codes.items() if (one := self._claim_ahead(line, part)) is not None
        }
        rest = {line: codes[line][1:] for line in begun}
        late = {
            line: rest.get(line, part) for line, part in codes.items() if line not in rest or len(rest[line])
        }
        return _Shared(begun, [*self._launch(late)])

    def _claim_ahead(self, line: int, codes: torch.Tensor) -> SamplesInFlight | np.ndarray | None:
        """Return the frame that was begun ahead, complete or not, or None; its codes are the first of ``codes``."""
        if line in self._early:
            return self._early.pop(line)
        index = self._indices.get(line)
        return None if index is None or not len(codes) else self._row.claim_ahead(index, codes[0])

    def _launch(self, codes: Mapping[int, torch.Tensor]) -> Iterator[tuple[dict[int, int], StepsInFlight]]:
        """Launch the lines' steps in batches of the row's size; yield the lines by index, and the steps."""
        lines = list(codes)
        for begin in range(0, len(lines), self._row.lines):
            now = lines[begin : begin + self._row.lines]
            at = {line: self._index(line, now) for line in now}
            launched = self._row.launch({at[line]: codes[line] for line in now})
            yield {index: line for line, index in at.items()}, launched

    def end(self, line: int) -> None:
        super().end(line)
        self._paused.pop(line, None)
        self._early.pop(line, None)
        if (index := self._indices.pop(line, None)) is not None:
            self._holders[index] = None

    def _index(self, line: int, needed: list[int]) -> int:
        """Return a line's index in the row; for a paused one, an index that no ``needed`` line holds."""
        if (held := self._indices.get(line)) is not None:
            return held
        index = self._free_index(needed)
        self._row.start(index, self._paused.pop(line))
        self._holders[index], self._indices[line] = line, index
        return index

    def _free_index(self, needed: list[int]) -> int:
        """Return an index without a line, or pause a line that is not ``needed`` now."""
        if len(self._indices) < len(self._holders):
            return self._holders.index(None)
        index, holder = next(
            (index, one) for index, one in enumerate(self._holders) if one is not None and one not in needed
        )
        if (wave := self._row.take_ahead(index)) is not None:
            self._early[holder] = wave
        self._paused[holder] = self._row.pause(index)
        self._holders[index] = None
        del self._indices[holder]
        return index


class _Shared(WavesInFlight):
    """Samples of a row: of frames ``begun`` ahead, and of ``steps`` with their lines by index."""

    def __init__(
        self,
        begun: Mapping[int, SamplesInFlight | np.ndarray],
        steps: Sequence[tuple[dict[int, int], StepsInFlight]],
    ):
        super().__init__({line: one for line, one in begun.items() if isinstance(one, np.ndarray)})
        self._ahead = {line: one for line, one in begun.items() if isinstance(one, SamplesInFlight)}
        self._steps = steps

    @property
    def is_ready(self) -> bool:
        ahead = all(one.is_ready for one in self._ahead.values())
        return ahead and all(step.is_ready for _, step in self._steps)

    @property
    def seconds(self) -> float | None:
        took = [step.seconds for _, step in self._steps]
        return None if self.waves or self._ahead or None in took else sum(filter(None, took))

    def wait(self) -> dict[int, np.ndarray]:
        made = self.waves | {line: one.wait()[0] for line, one in self._ahead.items()}
        for lines, step in self._steps:
            for index, wave in step.wait().items():
                line = lines[index]
                made[line] = np.concatenate((made[line], wave)) if line in made else wave
        return made


class StreamCodecs:
    """The streaming codecs of one model, and the cached states of ICL voices."""

    def __init__(self, captures: CaptureStream):
        self._captures = captures
        self.references = References(KEPT_REFERENCES)
        self._kept: tuple[CodecWeights, RowStream] | None = None

    def open(self, model: Model, codec: BatchCodec | None, lines: int) -> LineCodec:
        """Return a codec for ``lines`` concurrent lines (more may have begun); valid until the model moves or ``free``.

        ``codec`` lends weights and kernels for a row of many lines; None decodes one line at a time.
        """
        row = None if codec is None else self._row(codec, lines)
        address = next(model.codec.decoder.parameters()).data_ptr()
        self.references.set_origin((row is not None, model.device, model.codec.dtype, address))
        return SingleLines(model, self.references) if row is None else SharedRow(row, self.references)

    def free(self) -> None:
        self.references.clear()
        self._kept = None

    def _row(self, codec: BatchCodec, lines: int) -> RowStream:
        """Return the last stream's row if it fits, as its graph has been captured, or a new one."""
        weights = codec.look_up()
        if self._kept is not None:
            before, row = self._kept
            if before is weights and lines <= row.lines <= SPARE_LINES * lines:
                return row
        device = weights.codebooks.device
        graphs = None
        if device.type == "cuda" and not graphs_keep_memory(device):
            graphs = CapturedGraphs(device, self._captures)
        self._kept = None
        row = RowStream(weights, lines, codec.ops, graphs, codec.replace_ops)
        self._kept = weights, row
        return row
