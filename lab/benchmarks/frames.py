"""Table "frames": ms per frame of our engines at several SEQ_GROUPS, of upstream and of peers, in one run.

    python -m lab.benchmarks.frames --shape 0.6B --frames 60 --repeats 3

Batch 1; weights, prompt and sampling are the same for all. The engine "kernels" is the graph engine with Triton
kernels, "graph" the same with torch operations. Peers are those of ``peers.py``; each runs in a separate process after
our rows are written; a line says why a peer is missing. A frame is 80 ms of audio. Prefill and codec are
excluded. Every figure is the median over ``--repeats`` runs of ``--frames`` frames each, after a warm-up (in which the
graph engine captures); the systems alternate within a repeat, so that a slow spell of the host affects all.
``fit_a_ms`` and ``fit_b_ms`` are the straight line a + b S fitted to an engine's rows; ``predictor_ms`` is the part of
a frame that predicts groups 1-15, where it can be timed separately. With ``--weights int8`` only our engines are timed:
upstream and peers have no INT8.

Before timing, codes at SEQ_GROUPS=15 are compared with upstream's: the eager engine's must be equal, and with
``--precision fp32`` the greedy codes of all engines. The command fails if they differ. ``--check`` stops there.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from qwen3_tts_morph.morph.decode.eager import Experiment, open_rows
from qwen3_tts_morph.morph.decode.loop import decode_lines
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.rows import Guard, LineRequest, RowPlan
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, GenerateOptions, Sampling
from qwen3_tts_morph.morph.voice.prompt import Prompt

from ..upstream.over import upstream_of
from .common import (
    ENGINES,
    NamedEngine,
    RowSetting,
    frame_ms,
    greedy,
    keep,
    load_muted,
    make_prompt,
    make_row,
    parser,
    timed_ms,
    usable_engines,
)
from .peers import measure_peers
from .results import Row
from .upstream import generate

SEQ_GROUPS = (15, 7, 5, 3, 1)
UPSTREAM = "upstream"


def default_stream(device: torch.device) -> torch.Generator:
    """Return torch's default generator of a device, which upstream samples with."""
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.cuda.default_generators[index]
    return torch.default_generator


class FrameBench:
    """One model, one prompt, one number of frames."""

    def __init__(self, model: Model, frames: int):
        self.model = model
        self.device = model.device
        self.prompt: Prompt = make_prompt(model)
        self.engines = {name: NamedEngine(name) for name in usable_engines(ENGINES[:2], model)}
        self.sampling = replace(model.sampling, max_new_tokens=frames + 1)

    @cached_property
    def theirs(self) -> Any:
        """Upstream's model over the same tensors."""
        return upstream_of(self.model)

    @property
    def has_rivals(self) -> bool:
        """Whether to time upstream and peers, which have no INT8."""
        return self.model.weights == "full"

    def eager(self, seq_groups: int, sampling: Sampling | None = None) -> torch.Tensor:
        """Decode with the eager engine, with upstream's seed and random stream; codes ``[T, 16]``."""
        torch.manual_seed(0)
        sampling = sampling or self.sampling
        guard = Guard(sampling.max_frames, detect_loops=False)
        line, options = LineRequest(self.prompt, guard), GenerateOptions(seq_groups, sampling)
        experiment = Experiment(stream=default_stream(self.device))
        with open_rows(self.model, options, RowPlan(1, 1), experiment) as rows:
            return decode_lines(self.model, rows, [line])[0].codes

    def replayed(self, name: str, seq_groups: int, sampling: Sampling | None = None) -> torch.Tensor:
        """Decode with the graph engine, with or without kernels; codes ``[T, 16]``."""
        sampling, engine = sampling or self.sampling, self.engines[name]
        guard = Guard(sampling.max_frames, detect_loops=False)
        line, options = LineRequest(self.prompt, guard), GenerateOptions(seq_groups, sampling)
        codes = engine.decode(self.model, [line], options)[0].codes
        engine.check_ran()
        return codes

    def upstream(self, sampling: Sampling | None = None) -> torch.Tensor:
        """Decode with upstream's own ``talker.generate`` on the same prompt; codes ``[T, 16]``."""
        torch.manual_seed(0)
        sampling = sampling or self.sampling
        return generate(self.model, self.theirs, [self.prompt], sampling.max_frames, sampling)[0]

    def predictor_ms(self, seq_groups: int | None, runs: int = 20) -> float:
        """Milliseconds for groups 1-15 of one frame; None times upstream's ``code_predictor.generate``."""
        hidden = self.prompt.embeds[None, -1:]
        embedding = self.prompt.embeds[None, :1]
        sampling = self.sampling.subtalker
        predictor = Predictor(self.model.talker.code_predictor)

        def ours() -> None:
            predictor.decode_frame(hidden, embedding, seq_groups or 0, sampling, None)

        def upstream() -> None:
            self.theirs.talker.code_predictor.generate(
                inputs_embeds=torch.cat((hidden, embedding), dim=1),
                max_new_tokens=PREDICTED_GROUPS,
                do_sample=True,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                temperature=sampling.temperature,
                output_hidden_states=True,
                return_dict_in_generate=True,
            )

        one = upstream if seq_groups is None else ours
        return timed_ms(lambda: [one() for _ in range(runs)], self.device)[0] / runs


