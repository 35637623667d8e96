"""The static buffers of a batch of lines: a captured frame reads and writes them at fixed addresses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..decode.predictor import POSITIONS
from ..decode.rows import REPORT_WIDTH, SPECIAL_CODES, LatePart
from ..model.layers import Angles, LayerStack
from ..model.static_cache import StaticCache
from ..options import Sampling
from ..voice.prompt import MIN_FRAMES, Prompt
from ..words.alignment import REPORTED
from .sampling import ALL_ROWS, RowIndex, SamplingTensors, line_key

SHORT_PROMPTS = (16, 32, 64)  # padded lengths of a single line's short prompt: its kernels know no others
SPAN = 2  # numbers of a text span: the position of its first token, and its number of tokens
PREDICTOR_LENGTH = POSITIONS + 7  # 24: keeps the rows of its cache aligned


@dataclass(frozen=True)
class LineState:
    """The state that one frame passes to the next, one row per line."""

    tokens: torch.Tensor  # [B], group 0 of the next frame
    hidden: torch.Tensor  # [B, H], the talker's state that it was sampled from
    steps: torch.Tensor  # frames so far
    minimums: torch.Tensor  # frames before which the line cannot end
    positions: torch.Tensor  # cache position of the next key
    seen: torch.Tensor  # [B, V], group 0's sampled tokens, for the repetition penalty
    keys: torch.Tensor  # [B, 2], see sampling.py
    alignment: torch.Tensor  # [B, 5], ``spans`` and ``aligned``
    report: torch.Tensor  # [B, REPORT_WIDTH], the last frame's (decode/rows.py)

    @classmethod
    def allocate(cls, config: Any, batch: int, like: torch.Tensor) -> LineState:
        device = like.device

        def integers(*shape: int) -> torch.Tensor:
            return torch.zeros(batch, *shape, dtype=torch.int64, device=device)

        return cls(
            tokens=integers(),
            hidden=like.new_zeros(batch, config.hidden_size),
            steps=integers(),
            minimums=integers() + MIN_FRAMES,
            positions=integers(),
            seen=torch.zeros(batch, config.vocab_size, dtype=torch.bool, device=device),
            keys=integers(2),
            alignment=integers(SPAN + REPORTED),
            report=integers(REPORT_WIDTH),
        )

    @property
    def spans(self) -> torch.Tensor:
        """Position of each line's first text token and number of text tokens, a view ``[B, 2]``."""
        return self.alignment[:, :SPAN]

    @property
    def aligned(self) -> torch.Tensor:
        """The alignment head's result for the next frame (``words/alignment.py``), a view ``[B, 3]``."""
        return self.alignment[:, SPAN:]

    def reset(self, numbers: torch.Tensor) -> None:
        """Reset all lines to before their first frame; ``numbers`` is ``LastPositions.numbers``."""
        self.positions.copy_(numbers[:, 0])
        self.minimums.copy_(numbers[:, 1])
        self.keys.copy_(numbers[:, 2:4])
        self.spans.copy_(numbers[:, 4:])
        self.steps.fill_(-1)
        self.seen.zero_()
        self.report.zero_()

    def row(self, row: int) -> LineState:
        """Return the state of one row, as views."""
        return LineState(**{name: part[row : row + 1] for name, part in vars(self).items()})

    def clone(self) -> LineState:
        return LineState(**{name: part.clone() for name, part in vars(self).items()})

    def copy_from(self, other: LineState) -> None:
        for name, part in vars(other).items():
            getattr(self, name).copy_(part)

    def copy_rows(self, rows: torch.Tensor, lines: LineState) -> None:
        """Copy lines ``[N, ...]`` to these rows (int64 ``[N]``, without repeats)."""
        for name, part in vars(lines).items():
            getattr(self, name).index_copy_(0, rows, part)


