"""Table "codec": codes to waveforms, upstream's decoder and variants of ours, in one run.

    python -m lab.benchmarks.codec                          # full-size random weights on the GPU, about 3 minutes
    python -m lab.benchmarks.codec --only units,upstream-bf16 --cases 1x125,64x125
    python -m lab.benchmarks.codec --shape tiny --device cpu --cases 1x12,3x20   # a dry run

A case is lines x frames (80 ms of audio each); "mixed" is 64 lines of 25 to 225 frames. Times are from codes on the
host to samples on the host: the median of as many runs as fit in 0.6 s, after warm-ups. SNR is relative to upstream's
decoder in float32 without TF32, over the first lines. Random weights amplify rounding errors: compare a
variant with upstream's own bf16.
"""

from __future__ import annotations

import argparse
import copy
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.codec.forward import TorchOps
from qwen3_tts_morph.morph.waveform.engine import BatchCodec, take_all

from ..random_checkpoint import SHAPES, random_codec
from .common import synchronize, timed_ms
from .origin import add_output
from .results import PartRow, save_rows

FRAME_SECONDS = 0.08
CASES = ("1x12", "1x125", "8x125", "64x125", "64x300", "mixed")
REFERENCE_LINES = 2
UPSTREAM_LINES = 16  # per batch: its activations take 5 MB per frame
BUDGET_S = 0.6  # per variant and case
Decode = Callable[[list[torch.Tensor]], list[np.ndarray]]


@dataclass(frozen=True)
class CodecRow(PartRow):
    """One measurement; ``ms_per_frame`` is the total time divided by the frames of all lines."""

    case: str
    ms: float
    ms_per_frame: float
    audio_seconds_per_second: float
    rtf: float
    snr_db: float
    peak_mb: float


@dataclass(frozen=True)
class Variant:
    """A way to decode: ``make`` returns the function, given upstream's codec on the device in ``dtype``."""

    name: str
    dtype: torch.dtype
    make: Callable[[Any], Decode]


def triton_ops() -> TorchOps:
    from qwen3_tts_morph.morph.kernels.codec.ops import TritonOps

    return TritonOps.of(torch.device("cuda"))


def engine(ops: Callable[[], TorchOps]) -> Callable[[Any], Decode]:
    """Our codec engine over these operations."""

    def make(codec: Any) -> Decode:
        rate = codec.get_decode_upsample_rate()
        model: Any = SimpleNamespace(codec=codec, device=codec.device, samples_per_frame=rate)
        decoder = BatchCodec(model, ops=ops())
        return lambda codes: take_all(decoder.begin_waveforms(codes))

    return make


def upstream(codec: Any) -> Decode:
    """Upstream's ``chunked_decode``, a few lines of equal length per batch."""

    @torch.inference_mode()
    def decode(lines: list[torch.Tensor]) -> list[np.ndarray]:
        if len({len(line) for line in lines}) > 1:
            return [wave for line in lines for wave in decode([line])]
        waves: list[np.ndarray] = []
        for start in range(0, len(lines), UPSTREAM_LINES):
            codes = torch.stack(lines[start : start + UPSTREAM_LINES]).transpose(1, 2).to(codec.device)
            waves += list(codec.decoder.chunked_decode(codes)[:, 0].float().cpu().numpy())
        return waves

    return decode


def variants() -> list[Variant]:
    """Return all variants. "units" is what the product uses on CUDA; without a GPU's kernels it is skipped."""
    half, single = torch.bfloat16, torch.float32
    return [
        Variant("upstream-fp32", single, upstream),
        Variant("upstream-bf16", half, upstream),
        Variant("torch", half, engine(TorchOps)),
        Variant("units", half, engine(triton_ops)),
        Variant("units-fp16", torch.float16, engine(triton_ops)),
    ]


def lines_of(case: str, codebook: int) -> list[torch.Tensor]:
    """Return random codes ``[T, 16]`` of a case's lines, on the host."""
    generator = torch.Generator().manual_seed(0)
    if case == "mixed":
        lengths = torch.randint(25, 226, (64,), generator=generator).tolist()
    else:
        count, frames = map(int, case.split("x"))
        lengths = [frames] * count
    return [torch.randint(codebook, (length, 16), generator=generator) for length in lengths]


