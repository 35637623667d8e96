"""The eager engine: prompts to codes over upstream's own layers, on any device, bit-equal to upstream at 15 groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch

from ..model.finite import not_finite
from ..model.model import Model
from ..model.sdpa import without_cudnn
from ..options import PREDICTED_GROUPS, GenerateOptions, Sampling
from .decoded import BROKEN, SPECIAL_CODES, Decoded
from .lossless import LosslessPredictor
from .predictor import Predictor
from .request import LineRequest
from .sampling import (
    BrokenLines,
    Randomness,
    check_finite,
    line_streams,
    penalize_repetition,
    sample_tokens,
    shared,
)
from .source import Lines, LineSource, as_source
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
        samplings: each line's.
        randomness: one stream for the batch, or one per line.

    ``broken`` has the lines whose last logits were not finite: their tokens mean nothing.
    """

    def __init__(
        self, model: Model, minimums: Sequence[int], samplings: Sequence[Sampling], randomness: Randomness
    ):
        config = model.config.talker_config
        self.eos = int(config.codec_eos_token_id)
        self.sampling = shared([one.talker for one in samplings])
        self.penalty = shared([one.repetition_penalty for one in samplings])
        self.randomness = randomness
        self.frames = 0
        self.broken = BrokenLines()
        self._longest_minimum = max(minimums)  # on the host: comparing with it needs no device sync
        self.minimums = torch.tensor(minimums, device=model.device)
        self.seen = torch.zeros(len(minimums), config.vocab_size, dtype=torch.bool, device=model.device)
        self.suppressed = torch.zeros(config.vocab_size, dtype=torch.bool, device=model.device)
        self.suppressed[-SPECIAL_CODES:] = True
        self.suppressed[self.eos] = False

    def hold(self, minimum: int) -> None:
        """Change the minimum of all lines, before it is reached."""
        self.minimums.fill_(minimum)
        self._longest_minimum = minimum

    def sample(self, logits: torch.Tensor, ended: torch.Tensor) -> torch.Tensor:
        """Return tokens ``[B]`` for logits ``[B, V]``; lines that have ended (bool ``[B]``) get EOS."""
        return self.broken.apply(lambda finite: self._sample(finite, ended), logits)

    def _sample(self, logits: torch.Tensor, ended: torch.Tensor) -> torch.Tensor:
        check_finite(logits)
        scores = penalize_repetition(logits.float(), self.seen, self.penalty)
        if self.frames < self._longest_minimum:
            scores = scores.clone()
            scores[:, self.eos].masked_fill_(self.frames < self.minimums, -torch.inf)
        scores = scores.masked_fill(self.suppressed, -torch.inf)
        tokens = sample_tokens(scores, self.sampling, self.randomness).masked_fill(ended, self.eos)
        self.seen.scatter_(1, tokens[:, None], True)
        self.frames += 1
        return tokens


@torch.inference_mode()
def decode(
    model: Model,
    lines: Lines,
    options: GenerateOptions,
    on_frame: Callable[[int], None] | None = None,
    experiment: Experiment | None = None,
) -> list[Decoded]:
    """Decode lines to their ends, ``options.batch_size`` at a time, in the order given.

    Given lines are decoded in batches, one after another. Where lines come late, those that are there begin as soon as
    there is room for them, beside the batches that run; a line with late text is a batch of its own, so that no other
    waits for it.

    Args:
        model: the checkpoint, on the device where it runs.
        lines: any number, or where they come from.
        options: SEQ_GROUPS, sampling, batch size, decoding and tail; the rest is for the renderer.
        on_frame: called after every frame with the number of lines that made one. If it raises, decoding ends and
            the error passes through; nothing of the decoding stays on the model.
        experiment: replaced parts, for measurements and tests.

    Raises:
        NotFinite: if the numbers of a line are not finite, and it has no ``LineRequest.on_broken``.
    """
    experiment = experiment or Experiment()
    predictor = experiment.predictor or choose_predictor(model, options)
    batches = _Batches(model, as_source(lines), options, replace(experiment, predictor=predictor))
    with choose_kernels(options.seq_groups):
        batches.run(on_frame or (lambda _: None))
    if experiment.predictor is None and isinstance(predictor, LosslessPredictor):
        log.info("lossless: %s, %d without drafts", predictor.tally.describe(), PREDICTED_GROUPS)
    return [one for batch in batches.begun for one in batch.collect()]


def choose_predictor(model: Model, options: GenerateOptions) -> Predictor:
    """Return the predictor for these options. Do not keep it: it is bound to where the weights are now."""
    kind = LosslessPredictor if options.decoding == "lossless" else Predictor
    return kind(model.talker.code_predictor, tails=model.tails(options.tail))


def choose_kernels(seq_groups: int) -> AbstractContextManager[None]:
    """Choose the attention kernels. At 15 groups torch picks, as in upstream, so that results are bit-equal.

    Below 15, which is approximate anyway, cuDNN is excluded: it makes a new plan for every cache length that the
    process has not seen.
    """
    if seq_groups == PREDICTED_GROUPS:
        return nullcontext()
    return without_cudnn()


