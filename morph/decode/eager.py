"""The eager engine: prompts to codes over upstream's own layers, on any device, bit-equal to upstream at 15 groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..model.model import Model
from ..options import PREDICTED_GROUPS, Sampling
from ..voice.prompt import Prompt
from .decoded import SPECIAL_CODES, Decoded
from .guard import Guard
from .predictor import Predictor
from .sampling import Randomness, check_finite, penalize_repetition, sample_tokens
from .talker import Talker


class FirstGroup:
    """Draws group 0 of every line: repetition penalty, no early EOS, no special codes, then the sampler.

    Args:
        model: the checkpoint.
        minimums: for each line the frames before which it may not end.
        sampling: for all lines.
        randomness: one stream for the batch, or one a line.
    """

    def __init__(self, model: Model, minimums: Sequence[int], sampling: Sampling, randomness: Randomness):
        config = model.config.talker_config
        self.eos = int(config.codec_eos_token_id)
        self.sampling = sampling
        self.randomness = randomness
        self.drawn = 0
        self._longest_minimum = max(minimums)  # on the host, so that no draw waits for the device
        self.minimums = torch.tensor(minimums, device=model.device)
        self.seen = torch.zeros(len(minimums), config.vocab_size, dtype=torch.bool, device=model.device)
        self.suppressed = torch.zeros(config.vocab_size, dtype=torch.bool, device=model.device)
        self.suppressed[-SPECIAL_CODES:] = True
        self.suppressed[self.eos] = False

    def draw(self, logits: torch.Tensor, ended: torch.Tensor) -> torch.Tensor:
        """Logits ``[B, V]`` to tokens ``[B]``; lines that have ended (bool ``[B]``) get EOS."""
        check_finite(logits)
        scores = penalize_repetition(logits.float(), self.seen, self.sampling.repetition_penalty)
        if self.drawn < self._longest_minimum:
            scores = scores.clone()
            scores[:, self.eos].masked_fill_(self.drawn < self.minimums, -torch.inf)
        scores = scores.masked_fill(self.suppressed, -torch.inf)
        tokens = sample_tokens(scores, self.sampling.talker, self.randomness).masked_fill(ended, self.eos)
        self.seen.scatter_(1, tokens[:, None], True)
        self.drawn += 1
        return tokens


@torch.inference_mode()
def decode_lines(
    model: Model,
    prompts: Sequence[Prompt],
    guards: Sequence[Guard],
    seq_groups: int,
    sampling: Sampling,
    randomness: Randomness,
    on_frame: Callable[[int], None] | None = None,
    observe: Callable[[torch.Tensor, torch.Tensor], None] | None = None,
    predictor: Predictor | None = None,
    tail: str = "auto",
) -> list[Decoded]:
    """Decode a batch of lines to their ends.

    Args:
        model: the checkpoint, on the device where it is to run.
        prompts: one a line.
        guards: one a line; each says when its line must end without an EOS.
        seq_groups: 1..15.
        sampling: for all lines.
        randomness: one stream for the batch (upstream's way), or one a line.
        on_frame: called after every frame with the number of lines that are still going. What it raises ends the
            decoding and passes through; nothing of it stays on the model.
        observe: called with every frame's talker state ``[B, 1, H]`` and codes ``[B, 16]``, for measurements.
        predictor: decodes the frames; None is the model's own. Others are what the laboratory compares.
        tail: one of ``options.TAILS``, for the model's own predictor.
    """
    with choose_kernels(seq_groups):
        talker = Talker(model, prompts)
        predictor = predictor or Predictor(model.talker.code_predictor, model.tails(tail))
        first = FirstGroup(model, [prompt.min_frames for prompt in prompts], sampling, randomness)
        ends: list[str | None] = [None] * len(prompts)
        ended = torch.zeros(len(prompts), dtype=torch.bool, device=model.device)
        frames: list[torch.Tensor] = []
        hidden, logits = talker.prefill()
        tokens = first.draw(logits, ended)
        while True:
            on_host = tokens.tolist()
            _note_eos(on_host, first.eos, ends)
            going = [row for row, end in enumerate(ends) if end is None]
            if not going:
                break
            codes = _decode_frame(model, predictor, hidden, tokens, seq_groups, sampling, randomness)
            frames.append(codes)
            if observe is not None:
                observe(hidden, codes)
            hidden, logits = talker.step(codes)
            for row in going:
                ends[row] = guards[row].add(on_host[row])
            ended = torch.tensor([end is not None for end in ends], device=model.device)
            tokens = first.draw(logits, ended)
            if on_frame is not None:
                on_frame(len(going))
        return _collect(frames, guards, ends, model)


def choose_kernels(seq_groups: int) -> AbstractContextManager[None]:
    """The attention kernels of a decoding: at 15 groups whatever torch picks, as upstream, so that bits are equal.

    Below 15, which is approximate anyway, cuDNN is left out: it plans anew for every length of the cache that it
    has not met in this process, which took 24 ms a frame on an H200 (torch 2.11) until a line of that length had
    been spoken.
    """
    if seq_groups == PREDICTED_GROUPS:
        return nullcontext()
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def _decode_frame(
    model: Model,
    predictor: Predictor,
    hidden: torch.Tensor,
    tokens: torch.Tensor,
    seq_groups: int,
    sampling: Sampling,
    randomness: Randomness,
) -> torch.Tensor:
    """One frame's 16 codes ``[B, 16]`` from the talker's hidden state and group 0."""
    embedding = model.talker.get_input_embeddings()(tokens[:, None])
    rest = predictor.decode_frame(hidden, embedding, seq_groups, sampling.subtalker, randomness)
    return torch.cat((tokens[:, None], rest), dim=1)


def _note_eos(tokens: list[int], eos: int, ends: list[str | None]) -> None:
    for row, token in enumerate(tokens):
        if token == eos and ends[row] is None:
            ends[row] = "eos"


def _collect(
    frames: list[torch.Tensor], guards: Sequence[Guard], ends: list[str | None], model: Model
) -> list[Decoded]:
    """Cut each line's codes out of the batch's frames: a guard counted the frames of its line."""
    groups = int(model.config.talker_config.num_code_groups)
    codes = (
        torch.stack(frames, dim=1).cpu() if frames else torch.zeros(len(guards), 0, groups, dtype=torch.long)
    )
    return [
        Decoded(codes[row, : guard.frames].clone(), str(end))
        for row, (guard, end) in enumerate(zip(guards, ends, strict=True))
    ]
