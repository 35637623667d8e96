"""The graph engine: prompts to codes over static buffers, one CUDA graph replay a frame.

Nothing of a frame waits for the host: sampling runs on the device with noise that a line's seed names, the host
reads the codes some frames late, and frames made beyond a line's end are dropped. Sampling settings, seeds and texts
are tensors, so a graph serves every line of its (batch, SEQ_GROUPS, window of the cache). Without CUDA the same
functions are called plainly. Codes are the eager engine's up to rounding where both are greedy; sampled ones come
from the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.attention import sdpa_kernel

from .eager import Decoded
from .frame import Weights, decode_frame, prefill
from .guard import Guard
from .layers import KERNELS
from .lines import Lines
from .model import Model
from .options import PREDICTED_GROUPS, Sampling, check_seq_groups
from .prompt import Prompt
from .readback import LAG, Readback
from .replay import Replayed
from .slots import Slots

SMALLEST_WINDOW = 256  # positions; windows double from here
PROMPT_STEP = 64  # prompts are padded to a multiple of this, so that few prefills are captured
LARGEST_CAPTURED_PREFILL = 1024  # positions of all lines; above, launches are no longer what it costs
ROOM_ALONE = 512  # positions that a single line's cache has at least: 40 s, 60 MB in bf16
FRAMES_PER_TOKEN = 6  # room to begin with: speech takes about 4; the cache grows where more are needed


def choose_window(positions: int) -> int:
    """The smallest window that holds so many positions."""
    window = SMALLEST_WINDOW
    while window < positions:
        window *= 2
    return window


class GraphEngine:
    """Decodes up to ``batch`` lines together with one model.

    Args:
        model: the checkpoint, on the device where it is to run.
        seq_groups: 1..15; may be set anew between decodings.
        batch: rows of all buffers; rows without a line are computed and not read.
        context: positions a line to begin with (prompt and frames); more are made room for when a line needs them.

    Memory: the caches, a few MB of buffers, and what the graphs' temporaries take; the weights are the model's own.
    Not for two threads at once.
    """

    def __init__(self, model: Model, seq_groups: int, batch: int = 1, context: int = SMALLEST_WINDOW):
        if batch < 1:
            raise ValueError(f"batch is {batch}: choose 1 or more")
        self.model = model
        self.seq_groups = check_seq_groups(seq_groups)
        self.batch = batch
        self._context = choose_window(context)
        self._weights: Weights | None = None
        self._addresses: tuple[int, ...] = ()
        self._longest = 0
        self._frames = 0
        self.free()

    def free(self) -> None:
        """Let go of graphs, caches and views of the weights; the next decoding makes them anew."""
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)  # a replay may still be under way
        self._graphs: dict[tuple[int, ...], Replayed] = {}
        self._prompts: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._pool: Any = None
        self._slots: Slots | None = None
        self._readback: Readback | None = None
        self._weights = None
        self._addresses = ()

    @property
    def context(self) -> int:
        """Positions that a line has room for now."""
        return self._context

    @torch.inference_mode()
    def start(self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]) -> None:
        """Prefill lines into the first rows and draw group 0 of their first frames.

        Raises:
            ValueError: for more lines than rows, or another number of seeds than of lines.
        """
        if not 1 <= len(prompts) <= self.batch or len(seeds) != len(prompts):
            raise ValueError(
                f"{len(prompts)} lines and {len(seeds)} seeds: give 1 to {self.batch} lines and a seed for each"
            )
        self._look_up()
        self._longest = max(len(prompt.embeds) for prompt in prompts)
        self._frames = 0
        padded = -(-self._longest // PROMPT_STEP) * PROMPT_STEP
        trailing = max(len(prompt.trailing) for prompt in prompts)
        self._make_room(max(padded, self._longest + LAG + 1, trailing + 1))
        slots = self._allocated()
        slots.cache.clear()
        slots.put(0, prompts, sampling, seeds)
        embeds, lengths = self._prompt_buffers(padded, slots)
        for row, prompt in enumerate(prompts):
            embeds[row, : len(prompt.embeds)] = prompt.embeds
            embeds[row, len(prompt.embeds) :] = 0
        lengths[: len(prompts)] = torch.tensor([len(prompt.embeds) for prompt in prompts])
        if self.batch * padded <= LARGEST_CAPTURED_PREFILL:
            self._run((0, padded), lambda: prefill(self._look_up(), slots, 0, embeds, lengths))
        else:
            with sdpa_kernel(KERNELS):
                prefill(self._look_up(), slots, 0, embeds, lengths)

    @torch.inference_mode()
    def frame(self) -> None:
        """Make every line's next frame; its codes are in ``report`` when the device has done it."""
        self._frames += 1
        self._make_room(self._longest + self._frames)
        slots, window = self._allocated(), choose_window(self._longest + self._frames)
        self._run(
            (self.seq_groups, window), lambda: decode_frame(self._look_up(), slots, self.seq_groups, window)
        )

    @property
    def report(self) -> torch.Tensor:
        """The last frame on the device: int64 ``[B, 17]``, 16 codes and whether the line's numbers overflowed."""
        return self._allocated().state.report

    @torch.inference_mode()
    def decode(
        self,
        prompts: Sequence[Prompt],
        guards: Sequence[Guard],
        sampling: Sampling,
        seeds: Sequence[int],
        on_frame: Callable[[int], None] | None = None,
    ) -> list[Decoded]:
        """Decode lines to their ends; arguments and result as of ``eager.decode_lines``, but a seed a line.

        What ``on_frame`` raises ends the decoding and passes through; the engine can be used again at once.

        Raises:
            ValueError: for more lines than rows, or numbers that overflow in fp16.
        """
        try:
            self.start(prompts, sampling, seeds)
            if self._readback is None:
                self._readback = Readback(self.report)
            self._readback.reset()
            lines = Lines(guards, int(self.model.config.talker_config.codec_eos_token_id))
            while lines.going:
                self.frame()
                self._readback.push()
                if self._readback.waiting > LAG:
                    going = lines.add(self._readback.pop())
                    if on_frame is not None and going:
                        on_frame(going)
            return lines.collect()
        finally:
            self._weights = None  # or a model that is moved away would leave its weights behind

    def _look_up(self) -> Weights:
        """The weights where they are now; graphs that know them elsewhere are let go of."""
        if self._weights is None:
            weights = Weights.of(self.model)
            if weights.addresses() != self._addresses:
                self.free()
                self._addresses = weights.addresses()
            self._weights = weights
        return self._weights

    def _allocated(self) -> Slots:
        if self._slots is None:
            weights = self._look_up()
            config = self.model.config.talker_config
            self._slots = Slots.allocate(config, weights.talker, weights.predictor, self.batch, self._context)
            self._slots.state.positions.fill_(1)
        return self._slots

    def _make_room(self, positions: int) -> None:
        """Grow the cache when it has fewer positions; graphs of the old one go with it."""
        if positions <= self._context:
            return
        self._context = choose_window(positions)
        old = self._slots
        if old is None:
            return
        weights, addresses, readback = self._weights, self._addresses, self._readback
        self.free()
        self._slots = old.grown(self.model.config.talker_config, self._context)
        self._weights, self._addresses, self._readback = weights, addresses, readback

    def _prompt_buffers(self, padded: int, slots: Slots) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeddings ``[B, padded, H]`` and lengths ``[B]`` that a captured prefill reads."""
        if padded not in self._prompts:
            like = slots.state.hidden
            lengths = torch.ones(self.batch, dtype=torch.int64, device=like.device)
            self._prompts[padded] = (like.new_zeros(self.batch, padded, like.shape[1]), lengths)
        return self._prompts[padded]

    def _run(self, key: tuple[int, ...], function: Callable[[], None]) -> None:
        """Call, capture or replay the function of this key (SEQ_GROUPS and window; 0 and length for a prefill)."""
        if key not in self._graphs:
            if self._pool is None and self.model.device.type == "cuda":
                self._pool = torch.cuda.graph_pool_handle()

            def with_kernels() -> None:
                with sdpa_kernel(KERNELS):
                    function()

            self._graphs[key] = Replayed(with_kernels, self.model.device, self._pool)
        self._graphs[key]()


class GraphEngines:
    """The engines of one model, made when they are needed: one for single lines, one for batches.

    Whoever moves the model away from its device calls ``free``; a model that was moved without it is noticed at the
    next decoding, and what the engines held is let go of then.
    """

    def __init__(self, model: Model):
        self.model = model
        self._engines: dict[bool, GraphEngine] = {}

    def decode_lines(
        self,
        prompts: Sequence[Prompt],
        guards: Sequence[Guard],
        seq_groups: int,
        sampling: Sampling,
        seeds: Sequence[int],
        on_frame: Callable[[int], None] | None = None,
    ) -> list[Decoded]:
        """``eager.decode_lines`` on the graph engine: decode a batch of lines to their ends.

        Raises:
            ValueError: as ``GraphEngine``.
        """
        engine = self._engine(len(prompts), seq_groups, max(map(positions_expected, prompts, guards)))
        return engine.decode(prompts, guards, sampling, seeds, on_frame)

    def free(self) -> None:
        """Let go of all graphs and caches."""
        for engine in self._engines.values():
            engine.free()
        self._engines.clear()

    def _engine(self, lines: int, seq_groups: int, context: int) -> GraphEngine:
        """A single line has an engine of its own; a batch takes the last batch's when that has rows enough."""
        single = lines == 1
        engine = self._engines.get(single)
        if engine is None or engine.batch < lines:
            if engine is not None:
                engine.free()
            batch = 1 << (lines - 1).bit_length()
            context = max(context, ROOM_ALONE) if single else context
            engine = self._engines[single] = GraphEngine(self.model, seq_groups, batch, context)
        engine.seq_groups = check_seq_groups(seq_groups)
        return engine


def positions_expected(prompt: Prompt, guard: Guard) -> int:
    """Positions that a line is likely to need: its prompt and its frames, with some to spare."""
    frames = PREDICTED_GROUPS + FRAMES_PER_TOKEN * prompt.text_tokens
    return len(prompt.embeds) + min(guard.max_frames, frames) + LAG + 1