class _Batches:
    """The batches of one decoding: one after another for given lines, side by side for lines that come late."""

    def __init__(self, model: Model, source: LineSource, options: GenerateOptions, experiment: Experiment):
        self._model, self._source, self._options, self._experiment = model, source, options, experiment
        self.begun: list[_Batch] = []
        self._running: list[_Batch] = []

    def run(self, on_frame: Callable[[int], None]) -> None:
        """Decode all lines to their ends."""
        while self._running or not self._source.done:
            began, made = self._begin(), False
            for batch in self._running:
                if batch.ready():
                    made = True
                    if frames := batch.step():
                        on_frame(frames)
            self._running = [batch for batch in self._running if not batch.ended]
            if not began and not made and (self._running or not self._source.done):
                self._source.wait()

    def _begin(self) -> bool:
        """Begin the lines that are there and for which there is room; return whether there are any."""
        room = self._options.batch_size - sum(batch.lines_running for batch in self._running)
        if self._running and not self._source.late:
            room = 0
        lines = [self._source.take() for _ in range(min(room, len(self._source.ready)))]
        alone = [[line] for line in lines if line.text is not None]
        together = [line for line in lines if line.text is None]
        new = [
            _Batch(self._model, batch, self._options, self._experiment)
            for batch in (together, *alone)
            if batch
        ]
        self.begun += new if self._source.collected else []
        self._running += new
        return bool(new)


class _Batch:
    """Lines that are decoded together, until the last of them has ended."""

    def __init__(
        self,
        model: Model,
        lines: Sequence[LineRequest],
        options: GenerateOptions,
        experiment: Experiment,
    ):
        assert experiment.predictor is not None
        self._model, self._lines, self._options, self._experiment = model, lines, options, experiment
        self._predictor = experiment.predictor
        samplings = [line.sampling or options.sampling or model.sampling for line in lines]
        self._sampling = shared([one.subtalker for one in samplings])
        streams = experiment.stream or line_streams([line.seed for line in lines], model.device)
        self._randomness: Randomness = streams
        self._talker = Talker(model, [line.prompt for line in lines])
        minimums = [line.prompt.min_frames for line in lines]
        self._first = FirstGroup(model, minimums, samplings, self._randomness)
        self._ends: list[str | None] = [None] * len(lines)
        self._frames: list[torch.Tensor] = []
        self._hidden, logits = self._talker.prefill()
        self._tokens = self._sample(logits)

    @property
    def ended(self) -> bool:
        """Whether all lines have ended."""
        return self.lines_running == 0

    @property
    def lines_running(self) -> int:
        """How many lines have not ended."""
        return self._ends.count(None)

    def ready(self) -> bool:
        """Return whether there is a next frame: not while text is late, nor when all lines have been cancelled."""
        for row, line in enumerate(self._lines):
            if self._ends[row] is None and line.is_cancelled:
                self._end(row, "cancelled")
        if (text := self._lines[0].text) is None or self.ended:
            return not self.ended
        ready = text.ready(len(self._frames))
        if (part := text.take()) is not None:
            self._talker.add_text(part.rows)
            self._first.hold(part.min_frames)
        return ready

    def step(self) -> int:
        """Make a frame of the lines that have not ended; return how many they are."""
        on_host = self._tokens.tolist()
        for row, token in enumerate(on_host):
            if token == self._first.eos and self._ends[row] is None:
                self._end(row, "eos")
        if self.ended:
            return 0
        codes = self._decode_frame()
        running = [row for row, end in enumerate(self._ends) if end is None]
        self._frames.append(codes)
        if self._experiment.observe is not None:
            self._experiment.observe(self._hidden, codes)
        self._hidden, logits = self._talker.step(codes)
        _pass_codes(codes, running, self._lines)
        for row in running:
            if (end := self._lines[row].guard.add(on_host[row])) is not None:
                self._end(row, end)
        self._tokens = self._sample(logits)
        return len(running)

    def _sample(self, logits: torch.Tensor) -> torch.Tensor:
        """Return group 0 of the next frame, ``[B]``."""
        tokens = self._first.sample(logits, self._has_ended())
        self._break_off(self._first.broken.take())
        return tokens

    def _decode_frame(self) -> torch.Tensor:
        """Return the codes ``[B, 16]`` of the current frame."""
        embedding = self._model.talker.get_input_embeddings()(self._tokens[:, None])
        rest = self._predictor.decode_frame(
            self._hidden, embedding, self._options.seq_groups, self._sampling, self._randomness
        )
        self._break_off(self._predictor.broken.take())
        return torch.cat((self._tokens[:, None], rest), dim=1)

    def _break_off(self, rows: Sequence[int]) -> None:
        """End the lines whose numbers are not finite."""
        for row in rows:
            if self._ends[row] is None:
                self._ends[row] = BROKEN
                self._lines[row].break_off(not_finite(self._model.dtype))

    def _has_ended(self) -> torch.Tensor:
        return torch.tensor([end is not None for end in self._ends], device=self._model.device)

    def _end(self, row: int, ended: str) -> None:
        self._ends[row] = ended
        self._lines[row].end(ended)

    def collect(self) -> list[Decoded]:
        """Return each line's codes, cut from the batch's frames; its guard has counted its frames."""
        groups = int(self._model.config.talker_config.num_code_groups)
        empty = torch.zeros(len(self._lines), 0, groups, dtype=torch.long)
        codes = torch.stack(self._frames, dim=1).cpu() if self._frames else empty
        return [
            Decoded(codes[row, : line.guard.frames].clone(), str(end))
            for row, (line, end) in enumerate(zip(self._lines, self._ends, strict=True))
        ]


def _pass_codes(codes: torch.Tensor, running: Sequence[int], lines: Sequence[LineRequest]) -> None:
    """Pass a frame's codes ``[B, 16]`` to the running lines that listen; only then are they copied to the host."""
    listeners = [(row, listen) for row in running if (listen := lines[row].on_codes) is not None]
    if listeners:
        on_host = codes.cpu().numpy()
        for row, listen in listeners:
            listen(on_host[row])