@dataclass(frozen=True)
class SamplerSettings:
    """Each line's repetition penalty ``[B]`` and the settings of both samplers."""

    penalties: torch.Tensor
    talker: SamplingTensors
    subtalker: SamplingTensors

    @classmethod
    def allocate(cls, batch: int, device: torch.device) -> SamplerSettings:
        samplers = [SamplingTensors.allocate(batch, device) for _ in range(2)]
        return cls(torch.ones(batch, device=device), *samplers)

    def put(self, sampling: Sampling, vocab: int, codebook: int, rows: RowIndex = ALL_ROWS) -> None:
        self.penalties[rows].fill_(sampling.repetition_penalty)
        self.talker.put(sampling.talker, vocab, rows)
        self.subtalker.put(sampling.subtalker, codebook, rows)

    def take(self, rows: torch.Tensor) -> SamplerSettings:
        return SamplerSettings(self.penalties[rows], self.talker.take(rows), self.subtalker.take(rows))


@dataclass(frozen=True)
class PrefillBatch:
    """The inputs of a prefill of N lines."""

    embeds: torch.Tensor  # [N, T, H], prompts padded on the right with zeros
    numbers: torch.Tensor  # int64 [N, 7]: row, length, minimum frames, key (sampling.py), text span

    @classmethod
    def allocate(cls, lines: int, length: int, like: torch.Tensor) -> PrefillBatch:
        """Return buffers for prompts of at most ``length`` positions; width, dtype, device of ``like``."""
        numbers = torch.zeros(lines, 5 + SPAN, dtype=torch.int64, device=like.device)
        return cls(like.new_zeros(lines, length, like.shape[-1]), numbers)

    @property
    def is_short(self) -> bool:
        return self.embeds.shape[1] in SHORT_PROMPTS

    def put(self, rows: Sequence[int], prompts: Sequence[Prompt], seeds: Sequence[int]) -> None:
        """Fill in N lines, without a host sync."""
        self.embeds.zero_()
        if len(prompts) == 1:  # in fewer operations
            self.embeds[0, : prompts[0].length].copy_(prompts[0].embeds)
        else:
            put_sequences(self.embeds, range(len(prompts)), [prompt.embeds for prompt in prompts])
        numbers = [
            (row, prompt.length, prompt.min_frames, *line_key(seed), *prompt.text_span)
            for row, prompt, seed in zip(rows, prompts, seeds, strict=True)
        ]
        _put_numbers(self.numbers, numbers)


