"""The eager engine: prompts to codes over upstream's own layers, on any device, bit-equal to upstream at 15 groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..model.model import Model
from ..model.sdpa import without_cudnn
from ..options import PREDICTED_GROUPS, GenerateOptions, Sampling
from .decoded import ALIGNMENT, FLAG, REPORT_WIDTH, SPECIAL_CODES, Decoded
from .loop import Loop
from .predictor import Predictor
from .request import LatePart, LineRequest
from .rows import Frame
from .sampling import (
    BrokenLines,
    Randomness,
    check_finite,
    line_streams,
    penalize_repetition,
    sample_tokens,
    shared,
)
from .source import Lines, LineSource, as_source, rows_of
from .talker import Talker


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

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """Return tokens ``[B]`` for logits ``[B, V]``."""
        return self.broken.apply(self._sample, logits)

    def _sample(self, logits: torch.Tensor) -> torch.Tensor:
        check_finite(logits)
        scores = penalize_repetition(logits.float(), self.seen, self.penalty)
        if self.frames < self._longest_minimum:
            scores = scores.clone()
            scores[:, self.eos].masked_fill_(self.frames < self.minimums, -torch.inf)
        scores = scores.masked_fill(self.suppressed, -torch.inf)
        tokens = sample_tokens(scores, self.sampling, self.randomness)
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
        options: SEQ_GROUPS, sampling, batch size and tail; the rest is for who speaks.
        on_frame: called after every frame with the number of lines that made one. If it raises, decoding ends and
            the error passes through; nothing of the decoding stays on the model.
        experiment: replaced parts, for measurements and tests.

    Raises:
        NotFinite: if the numbers of a line are not finite, and it has no ``LineRequest.on_broken``.
    """
    experiment = experiment or Experiment()
    predictor = experiment.predictor or choose_predictor(model, options)
    source = as_source(lines)
    batches = EagerRows(model, options, source, replace(experiment, predictor=predictor))
    with choose_kernels(options.seq_groups):
        return Loop(model, source, batches).run(on_frame)


def choose_predictor(model: Model, options: GenerateOptions) -> Predictor:
    """Return the predictor for these options. Do not keep it: it is bound to where the weights are now."""
    return Predictor(model.talker.code_predictor, tails=model.tails(options.tail))


def choose_kernels(seq_groups: int) -> AbstractContextManager[None]:
    """Choose the attention kernels. At 15 groups torch picks, as in upstream, so that results are bit-equal.

    Below 15, which is approximate anyway, cuDNN is excluded: it makes a new plan for every cache length that the
    process has not seen.
    """
    return nullcontext() if seq_groups == PREDICTED_GROUPS else without_cudnn()


class EagerRows:
    """The rows of one decoding: those of batches, which upstream's layers can only begin as a whole.

    Given lines are in one batch after another, and lines that come late in batches side by side.

    Args:
        model: the checkpoint.
        options: of the decoding.
        source: of the lines; it says whether they come while others are decoded.
        experiment: replaced parts; ``predictor`` too.
    """

    def __init__(self, model: Model, options: GenerateOptions, source: LineSource, experiment: Experiment):
        self._model, self._options, self._source, self._experiment = model, options, source, experiment
        self._rows = rows_of(options.batch_size, source)
        self._batches: list[_Batch] = []
        self._due: deque[_Batch] = deque()  # those whose frames have not been made in this step

    def room(self, waiting: int) -> int:
        if self._batches and not self._source.late:
            return 0
        return min(waiting, self._rows - sum(len(batch.rows) for batch in self._batches))

    def admit(self, lines: Mapping[int, LineRequest]) -> None:
        # A line with late text is a batch of its own, so that no other waits for it.
        together = {number: line for number, line in lines.items() if line.text is None}
        alone = [{number: line} for number, line in lines.items() if line.text is not None]
        new = [together, *alone] if together else alone
        self._batches += [_Batch(self._model, one, self._options, self._experiment) for one in new]

    def add_text(self, line: int, start: int, part: LatePart) -> None:
        batch = self._batch(line)
        batch.talker.add_text(part.rows, part.text_tokens)
        batch.first.hold(part.min_frames)

    def step(self, stopped: Sequence[int]) -> bool:
        held = set(stopped)
        self._due = deque(batch for batch in self._batches if not batch.rows.keys() <= held)
        return False

    def read(self) -> Frame | None:
        return self._due.popleft().make_frame() if self._due else None

    def release(self, line: int) -> None:
        batch = self._batch(line)
        del batch.rows[line]
        if not batch.rows:
            self._batches.remove(batch)

    def _batch(self, line: int) -> _Batch:
        return next(batch for batch in self._batches if line in batch.rows)


class _Batch:
    """Lines that are decoded together, until the last of them has ended.

    ``rows`` are those of the lines that have not ended, by the lines' numbers.
    """

    def __init__(
        self, model: Model, lines: Mapping[int, LineRequest], options: GenerateOptions, experiment: Experiment
    ):
        assert experiment.predictor is not None
        self._model, self._options, self._observe = model, options, experiment.observe
        self._predictor, requests = experiment.predictor, list(lines.values())
        self.rows = {number: row for row, number in enumerate(lines)}
        samplings = [line.sampling or options.sampling or model.sampling for line in requests]
        self._sampling = shared([one.subtalker for one in samplings])
        streams = experiment.stream or line_streams([line.seed for line in requests], model.device)
        self._randomness: Randomness = streams
        self.talker = Talker(model, [line.prompt for line in requests])
        minimums = [line.prompt.min_frames for line in requests]
        self.first = FirstGroup(model, minimums, samplings, self._randomness)
        self._hidden, logits = self.talker.prefill()
        self._tokens = self.first.sample(logits)  # group 0 of the next frame, ``[B]``
        self._alignment = self.talker.alignment()  # and what the alignment head says of it

    def make_frame(self) -> Frame:
        """Make the next frame of the lines that have not ended."""
        going = set(self.rows.values())
        ended = [row not in going for row in range(len(self._tokens))]
        tokens = self._tokens.masked_fill(torch.tensor(ended, device=self._tokens.device), self.first.eos)
        on_host, broken = tokens.tolist(), self.first.broken.take()
        report = np.zeros((len(on_host), REPORT_WIDTH), dtype=np.int64)
        report[:, 0] = on_host
        if any(on_host[row] != self.first.eos and row not in broken for row in going):
            if self._alignment is not None:
                report[:, ALIGNMENT:] = self._alignment.cpu()
            report[:, :FLAG] = self._make_codes(tokens).cpu()
            broken += self._predictor.broken.take()
        report[broken, FLAG] = 1
        return Frame(np.array(list(self.rows)), report[list(self.rows.values())])

    def _make_codes(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the codes ``[B, 16]`` of a frame, by its group 0 ``[B]``, and sample group 0 of the next one."""
        embedding = self._model.talker.get_input_embeddings()(tokens[:, None])
        rest = self._predictor.decode_frame(
            self._hidden, embedding, self._options.seq_groups, self._sampling, self._randomness
        )
        codes = torch.cat((tokens[:, None], rest), dim=1)
        if self._observe is not None:
            self._observe(self._hidden, codes)
        self._hidden, logits = self.talker.step(codes)
        self._tokens, self._alignment = self.first.sample(logits), self.talker.alignment()
        return codes
