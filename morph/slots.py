"""The static buffers of a batch of lines: what a captured frame reads and writes, at addresses that stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from .eager import SPECIAL_CODES
from .layers import Angles, Decoder
from .noise import line_keys
from .options import Sampling
from .predictor import POSITIONS
from .prompt import Prompt
from .static_cache import StaticCache
from .static_sampling import DrawTensors

PREDICTOR_LENGTH = POSITIONS + 7  # 24: the rows of its cache stay aligned


@dataclass(frozen=True)
class LineState:
    """What one frame leaves to the next, one row a line.

    ``tokens`` ``[B]`` is group 0 of the frame to be made and ``hidden`` ``[B, H]`` the talker's state that it was
    drawn from; ``steps`` counts the line's frames, ``positions`` is where its next key goes. ``seen`` is
    ``[B, V]``, ``keys`` ``[B, 2]`` (see ``noise.py``), ``text`` ``[B, N, H]`` what the text adds to each frame.
    ``report`` ``[B, 17]`` is the last frame's codes, and behind them whether the line's numbers have overflowed.
    """

    tokens: torch.Tensor
    hidden: torch.Tensor
    steps: torch.Tensor
    positions: torch.Tensor
    seen: torch.Tensor
    keys: torch.Tensor
    text: torch.Tensor
    penalties: torch.Tensor
    report: torch.Tensor
    talker: DrawTensors
    subtalker: DrawTensors

    @classmethod
    def allocate(cls, config: Any, batch: int, context: int, like: torch.Tensor) -> LineState:
        """For ``batch`` lines of at most ``context`` positions; dtype and device of ``like``."""
        device, width = like.device, config.hidden_size

        def integers(*shape: int) -> torch.Tensor:
            return torch.zeros(batch, *shape, dtype=torch.int64, device=device)

        return cls(
            tokens=integers(),
            hidden=like.new_zeros(batch, width),
            steps=integers(),
            positions=integers(),
            seen=torch.zeros(batch, config.vocab_size, dtype=torch.bool, device=device),
            keys=integers(2),
            text=like.new_zeros(batch, context, width),
            penalties=torch.ones(batch, device=device),
            report=integers(config.num_code_groups + 1),
            talker=DrawTensors.allocate(batch, device),
            subtalker=DrawTensors.allocate(batch, device),
        )

    def lines(self, rows: slice) -> LineState:
        """Some of the lines, in place."""
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, part in parts.items():
            parts[name] = part.lines(rows) if isinstance(part, DrawTensors) else part[rows]
        return LineState(**parts)


@dataclass(frozen=True)
class Slots:
    """The buffers of a batch.

    ``cache`` is the talker's, ``frame_cache`` the predictor's (one frame's), ``angles`` and ``frame_angles`` their
    RoPE tables; ``suppressed`` and ``is_eos`` are bool ``[V]`` over group 0's vocabulary; ``codebook`` is the size
    of the other groups'.
    """

    state: LineState
    cache: StaticCache
    frame_cache: StaticCache
    angles: Angles
    frame_angles: Angles
    suppressed: torch.Tensor
    is_eos: torch.Tensor
    codebook: int

    @classmethod
    def allocate(cls, config: Any, talker: Decoder, predictor: Decoder, batch: int, context: int) -> Slots:
        """For ``batch`` lines of at most ``context`` positions, where the weights are. ``config`` is the talker's."""
        like = talker.norm
        tokens = torch.arange(config.vocab_size, device=like.device)
        is_eos = tokens == config.codec_eos_token_id
        return cls(
            state=LineState.allocate(config, batch, context, like),
            cache=_allocate_cache(talker, batch, context),
            frame_cache=_allocate_cache(predictor, batch, PREDICTOR_LENGTH),
            angles=Angles.table(config, context, like.device),
            frame_angles=Angles.table(config.code_predictor_config, POSITIONS, like.device),
            suppressed=(tokens >= config.vocab_size - SPECIAL_CODES) & ~is_eos,
            is_eos=is_eos,
            codebook=config.code_predictor_config.vocab_size,
        )

    @property
    def context(self) -> int:
        """Positions a line."""
        return self.cache.length

    def grown(self, config: Any, context: int) -> Slots:
        """The same lines with room for more positions: cache, text and RoPE table are new, the rest is shared."""
        layers, batch, kv_heads, _, head_dim = self.cache.keys.shape
        cache = StaticCache.allocate(layers, batch, kv_heads, context, head_dim, self.cache.keys)
        cache.copy_from(self.cache)
        old = self.state.text
        # Behind the old end there is no text any more: the last row is the pad.
        text = torch.cat((old, old[:, -1:].expand(-1, context - old.shape[1], -1)), dim=1)
        angles = Angles.table(config, context, old.device)
        return replace(self, cache=cache, angles=angles, state=replace(self.state, text=text))

    def put(self, first: int, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]) -> None:
        """Let lines ``first ..`` be these: all but their prefill.

        Raises:
            ValueError: when a line's trailing text does not fit into the context.
        """
        rows = slice(first, first + len(prompts))
        state = self.state.lines(rows)
        for row, prompt in enumerate(prompts):
            length = len(prompt.trailing)
            if length >= self.context:
                raise ValueError(f"a line has {length} text tokens to follow and {self.context} positions")
            state.text[row, :length] = prompt.trailing
            state.text[row, length:] = prompt.pad
        state.steps.zero_()
        state.seen.zero_()
        state.report.zero_()
        state.keys.copy_(line_keys(seeds))
        state.penalties.fill_(sampling.repetition_penalty)
        state.talker.put(sampling.talker, self.suppressed.shape[0])
        state.subtalker.put(sampling.subtalker, self.codebook)


def _allocate_cache(decoder: Decoder, batch: int, length: int) -> StaticCache:
    return StaticCache.allocate(
        len(decoder.layers), batch, decoder.kv_heads, length, decoder.head_dim, decoder.norm
    )