def check_exact(bench: FrameBench) -> bool:
    """Compare our codes at 15 groups with upstream's, and print one line for each comparison."""
    same = [same_frames("eager engine", bench.eager(PREDICTED_GROUPS), bench.upstream())]
    if bench.model.dtype == torch.float32:
        greedily = greedy(bench.sampling)
        exact = bench.upstream(greedily)
        same.append(same_frames("eager engine (greedy)", bench.eager(PREDICTED_GROUPS, greedily), exact))
        for name in bench.engines:
            ours = bench.replayed(name, PREDICTED_GROUPS, greedily)
            same.append(same_frames(f"{name} engine (greedy)", ours, exact))
    return all(same)


def same_frames(name: str, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Print whether codes ``[T, 16]`` are equal, or after how many frames they diverge; return whether they are."""
    if torch.equal(ours, theirs):
        print(f"SEQ_GROUPS=15: the {name}'s codes equal upstream's over {len(ours)} frames", flush=True)
        return True
    same = int((ours[: len(theirs)] == theirs[: len(ours)]).all(dim=1).long().cumprod(0).sum())
    print(f"SEQ_GROUPS=15: the {name} diverges from upstream after {same} of {len(theirs)} frames", flush=True)
    return False


def fit_line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return a and b of the least-squares line y = a + b x through the points (x, y)."""
    mean_x, mean_y = (statistics.fmean(column) for column in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    return mean_y - slope * mean_x, slope


@torch.inference_mode()
def measure(bench: FrameBench, options: argparse.Namespace) -> list[Row]:
    """Time upstream and our engines at every SEQ_GROUPS, alternating."""
    runs: dict[tuple[str, int | None], Callable[[Sampling], torch.Tensor]] = {}
    if bench.has_rivals:
        runs[UPSTREAM, None] = bench.upstream
    for groups in SEQ_GROUPS:
        runs["eager", groups] = partial(bench.eager, groups)
    for name in bench.engines:
        for groups in SEQ_GROUPS:
            runs[name, groups] = partial(bench.replayed, name, groups)
    times: dict[tuple[str, int | None], list[tuple[float, float | None]]] = {key: [] for key in runs}
    for repeat in range(options.repeats + 1):
        for key, run in runs.items():
            alone = bench.predictor_ms(key[1]) if key[0] in ("eager", UPSTREAM) else None
            both = frame_ms(run, bench.sampling, bench.device), alone
            if repeat:  # the first round warms up
                times[key].append(both)
    return [row_of(bench, options, key, times) for key in runs]


def row_of(
    bench: FrameBench,
    options: argparse.Namespace,
    key: tuple[str, int | None],
    times: dict[tuple[str, int | None], list[tuple[float, float | None]]],
) -> Row:
    """Return a system's row, with the line fitted to the rows of its engine."""

    def median(one: tuple[str, int | None]) -> float:
        return statistics.median(frame for frame, _ in times[one])

    engine, groups = key
    predictor = [part for _, part in times[key] if part is not None]
    details: dict[str, float | None] = {"predictor_ms": statistics.median(predictor) if predictor else None}
    if groups is not None:
        points = [(other, median((engine, other))) for other in SEQ_GROUPS]
        details["fit_a_ms"], details["fit_b_ms"] = fit_line(points)
    setting = RowSetting("frames", engine, groups or PREDICTED_GROUPS)
    row = make_row(setting, options, bench.model, median(key), [1], **details)
    return row if groups is not None else replace(row, system=engine, engine="generate")


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser(__doc__, frames=60, repeats=3)
    made.add_argument("--check", action="store_true", help="only compare codes with upstream's, time nothing")
    options = made.parse_args(arguments)
    model = load_muted(options)
    bench = FrameBench(model, options.frames)
    if not check_exact(bench):
        sys.exit("the codes above differ from upstream's: nothing is measured")
    if options.check:
        return
    rows = measure(bench, options)
    keep(rows, options, model)
    if bench.has_rivals and (peers := measure_peers(options)):
        keep(rows + peers, options, model)


if __name__ == "__main__":
    main()
