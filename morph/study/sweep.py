"""Speak one line at several SEQ_GROUPS: measure their speed and their distributions' distance from exact."""

import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace

import torch

from ..decode.eager import Experiment, open_rows
from ..decode.loop import decode_lines
from ..decode.predictor import Predictor
from ..decode.rows import Decoded, RowPlan
from ..decode.sampling import distribution
from ..model.model import Model
from ..model.tail import crossbar
from ..options import FRAME_RATE, PREDICTED_GROUPS, GenerateOptions, TokenSampling
from ..speech.lines import Line, Spoken, check_line
from ..speech.pieces import LinePieces, assemble, piece_limit, warn_of
from ..speech.takes import Take, judge_end
from ..synthesizer import Choice, Engine, Synthesizer
from ..text.duration import expected_frames
from ..waveform.engine import take_all

PLAIN = TokenSampling(temperature=1.0, top_k=0, top_p=1.0)
PLACES = ("d", "d", ".2f", ".1f", ".3f", ".3f")  # formats of the table's columns
CHUNK = 64  # frames whose distributions are compared together: 64 x 15 x 2048 float32 is 8 MB


@dataclass(frozen=True)
class SweepRow:
    """The speed and the distance of one SEQ_GROUPS; the distance does not measure how the speech sounds.

    ``ms_per_frame`` and ``rtf`` measure decoding without the codec. ``distance`` is the total variation distance (0
    equal, 1 disjoint) between each group's sampling distribution and the exact one, given the same previous tokens,
    averaged over the 15 groups and the frames of the exact line.
    """

    seq_groups: int
    frames: int
    seconds: float
    ms_per_frame: float
    rtf: float
    distance: float


@dataclass(frozen=True)
class Sweep:
    """The rows in the order of the SEQ_GROUPS given, each one's speech, and the model's ``weights`` (full or int8)."""

    rows: list[SweepRow]
    spoken: list[Spoken]
    weights: str = "full"


@torch.inference_mode()
def sweep(
    synthesizer: Synthesizer,
    line: Line,
    seq_groups: Sequence[int],
    options: GenerateOptions,
    on_frame: Callable[[int, int], None] = lambda _done, _expected: None,
    on_spoken: Callable[[int, Spoken], None] = lambda _groups, _spoken: None,
) -> Sweep:
    """Speak one line at each SEQ_GROUPS, with the same seed. Most parameters are those of ``speak_lines``.

    The eager engine first decodes the exact line, untimed: distances are measured on its codes. If the synthesizer's
    engine captures graphs, it decodes each line once untimed before its row. ``on_spoken`` gets finished speech:
    frames are timed. Raise ValueError for a line that cannot be spoken, or not in one piece.
    """
    check_line(synthesizer.model, line)
    with synthesizer.session():
        # Without a limit the text is one piece; the limit is checked below.
        model, engine = synthesizer.model, synthesizer.engine
        parts = LinePieces(line, replace(options, split_chars=0), engine.prompt_builder(model))
        parts.cut()
        limit, length = piece_limit(model, options), len(parts.normalized.text)
        if 0 < limit < length:
            raise ValueError(
                f"text has {length} characters and {model.name} speaks at most {limit} in one piece: shorten it"
            )
        return _sweep(_Study(engine, engine.choose(model), parts, on_frame), seq_groups, on_spoken)


@dataclass
class _Study:
    engine: Engine
    choice: Choice
    parts: LinePieces
    on_frame: Callable[[int, int], None]
    frames: int = 0
    expected: int = 0

    def count(self, frames: int) -> None:
        """Report finished frames; 0 only gives ``on_frame`` a chance to cancel."""
        self.frames += frames
        self.expected = max(self.expected, self.frames + 1)
        self.on_frame(self.frames, self.expected)

    def decode(self, seq_groups: int) -> Decoded:
        parts, options = self.parts, replace(self.parts.options, seq_groups=seq_groups)
        requests = [parts.request(parts.pieces[0])]
        [decoded] = self.engine.decode(parts.model, requests, options, self.count, self.choice)
        return decoded

    def assemble(self, decoded: Decoded) -> Spoken:
        parts, piece = self.parts, self.parts.pieces[0]
        codes, reference = [decoded.codes], [parts.line.voice.ref_codes]
        begin = self.engine.begin_waveforms
        [wave] = take_all(begin(parts.model, self.choice, codes, reference, lambda: self.count(0)))
        piece.take = Take(decoded, wave, judge_end(piece.text, decoded, wave, parts.model.sample_rate))
        spoken = assemble(parts, self.engine.describe(parts.model, self.choice))
        warn_of(spoken.report)
        return spoken


