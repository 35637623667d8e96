"""Table "frames": ms a frame of our engines at several SEQ_GROUPS, beside upstream and peers, in one run.

    python -m lab.benchmarks.frames --shape 0.6B --frames 60 --repeats 3

One line, the same weights, prompt and sampling for all. The engine "kernels" is the graph engine with its frames in
Triton kernels, "graph" the same in torch operations. Peers are those of ``peers.py``, each in a process of its own when
our rows are kept; one that does not run is said in a line. A frame is 80 ms of audio. Neither prefill nor codec is in
these figures. Every figure is the median over ``--repeats`` runs of ``--frames`` frames each, after a warm-up (in which
the graph engine captures); the systems take turns within a repeat, so that a slow spell of the host hits all of them.
``fit_a_ms`` and ``fit_b_ms`` are the straight line a + b S through an engine's rows; ``predictor_ms`` is the part of a
frame that predicts groups 1-15, where it runs by itself. With ``--weights int8`` our engines alone are timed: upstream
and peers have no INT8.

Before timing, codes at SEQ_GROUPS=15 are compared with upstream's: the eager engine's to the bit, and with
``--precision fp32`` all engines' greedy ones. The command fails when they differ. ``--check`` stops there.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from .common import (
    ENGINES,
    Guard,
    Measured,
    Model,
    Prompt,
    Sampling,
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

from qwen3_tts_morph.morph.decode.eager import decode_lines  # isort: skip  (common has loaded the pack)
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS  # isort: skip
from qwen3_tts_morph.morph.decode.predictor import Predictor  # isort: skip

SEQ_GROUPS = (15, 7, 5, 3, 1)
UPSTREAM = "upstream"


class Bench:
    """One model, one prompt, one number of frames."""

    def __init__(self, model: Model, frames: int):
        self.model = model
        self.device = model.device
        self.prompt: Prompt = make_prompt(model)
        self.engines = {name: Measured(name) for name in usable_engines(ENGINES[:2], model)}
        self.sampling = replace(model.sampling, max_new_tokens=frames + 1)

    @property
    def has_rivals(self) -> bool:
        """Whether upstream and peers are timed: on INT8 layers, which are ours, upstream's own loop would run too."""
        return self.model.weights == "full"

    def eager(self, seq_groups: int, sampling: Sampling | None = None) -> torch.Tensor:
        """Codes ``[T, 16]`` of the eager engine, upstream's seed and stream."""
        torch.manual_seed(0)
        sampling = sampling or self.sampling
        guard = Guard(sampling.max_frames, detect_loops=False)
        return decode_lines(self.model, [self.prompt], [guard], seq_groups, sampling, None)[0].codes

    def replayed(self, name: str, seq_groups: int, sampling: Sampling | None = None) -> torch.Tensor:
        """Codes ``[T, 16]`` of the graph engine, with or without kernels."""
        sampling, engine = sampling or self.sampling, self.engines[name]
        guard = Guard(sampling.max_frames, detect_loops=False)
        codes = engine.decode_lines(self.model, [self.prompt], [guard], seq_groups, sampling, [0])[0].codes
        engine.check_ran()
        return codes

    def upstream(self, sampling: Sampling | None = None) -> torch.Tensor:
        """Codes of upstream's own ``talker.generate`` on the same prompt."""
        torch.manual_seed(0)
        sampling = sampling or self.sampling
        config = self.model.config.talker_config
        first, talker, sub = config.vocab_size - 1024, sampling.talker, sampling.subtalker
        result = self.model.talker.generate(
            inputs_embeds=self.prompt.embeds[None],
            attention_mask=torch.ones(1, len(self.prompt.embeds), dtype=torch.long, device=self.device),
            trailing_text_hidden=self.prompt.trailing[None],
            tts_pad_embed=self.prompt.pad[None],
            max_new_tokens=sampling.max_new_tokens,
            min_new_tokens=2,
            do_sample=talker.do_sample,
            top_k=talker.top_k,
            top_p=talker.top_p,
            temperature=talker.temperature,
            subtalker_dosample=sub.do_sample,
            subtalker_top_k=sub.top_k,
            subtalker_top_p=sub.top_p,
            subtalker_temperature=sub.temperature,
            eos_token_id=config.codec_eos_token_id,
            repetition_penalty=sampling.repetition_penalty,
            suppress_tokens=[i for i in range(first, config.vocab_size) if i != config.codec_eos_token_id],
            output_hidden_states=True,
            return_dict_in_generate=True,
        )
        codes = [step[-1] for step in result.hidden_states if step[-1] is not None]
        return torch.stack(codes, dim=1)[0].cpu()

    def predictor_ms(self, seq_groups: int | None, runs: int = 20) -> float:
        """Milliseconds of one frame's groups 1-15 alone; None is upstream's ``code_predictor.generate``."""
        hidden = self.prompt.embeds[None, -1:]
        embedding = self.prompt.embeds[None, :1]
        draw = self.sampling.subtalker
        predictor = Predictor(self.model.talker.code_predictor)

        def ours() -> None:
            predictor.decode_frame(hidden, embedding, seq_groups or 0, draw, None)

        def upstream() -> None:
            self.model.talker.code_predictor.generate(
                inputs_embeds=torch.cat((hidden, embedding), dim=1),
                max_new_tokens=PREDICTED_GROUPS,
                do_sample=True,
                top_k=draw.top_k,
                top_p=draw.top_p,
                temperature=draw.temperature,
                output_hidden_states=True,
                return_dict_in_generate=True,
            )

        one = upstream if seq_groups is None else ours
        return timed_ms(lambda: [one() for _ in range(runs)], self.device)[0] / runs