@dataclass(frozen=True)
class LastPositions:
    """The last position of every line's prompt, with all earlier positions in the cache."""

    embeds: torch.Tensor  # [B, H], the talker's input
    numbers: torch.Tensor  # int64 [B, 6], as of ``PrefillBatch``, without the row

    @classmethod
    def allocate(cls, like: torch.Tensor) -> LastPositions:
        return cls(torch.zeros_like(like), torch.zeros(len(like), 4 + SPAN, dtype=torch.int64, device=like.device))

    def put(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> None:
        """Fill in all lines, without a host sync."""
        for row, prompt in enumerate(prompts):
            self.embeds[row].copy_(prompt.embeds[-1])
        numbers = [
            (prompt.length - 1, prompt.min_frames, *line_key(seed), *prompt.text_span)
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        _put_numbers(self.numbers, numbers)


def put_sequences(buffer: torch.Tensor, rows: Sequence[int], sequences: Sequence[torch.Tensor]) -> None:
    """Write sequences ``[T_i, H]`` to the start of rows of ``[B, T, H]``, in a constant number of launches."""
    sizes = torch.tensor([len(one) for one in sequences])
    # Added to an index into the concatenated sequences, they give one into the flattened rows.
    shifts = torch.tensor([row * buffer.shape[1] for row in rows]) - (sizes.cumsum(0) - sizes)
    indices = torch.arange(int(sizes.sum())) + shifts.repeat_interleave(sizes)
    indices = _pinned(indices, buffer).to(buffer.device, non_blocking=True)
    buffer.view(-1, buffer.shape[2]).index_copy_(0, indices, torch.cat(list(sequences)).to(buffer.dtype))


def _put_numbers(buffer: torch.Tensor, numbers: Sequence[Sequence[int]]) -> None:
    buffer.copy_(torch.tensor(numbers, dtype=torch.int64, pin_memory=buffer.is_cuda), non_blocking=True)


def _pinned(numbers: torch.Tensor, destination: torch.Tensor) -> torch.Tensor:
    """Pin host memory for a copy to a GPU, so that it does not block the host."""
    return numbers.pin_memory() if destination.is_cuda else numbers


class Workspace:
    """Tensors for a frame's kernels by name, shape and dtype, allocated on first request and then reused.

    They must exist before a capture: under ComfyUI's default allocator (cudaMallocAsync), memory allocated during one
    is a node of the graph, and Triton's launcher refuses such pointers. A tensor is valid until its name is requested
    again, and stays allocated as long as the workspace: use names per layer or pass, not one for each of many layers.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._tensors: dict[tuple[str, tuple[int, ...], torch.dtype], torch.Tensor] = {}

    def empty(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor of this name and shape, uninitialized; raise RuntimeError in a capture if it is new."""
        key = (name, tuple(shape), dtype)
        if key not in self._tensors:
            if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    f"{name} {list(shape)} was not allocated before the capture: run the function directly first"
                )
            self._tensors[key] = torch.empty(key[1], dtype=dtype, device=self.device)
        return self._tensors[key]


@dataclass(frozen=True)
class Buffers:
    """The buffers of a batch."""

    config: Any  # the talker's
    state: LineState
    settings: SamplerSettings
    text: torch.Tensor  # [B, N, H], added to the talker's input, one position per frame
    cache: StaticCache  # the talker's, as ``angles``
    frame_cache: StaticCache  # the predictor's for one frame, as ``frame_angles``
    angles: Angles
    frame_angles: Angles
    suppressed: torch.Tensor  # bool [V] over group 0's vocabulary, as ``is_eos``
    is_eos: torch.Tensor
    codebook: int  # size of the other groups' vocabulary
    workspace: Workspace
    entering: torch.Tensor  # int64 [1], the row of ``take_line``
    stopped: torch.Tensor  # bool [B], rows that sit out the next frame; ``kept`` has their states
    kept: LineState

    @classmethod
    def allocate(cls, config: Any, talker: LayerStack, predictor: LayerStack, batch: int, context: int) -> Buffers:
        like = talker.norm
        tokens = torch.arange(config.vocab_size, device=like.device)
        is_eos = tokens == config.codec_eos_token_id
        return cls(
            config=config,
            state=LineState.allocate(config, batch, like),
            settings=SamplerSettings.allocate(batch, like.device),
            text=like.new_zeros(batch, context, len(like)),
            cache=_allocate_cache(talker, batch, context),
            frame_cache=_allocate_cache(predictor, batch, PREDICTOR_LENGTH),
            angles=Angles.table(config, context, like.device),
            frame_angles=Angles.table(config.code_predictor_config, POSITIONS, like.device),
            suppressed=(tokens >= config.vocab_size - SPECIAL_CODES) & ~is_eos,
            is_eos=is_eos,
            codebook=config.code_predictor_config.vocab_size,
            workspace=Workspace(like.device),
            entering=torch.zeros(1, dtype=torch.int64, device=like.device),
            stopped=torch.zeros(batch, dtype=torch.bool, device=like.device),
            kept=LineState.allocate(config, batch, like),
        )

    @property
    def context(self) -> int:
        return self.cache.length

    def grown(self, context: int) -> Buffers:
        """Return the same lines with more positions: cache, text and RoPE table are new, the rest is shared."""
        layers, batch, kv_heads, _, head_dim = self.cache.keys.shape
        cache = StaticCache.allocate((layers, batch, kv_heads, context, head_dim), self.cache.keys)
        cache.copy_from(self.cache)
        # After the old end there is no more text: repeat the last position, the pad.
        text = torch.cat((self.text, self.text[:, -1:].expand(-1, context - self.context, -1)), dim=1)
        return replace(self, cache=cache, text=text, angles=Angles.table(self.config, context, text.device))

    def put(self, sampling: Sampling, rows: RowIndex = ALL_ROWS) -> None:
        self.settings.put(sampling, len(self.is_eos), self.codebook, rows)

    def clear(self, rows: Sequence[int], broken: Collection[int] = ()) -> None:
        """Clear the caches of rows for new lines if they may hold NaN: those of ``broken`` lines, in fp16 all."""
        if self.cache.keys.dtype != torch.float16:  # idle rows can overflow in this dtype only
            rows = [row for row in rows if row in broken]
        if rows:
            self.cache.clear(torch.tensor(rows, device=self.text.device))

    def stop(self, rows: Sequence[int]) -> None:
        """Set the rows whose state ``restore`` resets to the one that ``keep`` saved."""
        stopped = torch.zeros(len(self.stopped), dtype=torch.bool, pin_memory=self.stopped.is_cuda)
        stopped.numpy()[list(rows)] = True
        self.stopped.copy_(stopped, non_blocking=True)

    def keep(self) -> None:
        self.kept.copy_from(self.state)

    def restore(self) -> None:
        for name, kept in vars(self.kept).items():
            own = getattr(self.state, name)
            torch.where(self.stopped.view(-1, *[1] * (kept.dim() - 1)), kept, own, out=own)

    def take_line(self, line: Buffers, positions: int) -> None:
        """Move the only line of other buffers to row ``entering``: its state, and this many cache positions."""
        self.state.copy_rows(self.entering, line.state)
        self.cache.copy_rows(self.entering, line.cache.window(positions))
        # The next line does not write all positions, and this one may leave NaN there.
        line.cache.window(SHORT_PROMPTS[-1]).clear(line.entering)

    def snapshot_line(self, row: int, positions: int) -> LineSnapshot:
        """Return a copy of the line in a row, with this many cache positions."""
        cache = self.cache.window(positions).row(row).clone()
        return LineSnapshot(self.state.row(row).clone(), self.text[row].clone(), cache)

    def restore_line(self, row: int, line: LineSnapshot) -> None:
        length = len(line.text)
        self.state.row(row).copy_from(line.state)
        self.cache.row(row).copy_from(line.cache)
        self.text[row, :length] = line.text
        self.text[row, length:] = line.text[-1]  # the pad, as in ``grown``

    def put_texts(self, rows: Sequence[int], prompts: Sequence[Prompt]) -> None:
        """Write the trailing texts of new lines to their rows; raise ValueError if one exceeds the context."""
        longest = max(len(prompt.trailing) for prompt in prompts)
        if longest >= self.context:
            raise ValueError(f"a line has {longest} trailing text tokens and only {self.context} positions")
        if len(rows) == 1:
            self.text[rows[0], longest:] = prompts[0].pad
            if longest:
                self.text[rows[0], :longest] = prompts[0].text_rows
            return
        index = _pinned(torch.tensor(rows), self.text).to(self.text.device, non_blocking=True)
        pads = torch.stack([prompt.pad.view(-1) for prompt in prompts]).to(self.text.dtype)
        self.text.index_copy_(0, index, pads[:, None].expand(-1, self.context, -1))
        put_sequences(self.text, rows, [prompt.text_rows for prompt in prompts])

    def add_text(self, row: int, start: int, part: LatePart) -> None:
        """Write late text after the first ``start`` rows of a line's text."""
        self.text[row, start : start + len(part.rows)] = part.rows.to(self.text.dtype)
        self.state.minimums[row] = part.min_frames
        self.state.spans[row, 1] = part.text_tokens


@dataclass(frozen=True)
class LineSnapshot:
    """A copy of one line's state, text and cache, without its sampling."""

    state: LineState
    text: torch.Tensor  # [N, H]
    cache: StaticCache


def _allocate_cache(decoder: LayerStack, batch: int, length: int) -> StaticCache:
    shape = (len(decoder.layers), batch, decoder.kv_heads, length, decoder.head_dim)
    return StaticCache.allocate(shape, decoder.norm)
