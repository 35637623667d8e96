"""One line at several SEQ_GROUPS: how fast each is, and how far its distributions are from the exact ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ..decode.decoded import Decoded
from ..decode.eager import decode_lines
from ..decode.predictor import Predictor
from ..decode.sampling import distribution, line_streams
from ..model.crossbar import crossbar
from ..model.model import Model
from ..options import PREDICTED_GROUPS, GenerateOptions, TokenSampling, check_seq_groups
from ..render.lines import (
    Line,
    LineReport,
    OnFrame,
    Progress,
    Spoken,
    build_piece,
    check_line,
    guard_line,
    normalizer_of,
    piece_limit,
)
from ..synthesizer import Synthesizer
from ..voice.prompt import Prompt, PromptBuilder

PLAIN = TokenSampling(temperature=1.0, top_k=0, top_p=1.0)
CHUNK = 64  # frames whose distributions are compared at once: 64 x 15 x 2048 float32 is 8 MB


@dataclass(frozen=True)
class SweepRow:
    """One SEQ_GROUPS: its speed and its distance.

    ``ms_per_frame`` and ``rtf`` are of the decoding without the codec. ``distance`` is the total variation distance
    (0 equal, 1 disjoint) between the distribution that each group's token is drawn from and the exact one, with the
    same tokens before it, averaged over the 15 groups and the frames of the exact line. It is no measure of how the
    speech sounds.
    """

    seq_groups: int
    frames: int
    seconds: float
    ms_per_frame: float
    rtf: float
    distance: float


@dataclass(frozen=True)
class Sweep:
    """The rows, in rising SEQ_GROUPS, what each spoke, and the model's ``weights`` (full or int8)."""

    rows: list[SweepRow]
    spoken: list[Spoken]
    weights: str = "full"


@dataclass
class _Trace:
    """The exact line's talker states and codes, frame by frame."""

    hidden: list[torch.Tensor] = field(default_factory=list)
    codes: list[torch.Tensor] = field(default_factory=list)

    def add(self, hidden: torch.Tensor, codes: torch.Tensor) -> None:
        self.hidden.append(hidden)
        self.codes.append(codes)


@torch.inference_mode()
def sweep(
    synthesizer: Synthesizer,
    line: Line,
    seq_groups: Sequence[int],
    options: GenerateOptions | None = None,
    on_frame: OnFrame | None = None,
) -> Sweep:
    """Speak one line at each SEQ_GROUPS, with the same seed.

    The exact line is decoded first by the eager engine, untimed: the distances are measured on its codes. The rows are
    of the model's own engine; where that captures graphs, it decodes a line once untimed before.
    """
    options = options or GenerateOptions()
    for groups in seq_groups:
        check_seq_groups(groups)
    with synthesizer.session():
        return _sweep(synthesizer, line, seq_groups, options, on_frame)


def _sweep(
    synthesizer: Synthesizer,
    line: Line,
    seq_groups: Sequence[int],
    options: GenerateOptions,
    on_frame: OnFrame | None,
) -> Sweep:
    model, engine = synthesizer.model, synthesizer.engine
    prompt = _prompt(model, line, options)
    warm_ups = model.device.type == "cuda" and engine.pick(model)[0] == "graph"
    progress = Progress([prompt.text_tokens] * (len(seq_groups) * (1 + warm_ups) + 1), on_frame)
    trace = _trace(model, prompt, line, options, progress)
    draw = (options.sampling or model.sampling).subtalker
    distances = measure_distances(model, torch.cat(trace.hidden), torch.cat(trace.codes), draw, options.tail)
    rows, spoken = [], []
    for groups in seq_groups:
        for _ in range(1 + warm_ups):
            decoded, elapsed = _decode(synthesizer, prompt, line, groups, options, progress)
        rows.append(_row(model, groups, decoded, elapsed, distances[groups]))
        spoken.append(_speak(synthesizer, line, decoded))
    return Sweep(rows, spoken, model.weights)


def _prompt(model: Model, line: Line, options: GenerateOptions) -> Prompt:
    """The line's prompt, its text written out; ValueError for a line that cannot be spoken in one piece."""
    check_line(model, line)
    text = normalizer_of(model, options).write_out(line.text, line.language).text
    limit = piece_limit(model, options)
    if 0 < limit < len(text):
        raise ValueError(
            f"text has {len(text)} characters and {model.name} speaks at most {limit} in one piece: shorten it"
        )
    return build_piece(PromptBuilder(model), line, text)


def _trace(model: Model, prompt: Prompt, line: Line, options: GenerateOptions, progress: Progress) -> _Trace:
    """Decode the line exactly and keep what the distances are measured on."""
    trace, sampling = _Trace(), options.sampling or model.sampling
    guards, streams = [guard_line(prompt, options, sampling)], line_streams([line.seed], model.device)
    decode_lines(model, [prompt], guards, PREDICTED_GROUPS, sampling, streams, progress.add, trace.add)
    return trace