def _sweep(study: _Study, seq_groups: Sequence[int], on_spoken: Callable[[int, Spoken], None]) -> Sweep:
    parts, model = study.parts, study.parts.model
    warm_ups = model.device.type == "cuda" and study.choice.engine == "graph"
    study.expected = expected_frames(parts.text_tokens) * (len(seq_groups) * (1 + warm_ups) + 1)
    hidden, codes = _trace(study)
    distances = measure_distances(model, hidden, codes, parts.sampling.subtalker, parts.options.tail)
    rows, spoken = [], []
    for groups in seq_groups:
        for _ in range(1 + warm_ups):
            started = time.perf_counter()
            decoded = study.decode(groups)
            elapsed = time.perf_counter() - started
        frames, seconds = len(decoded.codes), len(decoded.codes) / FRAME_RATE
        speed = 1000 * elapsed / frames, elapsed / seconds
        rows.append(SweepRow(groups, frames, seconds, *speed, distances[groups]))
        spoken.append(study.assemble(decoded))
        on_spoken(groups, spoken[-1])
    return Sweep(rows, spoken, model.weights)


def _trace(study: _Study) -> tuple[torch.Tensor, torch.Tensor]:
    trace: list[tuple[torch.Tensor, torch.Tensor]] = []
    parts, experiment = study.parts, Experiment(lambda *frame: trace.append(frame))
    options = replace(parts.options, seq_groups=PREDICTED_GROUPS)
    with open_rows(parts.model, options, RowPlan(1, 1), experiment) as rows:
        decode_lines(parts.model, rows, [parts.request(parts.pieces[0])], study.count)
    hidden, codes = zip(*trace, strict=True)
    return torch.cat(hidden), torch.cat(codes)


@torch.inference_mode()
def measure_distances(
    model: Model, hidden: torch.Tensor, codes: torch.Tensor, subtalker: TokenSampling, tail: str = "auto"
) -> dict[int, float]:
    """Return the distance of every SEQ_GROUPS, from states ``[N, 1, H]`` before the frames ``codes`` ``[N, 16]``."""
    predictor = Predictor(model.talker.code_predictor, model.tails(tail))
    totals = dict.fromkeys(range(1, PREDICTED_GROUPS + 1), 0.0)
    for start in range(0, len(codes), CHUNK):
        part = slice(start, start + CHUNK)
        states = predictor.teacher_force(hidden[part], embed_inputs(model, codes[part]))
        exact = sampled_distribution(crossbar(predictor.heads, states), subtalker)
        for seq_groups in range(1, PREDICTED_GROUPS):
            logits = predictor.crossbar_logits(seq_groups, states[:, seq_groups - 1], codes[part][:, seq_groups])
            difference = sampled_distribution(logits, subtalker) - exact[:, seq_groups:]
            totals[seq_groups] += 0.5 * difference.abs().sum().item()
    return {groups: total / (PREDICTED_GROUPS * len(codes)) for groups, total in totals.items()}


def embed_inputs(model: Model, codes: torch.Tensor) -> torch.Tensor:
    """Return the embeddings of groups 0-14 of frames ``[N, 16]``, the ``inputs`` of ``Predictor.teacher_force``."""
    first = model.talker.model.codec_embedding(codes[:, :1])
    groups = torch.arange(PREDICTED_GROUPS - 1, device=codes.device)
    return torch.cat((first, model.code_tables()[groups, codes[:, 1:-1]]), dim=1)


def sampled_distribution(logits: torch.Tensor, sampling: TokenSampling) -> torch.Tensor:
    """Return the float32 sampling probabilities of tokens; for greedy, those of unfiltered sampling."""
    return distribution(logits, sampling if sampling.do_sample else PLAIN)


def table(result: Sweep) -> str:
    """Return the rows as a Markdown table; for INT8 weights a line below says what "exact" means."""
    titles = ["SEQ_GROUPS", "frames", "audio s", "ms/frame", "RTF", "distance to exact"]
    cells = [[format(value, places) for value, places in zip(astuple(row), PLACES, strict=True)] for row in result.rows]
    # Cells of equal width: the table is readable with and without Markdown rendering.
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    ruler = ["-" * (width - 1) + ":" for width in widths]
    lines = [
        f"| {' | '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in (titles, ruler, *cells)
    ]
    if result.weights == "int8":
        lines += ["", "Exact is the int8 model's own SEQ_GROUPS 15, which is approximate itself."]
    return "\n".join(lines)
