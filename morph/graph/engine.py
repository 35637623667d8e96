"""The graph engine: prompts to codes over static buffers, one CUDA graph replay a frame.

Nothing of a frame waits for the host: sampling runs on the device with noise that a line's seed names, the host
reads the codes some frames late, and frames made beyond a line's end are dropped. Sampling settings, seeds and texts
are tensors, so a graph serves every line of its (batch, SEQ_GROUPS, window of the cache). A row whose line has ended
takes the next line while the others go on. Without CUDA the same functions are called plainly; where Triton can run,
its kernels make the frames (``fused.py``). Codes are the eager engine's up to rounding where both are greedy; sampled
ones come from the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import sdpa_kernel

from ..decode.decoded import Decoded
from ..decode.guard import Guard
from ..frame.buffers import Buffers, PrefillBatch
from ..frame.weights import Weights
from ..model.layers import SDPA_BACKENDS
from ..model.model import Model
from ..options import PREDICTED_GROUPS, Sampling, check_seq_groups
from ..runtime.capture import CapturedGraphs, CaptureStream
from ..voice.prompt import Prompt
from .backend import FrameBackend
from .batch import LineBatch
from .readback import LAG, Readback

SMALLEST_WINDOW = 256  # positions; windows double from here
PROMPT_STEP = 64  # prompts are padded to a multiple of this, so that few prefills are captured
LARGEST_CAPTURED_PREFILL = 2048  # positions of all its lines: a captured one keeps some 40 KB for each
LARGEST_PREFILL = 8192  # positions of all its lines: what a pass over them takes stays below 300 MB in bf16
FRAMES_PER_TOKEN = 6  # room to begin with: speech takes about 4; the cache grows where more are needed


def choose_window(positions: int) -> int:
    """The smallest window that holds so many positions."""
    window = SMALLEST_WINDOW
    while window < positions:
        window *= 2
    return window


def pad_length(positions: int) -> int:
    """The length of a prefill that holds a prompt."""
    return -(-positions // PROMPT_STEP) * PROMPT_STEP


class GraphDecoder:
    """Decodes lines with one model, up to ``batch`` of them together.

    Args:
        batch: rows of all buffers; rows without a line are computed and not read.
        context: positions a line to begin with (prompt and frames); more are made room for when a line needs them.
        frames: what makes them, kernels or torch operations; None chooses for the device.
        captures: the stream that graphs are captured on, to share it; None makes one.

    Holds caches, a few MB of buffers, and what the graphs' temporaries take; of the model it holds nothing between
    two decodings. A model that was moved meanwhile is noticed. Not for two threads at once.
    """

    def __init__(
        self,
        batch: int = 1,
        context: int = 1,
        frames: FrameBackend | None = None,
        captures: CaptureStream | None = None,
    ):
        if batch < 1:
            raise ValueError(f"batch is {batch}: choose 1 or more")
        self.batch = batch
        self.context = choose_window(context)
        self.frames = frames or FrameBackend()
        self._captures = captures or CaptureStream()
        self.seq_groups = PREDICTED_GROUPS
        self._weights: Weights | None = None
        self._addresses: tuple[int, ...] = ()
        self._slots: Buffers | None = None
        self._replays: CapturedGraphs | None = None
        self._readback: Readback | None = None
        self._arrivals: dict[tuple[int, int], PrefillBatch] = {}

    def free(self) -> None:
        """Let go of graphs, caches and views of the weights; the next decoding makes them anew."""
        if self._replays is not None:
            self._replays.forget()
        self._weights, self._addresses = None, ()
        self._slots = self._readback = None
        self._arrivals.clear()

    @property
    def why_plain(self) -> str | None:
        """What kept the last decoding's frames from being replayed as graphs, or None."""
        return None if self._replays is None else self._replays.refused

    @torch.inference_mode()
    def start(
        self, model: Model, seq_groups: int, sampling: Sampling, context: int = 0, tail: str = "auto"
    ) -> None:
        """Make ready for lines of this model that need so many positions.

        Raises:
            ValueError: for a bad ``seq_groups``, or a config that the graph engine does not compute.
        """
        self.seq_groups = check_seq_groups(seq_groups)
        weights = Weights.of(model, tail)
        addresses = weights.addresses()
        if addresses != self._addresses or context > self.context:
            self.free()
        self.context = choose_window(max(context, self.context))
        self._weights, self._addresses = weights, addresses
        self.frames.choose(weights)
        if self._replays is None or self._replays.device != model.device:
            self._replays = CapturedGraphs(model.device, self._captures)
        if self._slots is None:
            config = model.config.talker_config
            self._slots = Buffers.allocate(
                config, weights.talker, weights.predictor, self.batch, self.context
            )
        self._slots.put(sampling)

    def stop(self) -> None:
        """Let go of the weights: a model that is moved away would leave them behind."""
        self._weights = None

    @property
    def _ready(self) -> tuple[Weights, Buffers, CapturedGraphs]:
        if self._weights is None or self._slots is None or self._replays is None:
            raise RuntimeError("start the engine first")
        return self._weights, self._slots, self._replays

    @property
    def _at_once(self) -> bool:
        """Whether functions are simply called, as on a CPU: nothing is captured, no frame is ahead of the host."""
        replays = self._ready[2]
        return replays.device.type == "cpu" and replays.refused is not None

    @torch.inference_mode()
    def put(self, rows: Sequence[int], prompts: Sequence[Prompt], seeds: Sequence[int]) -> None:
        """Let these rows have new lines: prefill them and draw group 0 of their first frames."""
        longest = max(len(prompt.embeds) for prompt in prompts)
        trailing = max(len(prompt.trailing) for prompt in prompts)
        self._make_room(max(pad_length(longest), trailing + 1))
        self._ready[1].put_texts(rows, prompts)
        places = list(range(len(rows)))
        for part in split_prefill([len(prompt.embeds) for prompt in prompts]):
            chosen = places[part]
            self._prefill(
                [rows[place] for place in chosen],
                [prompts[place] for place in chosen],
                [seeds[place] for place in chosen],
            )

    def _prefill(self, rows: Sequence[int], prompts: Sequence[Prompt], seeds: Sequence[int]) -> None:
        weights, slots, replays = self._ready
        longest = max(len(prompt.embeds) for prompt in prompts)
        length = pad_length(longest)
        small = len(rows) * length <= LARGEST_CAPTURED_PREFILL and not self._at_once
        if not small:  # nothing is captured, so there may be as many lengths as there are
            length = longest
        key = (len(rows), length)
        arrivals = self._arrivals.get(key) or PrefillBatch.allocate(*key, slots.state.hidden)
        arrivals.put(rows, prompts, seeds)

        def function() -> None:
            with sdpa_kernel(SDPA_BACKENDS):
                self.frames.prefill(weights, slots, arrivals, small)

        if small:
            self._arrivals[key] = arrivals
            replays.run(("prefill", *key), function)
        else:
            function()

    @torch.inference_mode()
    def frame(self, positions: int) -> None:
        """Make every line's next frame; its codes are in ``report`` when the device has done it.

        ``positions`` is how many of the cache the longest line takes up by then.
        """
        self._make_room(positions)
        weights, slots, replays = self._ready
        window = choose_window(positions)

        def function() -> None:
            with sdpa_kernel(SDPA_BACKENDS):
                self.frames.decode(weights, slots, self.seq_groups, window)

        refused = replays.refused
        replays.run(("frame", self.seq_groups, window), function)
        if replays.refused != refused and self.frames.why_torch is None:
            # It may be the kernels that cannot be captured: torch operations get a try of their own.
            self.frames.refuse(f"a graph of them could not be captured: {replays.refused}")
            replays.forget()
            self._replays = CapturedGraphs(replays.device, self._captures)

    @property
    def report(self) -> torch.Tensor:
        """The last frame on the device: int64 ``[B, 17]``, 16 codes and whether the line's numbers are not finite."""
        return self._ready[1].state.report

    @torch.inference_mode()
    def decode(
        self,
        model: Model,
        prompts: Sequence[Prompt],
        guards: Sequence[Guard],
        seq_groups: int,
        sampling: Sampling,
        seeds: Sequence[int],
        on_frame: Callable[[int], None] | None = None,
        tail: str = "auto",
    ) -> list[Decoded]:
        """Decode any number of lines to their ends; they get their rows in the order given.

        Arguments and result are those of ``eager.decode_lines``, but for a seed a line. What ``on_frame`` raises ends
        the decoding and passes through; the engine can be used again at once.

        Raises:
            ValueError: as ``start``, for other numbers of guards or seeds than of prompts, and for numbers that
                are not finite.
        """
        if not prompts or not len(prompts) == len(guards) == len(seeds):
            raise ValueError(
                f"{len(prompts)} prompts, {len(guards)} guards, {len(seeds)} seeds: give one or more of each, as many"
            )
        eos = int(model.config.talker_config.codec_eos_token_id)
        lengths = [len(prompt.embeds) for prompt in prompts]
        lines = LineBatch(lengths, guards, eos, self.batch, model.dtype)
        try:
            with on_device(model.device):
                self.start(model, seq_groups, sampling, max(map(positions_expected, prompts, guards)), tail)
                self._decode(lines, prompts, seeds, on_frame)
        except ValueError:  # numbers that are not finite: no mask hides those that are left in the cache
            self.free()
            raise
        finally:
            self.stop()
        return lines.collect()

    def _decode(
        self,
        lines: LineBatch,
        prompts: Sequence[Prompt],
        seeds: Sequence[int],
        on_frame: Callable[[int], None] | None,
    ) -> None:
        readback = self._readback = self._readback or Readback(self.report)
        readback.reset()
        lag = 0 if self._at_once else LAG
        while lines.going:
            if admitted := lines.admit():
                rows, chosen = zip(*admitted, strict=True)
                self.put(rows, [prompts[line] for line in chosen], [seeds[line] for line in chosen])
            lines.send()
            self.frame(lines.positions)
            readback.push()
            if readback.waiting > lag:
                made = lines.receive(readback.pop())
                if on_frame is not None and made:
                    on_frame(made)

    def _make_room(self, positions: int) -> None:
        """Grow the cache when it has fewer positions; graphs of the old one go with it."""
        if positions <= self.context:
            return
        _, slots, replays = self._ready
        self.context = choose_window(positions)
        self._slots = slots.grown(self.context)
        replays.forget()


def split_prefill(lengths: Sequence[int]) -> Iterator[slice]:
    """Cut a row of prompts into passes: powers of two, so that few kinds are captured, and not too many positions."""
    start = 0
    while start < len(lengths):
        count = 1 << (len(lengths) - start).bit_length() - 1
        while count > 1 and count * pad_length(max(lengths[start : start + count])) > LARGEST_PREFILL:
            count //= 2
        yield slice(start, start + count)
        start += count


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Streams and events are those of the current device: let it be the model's."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def positions_expected(prompt: Prompt, guard: Guard) -> int:
    """Positions that a line is likely to need: its prompt and its frames, with some to spare."""
    frames = PREDICTED_GROUPS + FRAMES_PER_TOKEN * prompt.text_tokens
    return len(prompt.embeds) + min(guard.max_frames, frames) + LAG + 1
