"""A loaded checkpoint with its engine, eager or graph, which is chosen by setting, machine and checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from .checkpoint.adapter_file import adapt
from .checkpoint.load import load_model
from .codec.stream import decode_waveform
from .decode import eager
from .decode.loop import decode_lines
from .decode.rows import Decoded, LineRequest, RowPlan, Rows
from .graph.engine import on_device
from .graph.pool import DecoderPool
from .model.adapter import Adapter
from .model.model import Model, is_small_on_cpu, limit_threads
from .options import GenerateOptions, LoadOptions
from .runtime.capture import INSTEAD, NO_CUDA, CaptureStream, Fallback, WarmUps
from .runtime.threads import Exclusive
from .setting import settings_of
from .voice.prompt import KEPT_PARTS, PromptBuilder, SharedParts
from .waveform.engine import BatchCodec, InFlight
from .waveform.stream import LineCodec, StreamCodecs


@dataclass(frozen=True)
class Choice:
    """The engine of one rendering, and why."""

    engine: str  # "eager" or "graph"
    batch_codec: bool  # decode the waveforms of many lines together, not line by line
    why: str


class Engine:
    """One model's decoding of lines to codes and of codes to waveforms; keeps caches and graphs between calls.

    It keeps views of the model's weights: call ``free`` before the model leaves its device. Thread-safe: calls run one
    after another. ``choice`` (``options.ENGINES``) "auto" is the graph engine on CUDA and for small models on a CPU,
    where its fewer operations are faster too, else the eager one; "graph" runs anywhere, without CUDA op by op.
    ``kernels`` allows Triton kernels.
    """

    def __init__(self, choice: str = "auto", kernels: bool = True):
        self.choice = settings_of(LoadOptions)["engine"].check(choice)
        # Frames and streamed samples share a stream, since they alternate, and have priority over offline lines.
        self._captures = captures = CaptureStream(urgent=True)
        self._graphs = DecoderPool(kernels, captures)
        self._rows_captures = CaptureStream(warm_ups=captures.warm_ups)
        self._codec: BatchCodec | None = None
        self._streams = StreamCodecs(captures)
        self._prompts = SharedParts(KEPT_PARTS)
        self._use = Exclusive("the engine")
        # One thread normalizes the texts of all lines: more would take the GIL from the batch thread.
        self.texts = ThreadPoolExecutor(1, "speech text")

    def exclusive(self) -> Exclusive:
        """Hold the engine exclusively inside the ``with``; other threads wait.

        Decoding does so by itself. A rendering also builds prompts, which joins the model's weights on first use: it
        takes ``Model.exclusive`` first, then this (see ``Synthesizer.session``).
        """
        return self._use

    @property
    def warm_ups(self) -> WarmUps:
        return self._captures.warm_ups

    def choose(self, model: Model) -> Choice:
        """Choose the engine of a rendering, once for codes, waveforms and report."""
        if self.choice != "auto":
            # On a CPU, decoding waveforms line by line is faster.
            return Choice(self.choice, self.choice == "graph", "as chosen")
        if model.device.type == "cuda":
            return Choice("graph", True, "CUDA")
        if is_small_on_cpu(model):
            return Choice("graph", False, "faster for a small model on a CPU")
        return Choice("eager", False, "no CUDA")

    def fallbacks(self, model: Model, choice: Choice) -> list[Fallback]:
        """Return the parts that run slower than they could, in the order of reports."""
        if choice.engine == "eager":
            return []
        on_cuda = model.device.type == "cuda"
        found = [
            self._graphs.fallback if on_cuda else NO_CUDA,
            self._graphs.frames.fallback_on(model.device) if on_cuda else None,
            self._codec.fallback if choice.batch_codec and self._codec else None,
        ]
        return [one for one in found if one is not None]

    def describe(self, model: Model, choice: Choice) -> str:
        """Return one line for reports: the engine, why it was chosen, and its fallbacks."""
        if choice.engine == "eager":
            return f"engine: eager ({choice.why})"
        fallbacks = self.fallbacks(model, choice)
        slow = {one.part for one in fallbacks} if model.device.type == "cuda" else {*INSTEAD}
        fast = [part for part in ("CUDA graphs", "Triton kernels") if part not in slow]
        return f"engine: graph ({'; '.join([choice.why, *fast, *(one.describe() for one in fallbacks)])})"

    def prompt_builder(self, model: Model) -> PromptBuilder:
        """Return a prompt builder whose shared parts are cached until ``free``. Hold ``exclusive`` while you use it."""
        with self.exclusive():
            return PromptBuilder(model, self._prompts)

    def decode(
        self,
        model: Model,
        lines: Sequence[LineRequest],
        options: GenerateOptions,
        on_frame: Callable[[int], None] | None = None,
        choice: Choice | None = None,
    ) -> list[Decoded]:
        """Decode lines to their ends, ``options.batch_size`` concurrently; return them in the order given.

        With ``AUTO_ROWS`` all lines are decoded together. A line's seed determines its random stream. The engines have
        different generators: the same seed gives different codes on each. ``on_frame`` gets the number of lines in
        every frame; its errors end the decoding. ``choice`` None chooses now. Raise NotFinite if the numbers of a line
        are not finite, ValueError for no lines.
        """
        if not lines:
            raise ValueError("there is no line to decode: give one or more")
        with self.open_rows(model, options, RowPlan.of_lines(lines, options.batch_size), choice) as rows:
            return decode_lines(model, rows, lines, on_frame)

    @contextmanager
    def open_rows(
        self, model: Model, options: GenerateOptions, plan: RowPlan, choice: Choice | None = None
    ) -> Iterator[Rows]:
        """Hold the engine, with rows for lines; ``options`` are for lines without sampling or group."""
        with self.exclusive():
            choice = choice or self.choose(model)
            if choice.engine == "graph":
                opened: AbstractContextManager[Rows]
                opened = self._graphs.decoder(model, plan).open_rows(model, options, plan)
            else:
                opened = eager.open_rows(model, options, plan)
            with opened as rows:
                yield rows

    def begin_waveforms(
        self,
        model: Model,
        choice: Choice,
        codes: Sequence[torch.Tensor],
        references: Sequence[torch.Tensor | None],
        on_chunk: Callable[[], None] | None = None,
    ) -> InFlight:
        """Decode lines' codes ``[T, 16]``, T >= 0, to waveforms, float32 ``[T * 1920]``, at 24 kHz, within -1..1.

        The batch codec may still be decoding when this returns: hold ``exclusive`` while you use the result.
        ``references`` are ICL voices' codes ``[R, 16]`` or None. ``on_chunk`` is called before each step of at most a
        few hundred frames; its errors pass through. Raise ValueError for samples that are not finite.
        """
        with self.exclusive():
            if (codec := self._batch_codec(model, choice)) is not None:
                return codec.begin_waveforms(codes, references, on_chunk)
            pairs = zip(codes, references, strict=True)
            return InFlight([decode_waveform(model, line, before, on_chunk) for line, before in pairs])

    def _batch_codec(self, model: Model, choice: Choice) -> BatchCodec | None:
        if not choice.batch_codec:
            return None
        if self._codec is None or self._codec.codec is not model.codec:
            self._free_codec()
            self._codec = BatchCodec(model, captures=self._rows_captures)
        return self._codec

    def _free_codec(self) -> None:
        if self._codec is not None:
            self._codec.free()

    def open_codec(self, model: Model, choice: Choice, lines: int) -> LineCodec:
        """Return a codec for samples of ``lines`` concurrent lines, valid while you hold ``exclusive``."""
        with self.exclusive():
            return self._streams.open(model, self._batch_codec(model, choice), lines)

    def prepare_codec(self, model: Model, choice: Choice, codec: LineCodec) -> None:
        """Warm up ``codec`` for a line alone; plan the rest, also of the batch codec for offline lines."""
        with self.exclusive():
            codec.prepare()
            if (batch := self._batch_codec(model, choice)) is not None:
                batch.prepare()

    def prepare_next(self) -> bool:
        """Run the next planned warm-up, while no line has a row; return whether there was one."""
        with self.exclusive(), torch.inference_mode():
            return self.warm_ups.prepare_next()

    def free(self) -> None:
        """Release caches and graphs once no other thread decodes; the next decoding creates them again."""
        with self.exclusive():
            self._graphs.free()
            self._free_codec()
            self._streams.free()
            self._prompts.clear()


@dataclass(frozen=True)
class Synthesizer:
    """A model and its engine; creating a voice needs only the model."""

    model: Model
    engine: Engine = field(default_factory=Engine)

    @classmethod
    def load(
        cls,
        path: Path,
        options: LoadOptions | None = None,
        device: torch.device | str = "cpu",
        move: bool = True,
    ) -> Synthesizer:
        """Load a checkpoint folder; arguments and errors are those of ``load_model``."""
        options = options or LoadOptions()
        return cls(load_model(path, options, device, move), Engine(options.engine))

    def with_adapter(self, adapter: Adapter, strength: float, folder: Path) -> Synthesizer:
        """Return a synthesizer with an adapter and its own engine, or this one at strength 0; see ``adapt``."""
        model = adapt(self.model, adapter, strength, folder)
        return self if model is self.model else Synthesizer(model, Engine(self.engine.choice))

    @contextmanager
    def session(self) -> Iterator[None]:
        """Hold the model and the engine exclusively inside the ``with``; other threads wait."""
        # Triton launches its kernels on the current GPU.
        with (
            self.model.exclusive(),
            self.engine.exclusive(),
            limit_threads(self.model),
            on_device(self.model.device),
        ):
            yield

    def free(self) -> None:
        self.engine.free()
