"""Table "frames": ms a frame of the eager engine at several SEQ_GROUPS, beside upstream, in one run.

    python -m benchmarks.frames --shape 0.6B --frames 60 --repeats 3

Full-size random weights (the same shapes and kernels as the published checkpoints; what they speak is noise), one
line, sampling on. A frame is 80 ms of audio. The prefill and the codec are not in these figures. Every figure is the
median over ``--repeats`` runs of ``--frames`` frames each, after a warm-up; the systems take turns within a repeat,
so that a slow spell of the host hits all of them. Before timing, codes at SEQ_GROUPS=15 are compared with upstream's:
the command fails when they differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import pack

from .results import Row, markdown, save_rows

pack.load()

from qwen3_tts_morph.morph.eager import decode_lines  # noqa: E402  (after pack.load)
from qwen3_tts_morph.morph.guard import Guard  # noqa: E402
from qwen3_tts_morph.morph.load import load_model  # noqa: E402
from qwen3_tts_morph.morph.model import Model  # noqa: E402
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, LoadOptions, Sampling  # noqa: E402
from qwen3_tts_morph.morph.predictor import Predictor  # noqa: E402
from qwen3_tts_morph.morph.prompt import Prompt, build_prompt  # noqa: E402
from qwen3_tts_morph.morph.voice import preset_voice  # noqa: E402
from qwen3_tts_morph.training.random_checkpoint import SHAPES, write_checkpoint  # noqa: E402

TEXT = "The quick brown fox jumps over the lazy dog, and then it thinks better of it."
SEQ_GROUPS = (15, 7, 5, 3, 1)
FRAME_MS = 80.0


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed_ms(action: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Wall-clock milliseconds of an action, with the device idle before and after, and what it gave."""
    synchronize(device)
    started = time.perf_counter()
    result = action()
    synchronize(device)
    return 1000 * (time.perf_counter() - started), result


class Bench:
    """One model, one prompt, one number of frames."""

    def __init__(self, model: Model, frames: int):
        self.model = model
        self.device = model.device
        self.prompt: Prompt = build_prompt(model, TEXT, preset_voice(model, "ryan"), "english")
        # Never EOS: every run has the same number of frames. Both systems draw from the same logits.
        model.talker.codec_head.weight.data[model.config.talker_config.codec_eos_token_id] = 0
        self.sampling = replace(model.sampling, max_new_tokens=frames + 1)

    def ours(self, seq_groups: int, sampling: Sampling | None = None) -> torch.Tensor:
        """Codes ``[T, 16]`` of our engine, upstream's seed and stream."""
        torch.manual_seed(0)
        sampling = sampling or self.sampling
        guard = Guard(sampling.max_frames, detect_loops=False)
        return decode_lines(self.model, [self.prompt], [guard], seq_groups, sampling, None)[0].codes

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
            do_sample=True,
            top_k=talker.top_k,
            top_p=talker.top_p,
            temperature=talker.temperature,
            subtalker_dosample=True,
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

    def frame_ms(self, run: Callable[[Sampling], torch.Tensor]) -> float:
        """Milliseconds a frame: a full run less a run of one frame, so that the prefill is not in it."""
        whole, codes = timed_ms(lambda: run(self.sampling), self.device)
        short, one = timed_ms(lambda: run(replace(self.sampling, max_new_tokens=2)), self.device)
        return (whole - short) / (len(codes) - len(one))

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


def check_exact(bench: Bench) -> None:
    """Stop when our codes at 15 groups are not upstream's."""
    ours, theirs = bench.ours(PREDICTED_GROUPS), bench.upstream()
    if not torch.equal(ours, theirs):
        same = int((ours[: len(theirs)] == theirs[: len(ours)]).all(dim=1).long().cumprod(0).sum())
        sys.exit(f"SEQ_GROUPS=15 parts from upstream after {same} of {len(theirs)} frames")
    print(f"SEQ_GROUPS=15 equals upstream's codes over {len(ours)} frames", flush=True)


@torch.inference_mode()
def measure(bench: Bench, shape: str, repeats: int) -> list[Row]:
    """Time upstream and every SEQ_GROUPS in turns."""
    systems: dict[int | None, list[tuple[float, float]]] = {None: [], **{s: [] for s in SEQ_GROUPS}}
    for repeat in range(repeats + 1):
        for groups, times in systems.items():
            run = bench.upstream if groups is None else lambda sampling, g=groups: bench.ours(g, sampling)
            both = bench.frame_ms(run), bench.predictor_ms(groups)
            if repeat:  # the first round warms up
                times.append(both)
    precision = str(bench.model.dtype).removeprefix("torch.")
    rows = []
    for groups, times in systems.items():
        frame, predictor = (statistics.median(column) for column in zip(*times, strict=True))
        rows.append(
            Row(
                "frames",
                "upstream" if groups is None else "morph",
                shape,
                "generate" if groups is None else "eager",
                precision,
                groups or PREDICTED_GROUPS,
                1,
                round(frame, 2),
                round(predictor, 2),
                round(FRAME_MS / frame, 3),
                round(frame / FRAME_MS, 3),
            )
        )
    return rows


def main() -> None:
    """Read the command line, measure, print and keep the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", choices=sorted(SHAPES), default="0.6B")
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--out", type=Path, help="a folder for the results instead of benchmarks/results")
    options = parser.parse_args()
    device = torch.device(options.device)
    with tempfile.TemporaryDirectory() as folder:
        path = write_checkpoint(
            Path(folder) / "checkpoint", options.shape, "custom_voice", dtype=torch.bfloat16
        )
        model = load_model(path, LoadOptions(attention=options.attention), device)
    bench = Bench(model, options.frames)
    check_exact(bench)
    rows = measure(bench, options.shape, options.repeats)
    path = save_rows(rows, device, *([options.out] if options.out else []))
    print(
        f"{model.summary()}, sampling on, {options.frames} frames, median of {options.repeats}\n\n{markdown(rows)}"
    )
    print(f"\nkept in {path}")


if __name__ == "__main__":
    main()
