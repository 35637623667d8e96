"""Which engine makes a model's speech: what was chosen at loading, and what the machine and the checkpoint can do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from .decode.decoded import Decoded
from .decode.eager import decode_lines
from .decode.guard import Guard
from .decode.lossless import LosslessPredictor
from .decode.sampling import line_streams, not_finite
from .graph.pool import DecoderPool
from .model.layers import check_config
from .model.model import Model
from .model.threads import is_small_on_cpu
from .options import PREDICTED_GROUPS, Sampling, check_decoding, check_engine
from .runtime.capture import CaptureStream
from .voice.prompt import Prompt
from .waveform.choose import Waveforms, decode_one_by_one

# What runs by default, where it can; else torch operations, and upstream's own decoder of the codec.
SDPA_BACKENDS = FAST_CODEC = True

log = logging.getLogger(__name__)


class Engine:
    """Makes the codes of one model's lines and their waveforms, and holds what is kept between two: caches and graphs.

    Args:
        choice: one of ``options.ENGINES``. "auto" is the graph engine on CUDA, and for small models on a CPU, where its
            fewer operations are faster too; else the eager one. "graph" runs anywhere, op by op without CUDA.
        kernels: let the graph engine's frames run in Triton kernels where those can run.
        fast_codec: let the codec engine make the waveforms of the graph engine's lines, not upstream's modules.

    Of the model it holds no more than its codec. Whoever moves the model away from its device calls ``free`` first.
    Threads take turns: caches and graphs serve one decoding at a time.
    """

    def __init__(self, choice: str = "auto", kernels: bool = SDPA_BACKENDS, fast_codec: bool = FAST_CODEC):
        self.choice = check_engine(choice)
        captures = CaptureStream()  # codes and waveforms take turns
        self._graphs = DecoderPool(kernels, captures)
        self._waveforms = Waveforms(fast_codec, captures)
        self._lock = threading.RLock()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let no other thread use this engine, for the length of the ``with``: others wait.

        Decoding does so by itself. Whoever also builds prompts, which joins the model's weights on first use, holds it
        around all of a rendering.
        """
        with self._lock:
            yield

    def pick(self, model: Model, decoding: str = "crossbar") -> tuple[str, str]:
        """The engine that runs for this model now, "eager" or "graph", and why.

        Raises:
            ValueError: for lossless decoding where the graph engine was chosen: it has a fixed number of passes.
        """
        if check_decoding(decoding) == "lossless":
            if self.choice == "graph":
                raise ValueError(
                    "decoding is lossless and the model's engine is graph, which cannot do it: choose engine auto "
                    "or eager in Load Model, or decoding crossbar"
                )
            return "eager", "as chosen" if self.choice == "eager" else "decoding is lossless"
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

    def describe(self, model: Model, decoding: str = "crossbar") -> str:
        """One line for reports: which engine runs, how, and why."""
        name, why = self.pick(model, decoding)
        if name == "eager":
            return f"engine: eager ({why})"
        return f"engine: graph ({'; '.join([why, *self._details(model)])})"

    def _details(self, model: Model) -> Iterator[str]:
        """How the graph engine runs."""
        plain = self._graphs.why_plain if model.device.type == "cuda" else "no CUDA"
        yield "CUDA graphs" if plain is None else f"op by op, without CUDA graphs: {plain}"
        if model.device.type == "cuda":
            yield self._graphs.frames.describe(model.device)
        if self._decodes_together(model) and (codec := self._waveforms.describe()) is not None:
            yield codec

    def _decodes_together(self, model: Model) -> bool:
        """Whether the graph engine's lines get the codec engine: on a CPU the original modules are faster."""
        return model.device.type == "cuda" or self.choice == "graph"

    @property
    def why_torch(self) -> str | None:
        """Why the last decoding's frames were made in torch operations, or None when Triton kernels made them."""
        return self._graphs.frames.why_torch

    def decode_lines(
        self,
        model: Model,
        prompts: Sequence[Prompt],
        guards: Sequence[Guard],
        seq_groups: int,
        sampling: Sampling,
        seeds: Sequence[int],
        batch_size: int = 1,
        on_frame: Callable[[int], None] | None = None,
        decoding: str = "crossbar",
        tail: str = "auto",
    ) -> list[Decoded]:
        """Decode any number of lines to their ends, at most ``batch_size`` at a time, in the order given.

        A seed names a line's draws; the two engines draw with different generators, so it gives other codes in the
        other, and with lossless ``decoding`` (one of ``options.DECODINGS``) yet others. What ``on_frame`` raises ends
        the decoding and passes through; see ``eager.decode_lines`` for the rest.
        """
        with self.exclusive():
            name, _ = self.pick(model, decoding)
            if name == "graph":
                return self._graphs.decode_lines(
                    model, prompts, guards, seq_groups, sampling, seeds, batch_size, on_frame, tail
                )
            lossless = None
            if decoding == "lossless":
                lossless = LosslessPredictor(model.talker.code_predictor, tails=model.tails(tail))
            decoded: list[Decoded] = []
            for start in range(0, len(prompts), batch_size):
                part = slice(start, start + batch_size)
                streams = line_streams(seeds[part], model.device)
                decoded += decode_lines(
                    model,
                    prompts[part],
                    guards[part],
                    seq_groups,
                    sampling,
                    streams,
                    on_frame,
                    predictor=lossless,
                    tail=tail,
                )
            if lossless is not None:
                log.info("lossless: %s, %d without drafts", lossless.tally.describe(), PREDICTED_GROUPS)
            return decoded

    def decode_waveforms(
        self,
        model: Model,
        codes: Sequence[torch.Tensor],
        references: Sequence[torch.Tensor | None],
        on_chunk: Callable[[], None] | None = None,
        decoding: str = "crossbar",
    ) -> list[np.ndarray]:
        """Decode lines' codes to their waveforms: the graph engine's together, the eager engine's as upstream does.

        Where "auto" took the graph engine on a CPU, they are decoded as upstream does.

        Args:
            model: the checkpoint.
            codes: ``[T, 16]`` for each line; T may be 0.
            references: for each line an ICL voice's codes ``[R, 16]``, or None.
            on_chunk: called before each step of at most some hundred frames; what it raises passes through.
            decoding: what the codes were decoded with, since it chooses the engine.

        Returns:
            float32 ``[T * 1920]`` for each line, at 24 kHz, within -1..1.

        Raises:
            ValueError: for samples that are not finite.
        """
        with self.exclusive():
            name, _ = self.pick(model, decoding)
            together = name == "graph" and self._decodes_together(model)
            decode = self._waveforms.decode_lines if together else decode_one_by_one
            waves = decode(model, codes, references, on_chunk)
        if not all(np.isfinite(wave.sum()) for wave in waves):
            raise not_finite(model.codec.dtype)
        return waves

    def free(self) -> None:
        """Release caches and graphs; the next decoding makes them again. Waits for one that runs in another thread."""
        with self.exclusive():
            self._graphs.free()
            self._waveforms.free()
