"""Choose the engine and run it: by what was chosen at loading, and what the machine and the checkpoint support."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .codec.upstream import decode_waveforms
from .decode import eager
from .decode.decoded import Decoded
from .decode.source import Lines
from .graph.pool import DecoderPool
from .model.layers import check_config
from .model.model import Model
from .model.threads import is_small_on_cpu
from .options import GenerateOptions, check_engine
from .runtime.capture import NO_CUDA, CaptureStream
from .runtime.exclusive import Exclusive
from .runtime.fallback import Fallback
from .runtime.first_times import FirstTimes
from .runtime.kept_threads import KeptThreads
from .voice.prompt import PromptBuilder, SharedParts
from .waveform.choose import Waveforms
from .waveform.in_flight import InFlight, Made, take_all
from .waveform.stream import LineCodec, StreamCodecs


@dataclass(frozen=True)
class Choice:
    """What makes one rendering's codes and waveforms.

    Args:
        engine: "eager" or "graph".
        codec: "upstream", the original modules, one line at a time; or "batch", many lines in one row.
        why: the reason for the engine, in a few words.
    """

    engine: str
    codec: str
    why: str


class Engine:
    """Decodes lines to codes and codes to waveforms, and keeps caches and graphs of one model between calls.

    Args:
        choice: one of ``options.ENGINES``. "auto" is the graph engine on CUDA and for small models on a CPU, where its
            fewer operations are faster too; otherwise the eager one. "graph" runs anywhere, without CUDA op by op.
        kernels: let the graph engine decode frames in Triton kernels where they can run.
        batch_codec: let the batch codec make the waveforms of the graph engine's lines.

    It keeps no reference to the model except to its codec, but views of its weights: call ``free`` before the model
    leaves its device.
    Threads take turns: caches and graphs serve one decoding at a time.
    """

    def __init__(self, choice: str = "auto", kernels: bool = True, batch_codec: bool = True):
        self.choice = check_engine(choice)
        # Shared by frames and the samples of lines that are heard: these take turns, and go before complete lines.
        self._captures = captures = CaptureStream(first=True)
        self._graphs = DecoderPool(kernels, captures)
        self._waveforms = Waveforms(batch_codec, CaptureStream(first_times=captures.first_times))
        self._streams = StreamCodecs(self._waveforms, captures)
        self._prompts = SharedParts()
        self._use = Exclusive("the engine")
        self.threads = KeptThreads("speech batch")

    def exclusive(self) -> Exclusive:
        """Hold the engine exclusively inside the ``with``; other threads wait.

        Decoding does so by itself. A rendering also builds prompts, which joins the model's weights on first use: it
        takes ``Model.exclusive`` first, then this (see ``Synthesizer.session``).
        """
        return self._use

    @property
    def first_times(self) -> FirstTimes:
        """What has been called and captured for the first time."""
        return self._captures.first_times

    def choose(self, model: Model) -> Choice:
        """Choose what renders, once for codes, waveforms and report."""
        engine, why = self._pick(model)
        # Where "auto" takes the graph engine on a CPU, upstream's modules are the faster codec.
        together = engine == "graph" and (model.device.type == "cuda" or self.choice == "graph")
        return Choice(engine, "batch" if together else "upstream", why)

    def _pick(self, model: Model) -> tuple[str, str]:
        if self.choice != "auto":
            return self.choice, "as chosen"
        if model.device.type == "cuda":
            why = "CUDA"
        elif is_small_on_cpu(model):
            why = "faster for a small model on a CPU"
        else:
            return "eager", "no CUDA"
        try:
            check_config(model.config.talker_config)
            check_config(model.config.talker_config.code_predictor_config)
        except ValueError as error:
            return "eager", str(error)
        return "graph", why

    def fallbacks(self, model: Model, choice: Choice) -> list[Fallback]:
        """Return every part that runs slower than it could, in the order of reports."""
        if choice.engine == "eager":
            return []
        on_cuda = model.device.type == "cuda"
        found = [
            self._graphs.fallback if on_cuda else NO_CUDA,
            self._graphs.frames.fallback_on(model.device) if on_cuda else None,
            self._waveforms.fallback if choice.codec == "batch" else None,
        ]
        return [one for one in found if one is not None]

    def describe(self, model: Model, choice: Choice) -> str:
        """Return one line for reports: which engine ran, why, and with which fallbacks."""
        if choice.engine == "eager":
            return f"engine: eager ({choice.why})"
        fallbacks = self.fallbacks(model, choice)
        fast = ["CUDA graphs", "Triton kernels"] if model.device.type == "cuda" else []
        for one in fallbacks:
            if one.part in fast:
                fast.remove(one.part)
        return f"engine: graph ({'; '.join([choice.why, *fast, *(one.describe() for one in fallbacks)])})"

    def prompt_builder(self, model: Model) -> PromptBuilder:
        """Return a builder of prompts; what they have in common is kept until ``free``.

        Use it while holding ``exclusive``.
        """
        with self.exclusive():
            return PromptBuilder(model, self._prompts)

    def decode(
        self,
        model: Model,
        lines: Lines,
        options: GenerateOptions,
        on_frame: Callable[[int], None] | None = None,
        choice: Choice | None = None,
    ) -> list[Decoded]:
        """Decode any number of lines to their ends, at most ``options.batch_size`` at a time, in the order given.

        With ``AUTO_ROWS`` all lines that are given are decoded at once. A line's seed determines its random stream. The
        engines use different generators, so the same seed gives different codes on the other one.

        Args:
            model: the checkpoint.
            lines: the requests, or where they come from while others are decoded.
            options: as for ``eager.decode``.
            on_frame: called after every frame with the number of lines that made one; what it raises ends the
                decoding and passes through.
            choice: of the rendering; None chooses now.
        """
        with self.exclusive():
            choice = choice or self.choose(model)
            if choice.engine == "graph":
                decoder = self._graphs.decoder(model, lines, options)
                return decoder.decode(model, lines, options, on_frame)
            return eager.decode(model, lines, options, on_frame)

    def decode_waveforms(
        self,
        model: Model,
        choice: Choice,
        codes: Sequence[torch.Tensor],
        references: Sequence[torch.Tensor | None],
        on_chunk: Callable[[], None] | None = None,
    ) -> list[np.ndarray]:
        """Decode lines' codes to their waveforms.

        Args:
            model: the checkpoint.
            choice: what decoded the codes; its codec is used.
            codes: ``[T, 16]`` for each line; T may be 0.
            references: for each line an ICL voice's codes ``[R, 16]``, or None.
            on_chunk: called before each step of at most a few hundred frames; what it raises passes through.

        Returns:
            float32 ``[T * 1920]`` for each line, at 24 kHz, within -1..1.

        Raises:
            ValueError: for samples that are not finite.
        """
        return take_all(self.begin_waveforms(model, choice, codes, references, on_chunk))

    def begin_waveforms(
        self,
        model: Model,
        choice: Choice,
        codes: Sequence[torch.Tensor],
        references: Sequence[torch.Tensor | None],
        on_chunk: Callable[[], None] | None = None,
    ) -> InFlight:
        """As ``decode_waveforms``, without waiting for the device, where the batch codec decodes.

        Use the result while holding ``exclusive``.
        """
        with self.exclusive():
            if choice.codec == "batch":
                return self._waveforms.begin_waveforms(model, codes, references, on_chunk)
            return Made(decode_waveforms(model, codes, references, on_chunk))

    def open_codec(self, model: Model, choice: Choice, lines: int) -> LineCodec:
        """Return a codec that makes the samples of lines while their codes are made.

        Use it while holding ``exclusive``: it is valid until then.

        Args:
            model: the checkpoint.
            choice: what decodes the codes; its codec is used.
            lines: how many lines are decoded at the same time.
        """
        with self.exclusive():
            return self._streams.open(model, choice.codec == "batch", lines)

    def prepare_codec(self, model: Model, choice: Choice, codec: LineCodec) -> None:
        """Do once what would hold up lines later whose samples are made: in parts by ``codec``, or complete."""
        with self.exclusive():
            codec.prepare()
            if choice.codec == "batch":
                self._waveforms.prepare(model)

    def free(self) -> None:
        """Release caches and graphs; the next decoding creates them again. Waits for a decoding in another thread."""
        with self.exclusive():
            self._graphs.free()
            self._waveforms.free()
            self._streams.free()
            self._prompts.clear()
