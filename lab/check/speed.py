"""Measure the speed of the loaded engine."""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import design_voice, preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.terminal.engine import make_voice

from ..streams import render_lines, stream_line

TEXT = "The sun had already set when the last visitors left the garden, and nobody spoke on the way home."
TITLES = ("SEQ_GROUPS", "frames", "ms per frame", "RTF", "first samples, ms")


@dataclass(frozen=True)
class Speed:
    """Medians of one setting; the time of a line includes its prompt and its codec.

    ``rtf`` is generation time over audio duration: below 1 is faster than real time. ``first_ms`` is the time from the
    call to the first samples of a stream.
    """

    seq_groups: int
    frames: int
    ms_per_frame: float
    rtf: float
    first_ms: float

    def row(self) -> list[str]:
        numbers = (f"{self.ms_per_frame:.1f}", f"{self.rtf:.3f}", f"{self.first_ms:.0f}")
        return [str(self.seq_groups), str(self.frames), *numbers]


@contextmanager
def quietly() -> Iterator[None]:
    """Log no warnings inside the ``with``: lines are meant to reach the measurement's limit."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def measure(synthesizer: Synthesizer, line: Line, options: GenerateOptions, repeats: int) -> Speed:
    """Return the speed of a line, after one run that warms up."""
    render_lines(synthesizer, [line], options)
    times, spoken = [], []
    for _ in range(repeats):
        began = time.perf_counter()
        spoken = render_lines(synthesizer, [line], options)
        times.append(time.perf_counter() - began)
    first = statistics.median(first_samples(synthesizer, line, options) for _ in range(repeats))
    elapsed, report = statistics.median(times), spoken[0].report
    return Speed(
        options.seq_groups,
        report.frames,
        1000 * elapsed / report.frames,
        elapsed / report.seconds,
        1000 * first,
    )


def first_samples(synthesizer: Synthesizer, line: Line, options: GenerateOptions) -> float:
    """Return the seconds from the call to the first samples of a line's stream."""
    began = time.perf_counter()
    with stream_line(synthesizer, line, options) as stream:
        for chunk in stream:
            if len(chunk.samples):
                return time.perf_counter() - began
    raise ValueError("the line has no samples: allow more with --max-seconds")


def table(speeds: Sequence[Speed]) -> str:
    """Return a Markdown table with cells of equal width."""
    rows = [list(TITLES), *(speed.row() for speed in speeds)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ruler = ["-" * (width - 1) + ":" for width in widths]
    return "\n".join(
        f"| {' | '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in (rows[0], ruler, *rows[1:])
    )


def as_json(speed: Speed) -> dict[str, Any]:
    return {key: round(value, 4) for key, value in asdict(speed).items()}


def make_line(model: Model, options: argparse.Namespace, recording: tuple[np.ndarray, int] | None, seed: int) -> Line:
    """Return the measured line, in the voice of the options or any voice of the checkpoint."""
    chosen = options.voice or options.speaker or recording or options.describe
    voice = make_voice(model, options, recording) if chosen else voice_for(model)
    return Line(options.text, voice, options.language, seed, options.instruct)


def voice_for(model: Model) -> Voice:
    """Return some voice of a checkpoint of any kind; a Base checkpoint gets random numbers for an x-vector."""
    if model.speakers:
        return preset_voice(model, model.speakers[0])
    if model.type == "voice_design":
        return design_voice(model, "a calm voice")
    embedding = torch.randn(model.width, generator=torch.Generator().manual_seed(0))
    return Voice("x_vector", model.size, "random numbers", embedding)


def memory(device: str) -> dict[str, float]:
    """Return the peak memory of this process in GB (10^9 bytes), as far as it can be measured."""
    found = {}
    if device.startswith("cuda"):
        found["gpu_gb"] = torch.cuda.max_memory_allocated(device) / 1e9
    if sys.platform != "win32":
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        found["process_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
    return {key: round(value, 3) for key, value in found.items()}
