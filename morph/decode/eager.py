"""The eager engine: prompts to codes on any device, bit-equal to upstream at 15 groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..model.finite import NotFinite
from ..model.layers import token_on, without_cudnn
from ..model.model import Model
from ..model.network import Rotation, rope_table, rotate
from ..options import PREDICTED_GROUPS, GenerateOptions, Sampling
from ..voice.prompt import Prompt, embed_frames
from .predictor import KeyValueCache, Predictor
from .rows import ALIGNMENT, FLAG, REPORT_WIDTH, SPECIAL_CODES, Frame, Group, LatePart, LineRequest, RowPlan
from .sampling import check_finite, line_stream, penalize_repetition, sample_tokens

TABLE_STEP = 256  # positions by which the RoPE table grows


class EagerTalker:
    """Runs the talker over a line: one prefill, then one step per frame; nothing is stored on the model."""

    def __init__(self, model: Model, prompt: Prompt):
        self.model, self._prompt, self._text = model, prompt, prompt.text_rows
        self.step_number = 0
        self._tables = model.code_tables()
        self._rope: Rotation | None = None
        self._cache = KeyValueCache()
        # For the alignment head: the span of the line's text, and the last inputs of the head's layer.
        self._spans = torch.tensor([prompt.text_span], device=model.device)
        self._probed: torch.Tensor | None = None

    def prefill(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the prompt; return the last hidden state ``[1, 1, H]`` and group 0's logits ``[1, V]``."""
        return self._run(self._prompt.embeds[None], 0)

    def step(self, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take a finished frame ``[1, 16]``; return the next hidden state ``[1, 1, H]`` and logits ``[1, V]``."""
        in_text = self.step_number < len(self._text)
        text = self._text[self.step_number, None] if in_text else self._prompt.pad
        states = (embed_frames(self.model, codes, self._tables) + text)[:, None]
        self.step_number += 1
        return self._run(states, self._prompt.length + self.step_number - 1)

    def _run(self, states: torch.Tensor, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        rotation, head = self._angles(start, start + states.shape[1]), self.model.alignment
        for index, layer in enumerate(self.model.talker.model.layers):
            if head is not None and index == head.layer:
                self._probed = states[:, -1]
            states = layer(states, rotation, self._cache)
        states = self.model.talker.model.norm(states)
        # Over all positions, as upstream does: a GEMM of another shape may round differently.
        return states[:, -1:], self.model.talker.codec_head(states)[:, -1]

    def add_text(self, rows: torch.Tensor, tokens: int) -> None:
        """Append late text ``[N, H]``; ``tokens`` counts all of the line's text so far."""
        self._text = torch.cat((self._text, rows))
        self._spans[0, 1] = tokens

    def alignment(self) -> torch.Tensor | None:
        """Return the line's text token now, int64 ``[1, 3]`` (see ``words.alignment``); None without a head."""
        if (head := self.model.alignment) is None or self._probed is None:
            return None
        layer: Any = self.model.talker.model.layers[head.layer]
        keys = self._cache.layers[head.layer][0]
        position = self._prompt.length + self.step_number
        cos, sin = self._angles(position - 1, position)
        states = layer.self_attn.q_proj(layer.input_layernorm(self._probed)).unflatten(-1, (-1, cos.shape[1]))
        query = rotate(layer.self_attn.q_norm(states[:, head.head]), cos, sin)
        own = keys[:, head.head // (states.shape[1] // keys.shape[1])]
        return token_on(query, own, self._spans, own.new_ones(own.shape[:2], dtype=torch.bool))

    def _angles(self, start: int, end: int) -> Rotation:
        if self._rope is None or len(self._rope[0]) < end:
            model = self.model
            self._rope = rope_table(model.talker.config, end + TABLE_STEP, model.device, model.dtype)
        cos, sin = self._rope
        return cos[start:end], sin[start:end]


@dataclass(frozen=True)
class Experiment:
    """Parts of the eager engine that the laboratory and the parity tests replace.

    ``observe`` is called after every frame with the talker's state ``[1, 1, H]`` and the codes ``[1, 16]``. ``stream``
    is one random generator for all lines, as upstream has; None: one per line, from its seed.
    """

    observe: Callable[[torch.Tensor, torch.Tensor], None] | None = None
    stream: torch.Generator | None = None


class FirstGroup:
    """Samples group 0 of a line: repetition penalty, no early EOS, no special codes, then the sampler.

    ``minimum`` is the line's ``Prompt.min_frames``; it may change before it is reached.
    """

    def __init__(self, model: Model, minimum: int, sampling: Sampling, stream: torch.Generator):
        config = model.config.talker_config
        self.eos = int(config.codec_eos_token_id)
        self.minimum, self._sampling, self._stream = minimum, sampling, stream
        self._frames = 0
        self._seen = torch.zeros(1, config.vocab_size, dtype=torch.bool, device=model.device)
        self._suppressed = torch.zeros(config.vocab_size, dtype=torch.bool, device=model.device)
        self._suppressed[-SPECIAL_CODES:] = True
        self._suppressed[self.eos] = False

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """Return a token ``[1]`` for logits ``[1, V]``; NotFinite if one of them is not."""
        check_finite(logits)
        scores = penalize_repetition(logits.float(), self._seen, self._sampling.repetition_penalty)
        if self._frames < self.minimum:
            scores = scores.clone()
            scores[:, self.eos] = -torch.inf
        scores = scores.masked_fill(self._suppressed, -torch.inf)
        token = sample_tokens(scores, self._sampling.talker, self._stream)
        self._seen.scatter_(1, token[:, None], True)
        self._frames += 1
        return token


@contextmanager
def open_rows(
    model: Model, options: GenerateOptions, plan: RowPlan, experiment: Experiment | None = None
) -> Iterator[EagerRows]:
    with torch.inference_mode():
        yield EagerRows(model, options, plan, experiment or Experiment())


def choose_kernels(seq_groups: int) -> AbstractContextManager[None]:
    """Choose the attention kernels. At 15 groups torch picks, as in upstream, for bit-equal results.

    Below 15, which is approximate anyway, cuDNN is excluded: it makes a new plan for every cache length that the
    process has not seen.
    """
    return nullcontext() if seq_groups == PREDICTED_GROUPS else without_cudnn()


class EagerRows:
    """The rows of one decoding, each decoded by itself.

    A list is decoded line by line, so that the first line ends soon. Streamed lines take turns, a frame each, and a
    line without text holds up no other.
    """

    began: Sequence[tuple[int, torch.Tensor | None]] = ()  # a frame is computed when it is read

    def __init__(self, model: Model, options: GenerateOptions, plan: RowPlan, experiment: Experiment):
        self.count, self.late = plan.rows, plan.late
        self._model, self._options, self._experiment = model, options, experiment
        self._predictors: dict[str, Predictor] = {}  # by tail
        self._lines: dict[int, _Line] = {}  # in the order of admission
        self._stopped: set[int] = set()
        self._due: list[int] = []  # rows whose frames are not computed yet in this step

    def room(self, waiting: int) -> int:
        rows = self.count if self.late else min(self.count, 1 + len(self._stopped))
        return max(0, min(waiting, rows - len(self._lines)))

    def admit(self, lines: Sequence[LineRequest]) -> list[int]:
        rows = self._free_rows[: len(lines)]
        for row, line in zip(rows, lines, strict=True):
            options = self._options if line.group is None else replace(self._options, **line.group._asdict())
            if (tail := options.tail) not in self._predictors:
                predictor = Predictor(self._model.talker.code_predictor, self._model.tails(tail))
                self._predictors[tail] = predictor
            self._lines[row] = _Line(self._model, line, options, self._predictors[tail], self._experiment)
        return rows

    def add_text(self, row: int, start: int, part: LatePart) -> None:
        self._lines[row].talker.add_text(part.rows, part.text_tokens)
        self._lines[row].first.minimum = part.min_frames

    def step(self, stopped: Sequence[int], group: Group | None = None) -> bool:
        self._stopped = set(stopped)
        self._due = [
            row for row, line in self._lines.items() if line.request.group == group and row not in self._stopped
        ]
        return False

    def read(self) -> Frame | None:
        if not self._due:
            return None
        rows, self._due = self._due, []
        return Frame(np.array(rows), np.stack([self._lines[row].compute_frame() for row in rows]))

    def release(self, row: int) -> None:
        self.suspend(row)

    def settle(self) -> None:
        pass  # ``read`` makes the frames that are due

    def suspend(self, row: int) -> _Line:
        self._stopped.discard(row)
        return self._lines.pop(row)

    def resume(self, state: _Line) -> int:
        row = self._free_rows[0]
        self._lines[row] = state
        return row

    @property
    def _free_rows(self) -> list[int]:
        return [row for row in range(self.count) if row not in self._lines]


class _Line:
    def __init__(
        self,
        model: Model,
        request: LineRequest,
        options: GenerateOptions,
        predictor: Predictor,
        experiment: Experiment,
    ):
        self._model, self._seq_groups, self._observe = model, options.seq_groups, experiment.observe
        self.request, self._predictor = request, predictor
        sampling = request.sampling or options.sampling or model.sampling
        self._sampling = sampling.subtalker
        self._stream = experiment.stream or line_stream(request.seed, model.device)
        self.talker = EagerTalker(model, request.prompt)
        self.first = FirstGroup(model, request.prompt.min_frames, sampling, self._stream)
        # Group 0 of the next frame, ``[1]``; None: its logits were not finite.
        self._token: torch.Tensor | None = None
        with choose_kernels(self._seq_groups):
            self._begin_frame(*self.talker.prefill())

    def _begin_frame(self, hidden: torch.Tensor, logits: torch.Tensor) -> None:
        """Sample group 0 of the next frame now, as upstream does, even if the line ends before that frame."""
        self._hidden, self._alignment = hidden, self.talker.alignment()
        try:
            self._token = self.first.sample(logits)
        except NotFinite:
            self._token = None

    def compute_frame(self) -> np.ndarray:
        """Compute the next frame; return its report, int64 ``[REPORT_WIDTH]``."""
        report = np.zeros(REPORT_WIDTH, dtype=np.int64)
        if self._alignment is not None:
            report[ALIGNMENT:] = self._alignment[0].cpu()
        try:
            if self._token is None:
                report[FLAG] = 1
            elif (code := int(self._token)) == self.first.eos:
                report[0] = code
            else:
                with choose_kernels(self._seq_groups):
                    report[:FLAG] = self._compute_codes(self._token)[0].cpu()
        except NotFinite:
            report[FLAG] = 1
        return report

    def _compute_codes(self, token: torch.Tensor) -> torch.Tensor:
        """Return the codes ``[1, 16]`` of a frame from its group 0, and begin the next one."""
        embedding = self._model.talker.model.codec_embedding(token[:, None])
        rest = self._predictor.decode_frame(self._hidden, embedding, self._seq_groups, self._sampling, self._stream)
        codes = torch.cat((token[:, None], rest), dim=1)
        if self._observe is not None:
            self._observe(self._hidden, codes)
        self._begin_frame(*self.talker.step(codes))
        return codes