def check_exact(bench: Bench) -> bool:
    """Compare our codes at 15 groups with upstream's, and say in a line each whether they are the same."""
    same = [same_frames("eager engine", bench.eager(PREDICTED_GROUPS), bench.upstream())]
    if bench.model.dtype == torch.float32:
        likeliest = greedy(bench.sampling)
        exact = bench.upstream(likeliest)
        same.append(same_frames("eager engine (greedy)", bench.eager(PREDICTED_GROUPS, likeliest), exact))
        for name in bench.engines:
            ours = bench.replayed(name, PREDICTED_GROUPS, likeliest)
            same.append(same_frames(f"{name} engine (greedy)", ours, exact))
    return all(same)


def same_frames(name: str, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Say whether codes ``[T, 16]`` are the same, or from which frame on they are not."""
    if torch.equal(ours, theirs):
        print(f"SEQ_GROUPS=15: the {name}'s codes equal upstream's over {len(ours)} frames", flush=True)
        return True
    same = int((ours[: len(theirs)] == theirs[: len(ours)]).all(dim=1).long().cumprod(0).sum())
    print(f"SEQ_GROUPS=15: the {name} parts from upstream after {same} of {len(theirs)} frames", flush=True)
    return False


def fit_line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """a and b of the straight line a + b x with the least squared distance to (x, y)."""
    mean_x, mean_y = (statistics.fmean(column) for column in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    return mean_y - slope * mean_x, slope


@torch.inference_mode()
def measure(bench: Bench, options: argparse.Namespace) -> list[Row]:
    """Time upstream and our engines at every SEQ_GROUPS in turns."""
    runs: dict[tuple[str, int | None], Callable[[Sampling], torch.Tensor]] = {}
    if bench.has_rivals:
        runs[UPSTREAM, None] = bench.upstream
    for groups in SEQ_GROUPS:
        runs["eager", groups] = lambda sampling, g=groups: bench.eager(g, sampling)
    for name in bench.engines:
        for groups in SEQ_GROUPS:
            runs[name, groups] = lambda sampling, g=groups, n=name: bench.replayed(n, g, sampling)
    times: dict[tuple[str, int | None], list[tuple[float, float | None]]] = {key: [] for key in runs}
    for repeat in range(options.repeats + 1):
        for (engine, groups), run in runs.items():
            alone = bench.predictor_ms(groups) if engine in ("eager", UPSTREAM) else None
            both = frame_ms(run, bench.sampling, bench.device), alone
            if repeat:  # the first round warms up
                times[engine, groups].append(both)
    return [row_of(bench, options, key, times) for key in runs]


def row_of(
    bench: Bench,
    options: argparse.Namespace,
    key: tuple[str, int | None],
    times: dict[tuple[str, int | None], list[tuple[float, float | None]]],
) -> Row:
    """A system's row, with the line through the rows of its engine."""

    def median(one: tuple[str, int | None]) -> float:
        return statistics.median(frame for frame, _ in times[one])

    engine, groups = key
    predictor = [part for _, part in times[key] if part is not None]
    details: dict[str, float | None] = {"predictor_ms": statistics.median(predictor) if predictor else None}
    if groups is not None:
        points = [(other, median((engine, other))) for other in SEQ_GROUPS]
        details["fit_a_ms"], details["fit_b_ms"] = fit_line(points)
    row = make_row(
        "frames", options, bench.model, engine, groups or PREDICTED_GROUPS, 1, median(key), [1], **details
    )
    return row if groups is not None else replace(row, system=engine, engine="generate")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print and keep the table."""
    made = parser(__doc__, frames=60, repeats=3)
    made.add_argument("--check", action="store_true", help="compare codes with upstream's, and time nothing")
    options = made.parse_args(arguments)
    model = load_muted(options)
    bench = Bench(model, options.frames)
    if not check_exact(bench):
        sys.exit("the codes above are not upstream's: nothing is measured")
    if options.check:
        return
    rows = measure(bench, options)
    keep(rows, options, model)
    if bench.has_rivals and (peers := measure_peers(options)):
        keep(rows + peers, options, model)


if __name__ == "__main__":
    main()