def _decode(
    synthesizer: Synthesizer,
    prompt: Prompt,
    line: Line,
    seq_groups: int,
    options: GenerateOptions,
    progress: Progress,
) -> tuple[Decoded, float]:
    """Decode the line; give its codes and the seconds that it took."""
    model = synthesizer.model
    sampling = options.sampling or model.sampling
    guards = [guard_line(prompt, options, sampling)]
    started = time.perf_counter()
    decoded = synthesizer.engine.decode_lines(
        model, [prompt], guards, seq_groups, sampling, [line.seed], on_frame=progress.add, tail=options.tail
    )
    return decoded[0], time.perf_counter() - started


@torch.inference_mode()
def measure_distances(
    model: Model, hidden: torch.Tensor, codes: torch.Tensor, draw: TokenSampling, tail: str = "auto"
) -> dict[int, float]:
    """The distance (see ``SweepRow``) of every SEQ_GROUPS from exact.

    Args:
        model: the checkpoint.
        hidden: ``[N, 1, H]``, the talker's state before each frame.
        codes: ``[N, 16]``, the frames.
        draw: how the sub-talker draws: its filter shapes the distributions.
        tail: one of ``options.TAILS``.
    """
    predictor = Predictor(model.talker.code_predictor, model.tails(tail))
    totals = dict.fromkeys(range(1, PREDICTED_GROUPS + 1), 0.0)
    for start in range(0, len(codes), CHUNK):
        part = slice(start, start + CHUNK)
        states = predictor.teacher_force(hidden[part], embed_inputs(model, codes[part]))
        exact = sampled_distribution(crossbar(predictor.heads, states), draw)
        for seq_groups in range(1, PREDICTED_GROUPS):
            logits = predictor.crossbar_logits(
                seq_groups, states[:, seq_groups - 1], codes[part][:, seq_groups]
            )
            difference = sampled_distribution(logits, draw) - exact[:, seq_groups:]
            totals[seq_groups] += 0.5 * difference.abs().sum().item()
    return {groups: total / (PREDICTED_GROUPS * len(codes)) for groups, total in totals.items()}


def embed_inputs(model: Model, codes: torch.Tensor) -> torch.Tensor:
    """What ``Predictor.teacher_force`` is given of frames ``[N, 16]``: the embeddings of groups 0-14."""
    first = model.talker.get_input_embeddings()(codes[:, :1])
    groups = torch.arange(PREDICTED_GROUPS - 1, device=codes.device)
    return torch.cat((first, model.code_tables()[groups, codes[:, 1:-1]]), dim=1)


def sampled_distribution(logits: torch.Tensor, draw: TokenSampling) -> torch.Tensor:
    """The probabilities that tokens are drawn with, float32; of a greedy draw, those of plain sampling."""
    return distribution(logits, draw if draw.do_sample else PLAIN)


def _row(model: Model, seq_groups: int, decoded: Decoded, elapsed: float, distance: float) -> SweepRow:
    frames = len(decoded.codes)
    seconds = frames / model.frame_rate
    return SweepRow(seq_groups, frames, seconds, 1000 * elapsed / frames, elapsed / seconds, distance)


def _speak(synthesizer: Synthesizer, line: Line, decoded: Decoded) -> Spoken:
    model = synthesizer.model
    [waveform] = synthesizer.engine.decode_waveforms(model, [decoded.codes], [line.voice.ref_codes])
    seconds = len(waveform) / model.sample_rate
    report = LineReport(line.name, line.text, len(decoded.codes), seconds, decoded.ended, 1)
    return Spoken(waveform, model.sample_rate, report)


def table(result: Sweep) -> str:
    """The rows as a markdown table, with a line below that says what "exact" is of INT8 weights."""
    titles = ["SEQ_GROUPS", "frames", "audio s", "ms/frame", "RTF", "distance to exact"]
    cells = [
        (
            *(str(row.seq_groups), str(row.frames), f"{row.seconds:.2f}", f"{row.ms_per_frame:.1f}"),
            *(f"{row.rtf:.3f}", f"{row.distance:.3f}"),
        )
        for row in result.rows
    ]
    # Cells of one width: the table is to be read where Markdown is drawn and where it is not.
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    ruler = ["-" * (width - 1) + ":" for width in widths]
    lines = [
        f"| {' | '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in (titles, ruler, *cells)
    ]
    if result.weights == "int8":
        lines += ["", "Exact is the int8 model's own SEQ_GROUPS 15, which is approximate itself."]
    return "\n".join(lines)