def signal_to_noise(waves: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """Return the SNR in dB, over the lines that have an exact waveform."""
    pairs = [(one.astype(np.float64), other.astype(np.float64)) for one, other in zip(waves, exact, strict=False)]
    signal = sum(float(np.square(other).sum()) for _, other in pairs)
    noise = sum(float(np.square(one - other).sum()) for one, other in pairs)
    return float(10 * np.log10(signal / noise)) if noise else float("inf")


def time_runs(decode: Decode, lines: list[torch.Tensor], device: torch.device) -> tuple[float, list[np.ndarray]]:
    """Return the median in ms of the runs within the budget (at least two), after three warm-ups, and the waveforms."""
    started = time.perf_counter()
    for _ in range(3):
        waves = decode(lines)
        if time.perf_counter() - started > 4 * BUDGET_S:
            break
    times: list[float] = []
    while len(times) < 2 or (sum(times) < 1000 * BUDGET_S and len(times) < 50):
        elapsed, waves = timed_ms(lambda: decode(lines), device)
        times.append(elapsed)
    return statistics.median(times), waves


def measure(
    variant: Variant,
    codec: Any,
    shape: str,
    cases: dict[str, list[torch.Tensor]],
    exact: dict[str, list[np.ndarray]],
) -> list[CodecRow]:
    """Measure one variant on all cases; ``codec`` is its own copy."""
    device = codec.device
    base = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    decode = variant.make(codec)
    rows = []
    for case, lines in cases.items():
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        ms, waves = time_runs(decode, lines, device)
        peak = torch.cuda.max_memory_allocated(device) - base if device.type == "cuda" else 0
        frames = sum(map(len, lines))
        seconds = frames * FRAME_SECONDS
        rows.append(
            CodecRow(
                table="codec",
                system="upstream" if variant.name.startswith("upstream") else "morph",
                model=shape,
                engine=variant.name,
                precision=str(variant.dtype).removeprefix("torch."),
                batch=len(lines),
                case=case,
                ms=round(ms, 3),
                ms_per_frame=round(ms / frames, 5),
                audio_seconds_per_second=round(1000 * seconds / ms, 1),
                rtf=round(ms / 1000 / seconds, 6),
                snr_db=round(signal_to_noise(waves, exact[case]), 1),
                peak_mb=round(peak / 1e6, 1),
            )
        )
        row = rows[-1]
        print(f"{variant.name:18} {case:>7} {ms:10.2f} ms {row.audio_seconds_per_second:9.0f} s/s", flush=True)
    return rows


def own_copy(codec: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Return a copy of the codec's decoder: parameters rounded to bf16, then cast to ``dtype``; buffers unchanged."""
    decoder = copy.deepcopy(codec.decoder)
    for parameter in decoder.parameters():
        parameter.data = parameter.data.to(torch.bfloat16).to(dtype)
    rate = codec.get_decode_upsample_rate()
    return SimpleNamespace(
        decoder=decoder.to(device), device=device, dtype=dtype, get_decode_upsample_rate=lambda: rate
    )


def markdown(rows: list[CodecRow]) -> str:
    """Format the rows as a table, grouped by case."""
    lines = [
        "| case | engine | precision | ms | s of audio per second | SNR dB | peak MB |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for case in dict.fromkeys(row.case for row in rows):
        lines += [
            f"| {case} | {row.engine} | {row.precision} | {row.ms:.2f} | {row.audio_seconds_per_second:.0f} "
            f"| {row.snr_db:.1f} | {row.peak_mb:.0f} |"
            for row in rows
            if row.case == case
        ]
    return "\n".join(lines)


def choose(only: str | None) -> list[Variant]:
    """Return the named variants, or all."""
    known = {variant.name: variant for variant in variants()}
    asked = only.split(",") if only else list(known)
    if unknown := set(asked) - set(known):
        raise SystemExit(f"unknown variants {sorted(unknown)}: choose from {', '.join(known)}")
    return [known[name] for name in known if name in asked]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", choices=sorted(SHAPES), default="0.6B")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", help="variants to measure, separated by commas")
    parser.add_argument("--cases", default=",".join(CASES))
    add_output(parser)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    device = torch.device(options.device)
    source = random_codec(options.shape)
    cases = {case: lines_of(case, SHAPES[options.shape].codebook) for case in options.cases.split(",")}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    exact_decode = upstream(own_copy(source, torch.float32, device))
    exact = {case: exact_decode(lines[:REFERENCE_LINES]) for case, lines in cases.items()}
    rows: list[CodecRow] = []
    for variant in choose(options.only):
        try:
            rows += measure(variant, own_copy(source, variant.dtype, device), options.shape, cases, exact)
        except (RuntimeError, ImportError) as error:
            print(f"{variant.name}: {type(error).__name__}: {error}", flush=True)
        synchronize(device)
    path = save_rows(rows, device, options)
    print(f"\n{markdown(rows)}\n\nwritten to {path}")


if __name__ == "__main__":
    main()
