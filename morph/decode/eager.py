"""The eager engine: prompts to codes over upstream's own layers, on any device, bit-equal to upstream at 15 groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..model.model import Model
from ..options import PREDICTED_GROUPS, GenerateOptions, Sampling
from .decoded import SPECIAL_CODES, Decoded
from .guard import Guard
from .lossless import LosslessPredictor
from .predictor import Predictor
from .request import LineRequest
from .sampling import Randomness, check_finite, line_streams, penalize_repetition, sample_tokens
from .talker import Talker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Experiment:
    """What the laboratory and the parity tests replace in the eager engine.

    Args:
        predictor: decodes the frames; None takes the one that the options name.
        observe: called after every frame with the talker's state ``[B, 1, H]`` and the codes ``[B, 16]``.
        stream: one random generator for the whole batch, as upstream does; None: one per line, from its seed.
    """

    predictor: Predictor | None = None
    observe: Callable[[torch.Tensor, torch.Tensor], None] | None = None
    stream: torch.Generator | None = None


class FirstGroup:
    """Samples group 0 of every line: repetition penalty, no early EOS, no special codes, then the sampler.

    Args:
        model: the checkpoint.
        minimums: each line's ``Prompt.min_frames``: it cannot end before it has this many.
        sampling: for all lines.
        randomness: one stream for the batch, or one per line.
    """

    def __init__(self, model: Model, minimums: Sequence[int], sampling: Sampling, randomness: Randomness):
        config = model.config.talker_config
        self.eos = int(config.codec_eos_token_id)
        self.sampling = sampling
        self.randomness = randomness
        self.frames = 0
        self._longest_minimum = max(minimums)  # on the host: comparing with it needs no device sync
        self.minimums = torch.tensor(minimums, device=model.device)
        self.seen = torch.zeros(len(minimums), config.vocab_size, dtype=torch.bool, device=model.device)
        self.suppressed = torch.zeros(config.vocab_size, dtype=torch.bool, device=model.device)
        self.suppressed[-SPECIAL_CODES:] = True
        self.suppressed[self.eos] = False

    def sample(self, logits: torch.Tensor, ended: torch.Tensor) -> torch.Tensor:
        """Return tokens ``[B]`` for logits ``[B, V]``; lines that have ended (bool ``[B]``) get EOS."""
        check_finite(logits)
        scores = penalize_repetition(logits.float(), self.seen, self.sampling.repetition_penalty)
        if self.frames < self._longest_minimum:
            scores = scores.clone()
            scores[:, self.eos].masked_fill_(self.frames < self.minimums, -torch.inf)
        scores = scores.masked_fill(self.suppressed, -torch.inf)
        tokens = sample_tokens(scores, self.sampling.talker, self.randomness).masked_fill(ended, self.eos)
        self.seen.scatter_(1, tokens[:, None], True)
        self.frames += 1
        return tokens


@torch.inference_mode()
def decode(
    model: Model,
    lines: Sequence[LineRequest],
    options: GenerateOptions,
    on_frame: Callable[[int], None] | None = None,
    experiment: Experiment | None = None,
) -> list[Decoded]:
    """Decode lines to their ends, ``options.batch_size`` at a time, in the order given.

    Args:
        model: the checkpoint, on the device where it runs.
        lines: any number.
        options: SEQ_GROUPS, sampling, batch size, decoding and tail; the rest is for the renderer.
        on_frame: called after every frame with the number of lines that made one. If it raises, decoding ends and
            the error passes through; nothing of the decoding stays on the model.
        experiment: replaced parts, for measurements and tests.

    Raises:
        ValueError: if the model's numbers are not finite.
    """
    experiment = experiment or Experiment()
    predictor = experiment.predictor or choose_predictor(model, options)
    decoded: list[Decoded] = []
    for start in range(0, len(lines), options.batch_size):
        batch = lines[start : start + options.batch_size]
        with choose_kernels(options.seq_groups):
            decoded += _decode_batch(
                model, batch, options, on_frame, replace(experiment, predictor=predictor)
            )
    if experiment.predictor is None and isinstance(predictor, LosslessPredictor):
        log.info("lossless: %s, %d without drafts", predictor.tally.describe(), PREDICTED_GROUPS)
    return decoded


def choose_predictor(model: Model, options: GenerateOptions) -> Predictor:
    """Return the predictor for these options. Do not keep it: it is bound to where the weights are now."""
    kind = LosslessPredictor if options.decoding == "lossless" else Predictor
    return kind(model.talker.code_predictor, tails=model.tails(options.tail))


def choose_kernels(seq_groups: int) -> AbstractContextManager[None]:
    """Choose the attention kernels. At 15 groups torch picks, as in upstream, so that results are bit-equal.

    Below 15, which is approximate anyway, cuDNN is excluded. It makes a new plan for every cache length that the
    process has not seen, which took 24 ms per frame on an H200 (torch 2.11) until a line of that length was spoken.
    """
    if seq_groups == PREDICTED_GROUPS:
        return nullcontext()
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def _decode_batch(
    model: Model,
    lines: Sequence[LineRequest],
    options: GenerateOptions,
    on_frame: Callable[[int], None] | None,
    experiment: Experiment,
) -> list[Decoded]:
    """Decode lines together, until the last of them has ended."""
    predictor, sampling = experiment.predictor, options.sampling or model.sampling
    assert predictor is not None
    randomness: Randomness = experiment.stream or line_streams([line.seed for line in lines], model.device)
    talker = Talker(model, [line.prompt for line in lines])
    first = FirstGroup(model, [line.prompt.min_frames for line in lines], sampling, randomness)
    ends: list[str | None] = [None] * len(lines)
    ended = torch.zeros(len(lines), dtype=torch.bool, device=model.device)
    frames: list[torch.Tensor] = []
    hidden, logits = talker.prefill()
    tokens = first.sample(logits, ended)
    while True:
        on_host = tokens.tolist()
        _note_eos(on_host, first.eos, ends, lines)
        running = [row for row, end in enumerate(ends) if end is None]
        if not running:
            break
        embedding = model.talker.get_input_embeddings()(tokens[:, None])
        rest = predictor.decode_frame(hidden, embedding, options.seq_groups, sampling.subtalker, randomness)
        codes = torch.cat((tokens[:, None], rest), dim=1)
        frames.append(codes)
        if experiment.observe is not None:
            experiment.observe(hidden, codes)
        hidden, logits = talker.step(codes)
        _pass_codes(codes, running, lines)
        for row in running:
            ends[row] = lines[row].guard.add(on_host[row])
            if (end := ends[row]) is not None:
                lines[row].end(end)
        ended = torch.tensor([end is not None for end in ends], device=model.device)
        tokens = first.sample(logits, ended)
        if on_frame is not None:
            on_frame(len(running))
    return _collect(frames, [line.guard for line in lines], ends, model)


def _note_eos(tokens: list[int], eos: int, ends: list[str | None], lines: Sequence[LineRequest]) -> None:
    for row, token in enumerate(tokens):
        if token == eos and ends[row] is None:
            ends[row] = "eos"
            lines[row].end("eos")


def _pass_codes(codes: torch.Tensor, running: Sequence[int], lines: Sequence[LineRequest]) -> None:
    """Pass a frame's codes ``[B, 16]`` to the running lines that listen; only then are they copied to the host."""
    listeners = [(row, listen) for row in running if (listen := lines[row].on_codes) is not None]
    if listeners:
        on_host = codes.cpu()
        for row, listen in listeners:
            listen(on_host[row].clone())


def _collect(
    frames: list[torch.Tensor], guards: Sequence[Guard], ends: list[str | None], model: Model
) -> list[Decoded]:
    """Return each line's codes, cut from the batch's frames; its guard has counted its frames."""
    groups = int(model.config.talker_config.num_code_groups)
    codes = (
        torch.stack(frames, dim=1).cpu() if frames else torch.zeros(len(guards), 0, groups, dtype=torch.long)
    )
    return [
        Decoded(codes[row, : guard.frames].clone(), str(end))
        for row, (guard, end) in enumerate(zip(guards, ends, strict=True))
    ]
