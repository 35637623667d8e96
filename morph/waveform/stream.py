"""Decode streamed lines as their codes arrive, line by line or in a shared row."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch

from ..codec.stream import CodecState, CodecStream
from ..codec.weights import CodecWeights
from ..model.model import Model
from ..runtime.capture import CapturedGraphs, CaptureStream
from ..runtime.lru_cache import LruCache
from .engine import BatchCodec
from .incremental import CodecSnapshot, RowStream, WavesInFlight, count_steps

KEPT_REFERENCES = 8  # states of ICL voices: 2.6 MB each in bf16, 5.2 MB in fp32
SPARE_LINES = 2  # a row is used again for streams of at least half as many lines


# The codec's states after ICL references, by the ids of the references' tensors: they stay unique because the cache
# keeps the tensors. A state's ``frames`` counts the reference's frames before it.
References: TypeAlias = LruCache[int, tuple[torch.Tensor, Any]]


class LineCodec(ABC):
    """The base of streaming codecs: decode lines, numbered by the caller, step by step. Not thread-safe.

    A line begins once the reference of its voice is decoded. By default nothing is prepared, and every chunk is a step.
    """

    def __init__(self, references: References):
        self._references = references
        self._behind: dict[int, torch.Tensor] = {}  # references that are not decoded to their ends, by line

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
            self.missing(line)

    def missing(self, line: int) -> int:
        """Return how many frames of its reference must still be decoded, before the line can be launched."""
        if (reference := self._behind.get(line)) is None:
            return 0
        state = self._state_after(reference)
        left = len(reference) - (0 if state is None else int(state.frames))
        if not left:
            del self._behind[line]
            self._start(line, state)
        return left

    def feed(self, line: int) -> None:
        """Decode some of the missing frames, in a time as short as that of a chunk."""
        reference = self._behind[line]
        self._references.put(id(reference), (reference, self._feed(self._state_after(reference), reference)))
        self.missing(line)

    def _state_after(self, reference: torch.Tensor) -> Any:
        kept = self._references.get(id(reference))
        return None if kept is None else kept[1]

    @abstractmethod
    def launch(self, codes: Mapping[int, torch.Tensor]) -> WavesInFlight:
        """Launch the next frames of lines that miss none, ``[n, groups]`` each, if possible without waiting."""

    def begin_ahead(self, line: int, codes: torch.Tensor) -> None:  # noqa: B027 - not by default
        """Launch a line's next frame, ``[groups]`` on the device, before the host knows its codes, if possible.

        ``launch`` gets these codes next.
        """

    def end(self, line: int) -> None:
        """Release a line's state."""
        self._behind.pop(line, None)

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
        return WavesInFlight({line: self._codec.decode(self._states[line], part) for line, part in codes.items()})

    def end(self, line: int) -> None:
        super().end(line)
        self._states.pop(line, None)


class SharedRow(LineCodec):
    """A ``LineCodec`` over a row of many lines. A line without an index in the row is paused."""

    def __init__(self, row: RowStream, references: References):
        super().__init__(references)
        self._row = row
        self._indices: dict[int, int] = {}  # of lines in the row
        self._paused: dict[int, CodecSnapshot | None] = {}

    def prepare(self) -> None:
        self._row.prepare()

    def step_s(self, lines: int) -> float | None:
        return self._row.step_s(lines)

    def steps(self, line: int, frames: int) -> int:
        index, snapshot = self._indices.get(line), self._paused.get(line)
        paused = 0 if snapshot is None else snapshot.frames
        return count_steps(paused if index is None else self._row.frames[index], frames)

    def _start(self, line: int, state: CodecSnapshot | None) -> None:
        self._paused[line] = state
        if len(self._indices) < self._row.lines:
            self._index(line, [])

    def _feed(self, snapshot: CodecSnapshot | None, reference: torch.Tensor) -> CodecSnapshot:
        return self._row.feed(self._free_index([]), snapshot, reference)

    def begin_ahead(self, line: int, codes: torch.Tensor) -> None:
        if (index := self._indices.get(line)) is not None:
            self._row.begin_ahead(index, codes)

    def launch(self, codes: Mapping[int, torch.Tensor]) -> WavesInFlight:
        """Launch the steps of as many lines together as the row has indices."""
        lines, waves = list(codes), WavesInFlight({})
        for begin in range(0, len(lines), self._row.lines):
            now = lines[begin : begin + self._row.lines]
            at = {self._index(line, now): line for line in now}
            waves.extend(self._row.launch({index: codes[line] for index, line in at.items()}), at)
        return waves

    def end(self, line: int) -> None:
        super().end(line)
        self._paused.pop(line, None)
        self._indices.pop(line, None)

    def _index(self, line: int, needed: list[int]) -> int:
        """Return a line's index in the row; for a paused one, an index that no ``needed`` line holds."""
        if line not in self._indices:
            index = self._free_index(needed)
            self._row.start(index, self._paused.pop(line))
            self._indices[line] = index
        return self._indices[line]

    def _free_index(self, needed: list[int]) -> int:
        """Return an index without a line, or pause a line that is not ``needed`` now."""
        if free := set(range(self._row.lines)).difference(self._indices.values()):
            return min(free)
        holder = next(line for line in self._indices if line not in needed)
        index = self._indices.pop(holder)
        self._paused[holder] = self._row.pause(index)
        return index


class StreamCodecs:
    """The streaming codecs of one model, and the cached states of ICL voices."""

    def __init__(self, captures: CaptureStream):
        self._captures = captures
        self.references: References = LruCache(KEPT_REFERENCES)
        self._kept: tuple[CodecWeights, RowStream] | None = None

    def open(self, model: Model, codec: BatchCodec | None, lines: int) -> LineCodec:
        """Return a codec for ``lines`` concurrent lines (more may have begun); valid until the model moves or ``free``.

        ``codec`` lends weights and kernels for a row of many lines; None decodes line by line.
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
        graphs = CapturedGraphs(weights.codebooks.device, self._captures, temporary=True)
        self._kept = None
        row = RowStream(weights, lines, codec.ops, graphs, codec.replace_ops)
        self._kept = weights, row
        return row
