"""Helpers of all tables: command line, a model that never ends a line, timing, and lines of a fixed length.

Full-size random weights have the shapes and kernels of the published checkpoints; their speech is noise. The shape
"demo" is the voice included in the pack, with its own weights. EOS is muted so that all runs have equal frame counts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.checkpoint.load import choose_dtype, load_model
from qwen3_tts_morph.morph.decode.rows import Decoded, Guard, LineRequest
from qwen3_tts_morph.morph.kernels import available
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import (
    FRAME_RATE,
    PRECISIONS,
    WEIGHTS,
    GenerateOptions,
    LoadOptions,
    Sampling,
    TokenSampling,
)
from qwen3_tts_morph.morph.runtime.capture import Fallback
from qwen3_tts_morph.morph.synthesizer import Engine
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.prompt import Prompt, PromptBuilder

from ..random_checkpoint import SHAPES, write_checkpoint
from .origin import add_output
from .results import Row, markdown, save_rows

ENGINES = ("kernels", "graph", "eager")
DEMO = "demo"
TEXT = "The quick brown fox jumps over the lazy dog, and then it thinks better of it."
FRAME_S = 0.08


class NamedEngine(Engine):
    """An engine by its name in the rows.

    "eager"; "graph", the graph engine with torch operations; "kernels", the graph engine with Triton kernels for its
    frames. The latter two use the batch codec.
    """

    def __init__(self, name: str):
        super().__init__("eager" if name == "eager" else "graph", kernels=name == "kernels")
        self.name = name

    def check_ran(self) -> None:
        """Raise RuntimeError if this should have run Triton kernels but ran torch operations."""
        check_kernels_ran(self.name, self._graphs.frames.fallback)


def check_kernels_ran(name: str, fallback: Fallback | None) -> None:
    """Raise RuntimeError if an engine of this name should have run Triton kernels but ran torch operations."""
    if name == "kernels" and fallback is not None:
        raise RuntimeError(f"kernels were to be measured, but torch operations ran: {fallback.why}")


def usable_engines(names: Sequence[str], model: Model) -> list[str]:
    """Return the engines that can run a model on its device; print why if kernels cannot."""
    why = available(model.device) if "kernels" in names else None
    if why is not None:
        print(f"kernels are not measured: {why}", flush=True)
    return [name for name in names if name != "kernels" or why is None]


def parser(doc: str | None, frames: int, repeats: int) -> argparse.ArgumentParser:
    """Return a parser with the options of every table, and the table's own defaults."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--shape", choices=[*sorted(SHAPES), DEMO], default="0.6B")
    made.set_defaults(kind="custom_voice")  # of random weights
    made.add_argument("--frames", type=int, default=frames)
    made.add_argument("--repeats", type=int, default=repeats)
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    made.add_argument("--attention", default="sdpa", help="attention of the eager engine")
    made.add_argument("--precision", choices=PRECISIONS, default="auto")
    made.add_argument("--weights", choices=WEIGHTS, default="full")
    made.add_argument("--checkpoints", type=Path, help="folder that keeps the random checkpoints between runs")
    add_output(made)
    return made


def load_muted(options: argparse.Namespace) -> Model:
    """Load a model of ``options.shape`` that never ends a line."""
    model = _load(demo_voice(), options) if options.shape == DEMO else _load_random(options)
    config, rows = model.config.talker_config, model.talker.codec_head.weight.data
    # In trained weights the logit of the pad token, which no line contained, is far below those of sampled tokens.
    rows[config.codec_eos_token_id] = rows[config.codec_pad_id] if options.shape == DEMO else 0
    return model


def _load_random(options: argparse.Namespace) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        name = options.shape if options.kind == "custom_voice" else f"{options.shape}_{options.kind}"
        path = (options.checkpoints or Path(folder)) / name
        if not path.is_dir():
            unfinished = path.with_name(f"{path.name}.{os.getpid()}")
            write_checkpoint(unfinished, options.shape, options.kind, dtype=torch.bfloat16).rename(path)
        return _load(path, options)


def _load(path: Path, options: argparse.Namespace) -> Model:
    loading = LoadOptions(options.precision, options.attention, weights=options.weights)
    return load_model(path, loading, torch.device(options.device))


def make_prompt(model: Model) -> Prompt:
    """Build the prompt that all lines use."""
    name = "ryan" if "ryan" in model.speakers else model.speakers[0]
    return PromptBuilder(model).build(TEXT, preset_voice(model, name), "english")


def decode_fixed(
    engine: NamedEngine, model: Model, frames: Sequence[int], seq_groups: int, batch: int = 1
) -> list[Decoded]:
    """Decode one line for each number of frames, with the line's index as its seed.

    Raises:
        RuntimeError: a line ended early, which would make the times too good, or another engine ran.
    """
    prompt = make_prompt(model)
    lines = [LineRequest(prompt, Guard(count, detect_loops=False), seed) for seed, count in enumerate(frames)]
    decoded = engine.decode(model, lines, GenerateOptions(seq_groups, batch_size=batch))
    engine.check_ran()
    made = [len(one.codes) for one in decoded]
    if made != list(frames):
        raise RuntimeError(f"lines of {list(frames)} frames were requested, but {made} were made")
    return decoded


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed_ms(action: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Return the wall-clock milliseconds of an action, with the device idle before and after, and its result."""
    synchronize(device)
    started = time.perf_counter()
    result = action()
    synchronize(device)
    return 1000 * (time.perf_counter() - started), result


def frame_ms(run: Callable[[Sampling], torch.Tensor], sampling: Sampling, device: torch.device) -> float:
    """Return milliseconds per frame: a full run minus a run of one frame, which excludes the prefill."""
    whole, codes = timed_ms(lambda: run(sampling), device)
    short, one = timed_ms(lambda: run(replace(sampling, max_new_tokens=2)), device)
    return (whole - short) / (len(codes) - len(one))


def greedy(sampling: Sampling) -> Sampling:
    return replace(sampling, talker=TokenSampling(do_sample=False), subtalker=TokenSampling(do_sample=False))


def fixed_length(model: Model, frames: int) -> Sampling:
    """Return the checkpoint's sampling with a limit: a model that never ends a line makes exactly that many frames."""
    return replace(model.sampling, max_new_tokens=frames + 1, max_seconds=frames / FRAME_RATE)


def percentile_ms(seconds: Sequence[float], percent: float) -> float | None:
    """Return a percentile of times in milliseconds, or None without times."""
    return 1000 * float(np.percentile(seconds, percent)) if seconds else None


def precision_of(model: Model) -> str:
    """Return the precision as in the rows: "int8" means INT8 weights with the activations that "auto" selects."""
    precision = str(model.dtype).removeprefix("torch.")
    if model.weights == "full":
        return precision
    return "int8" if model.dtype == choose_dtype("auto", model.device) else f"int8, {precision}"


@dataclass(frozen=True)
class RowSetting:
    """The table of a row, the engine, SEQ_GROUPS and the batch size."""

    table: str
    engine: str
    seq_groups: int
    batch: int = 1


def make_row(
    setting: RowSetting,
    options: argparse.Namespace,
    model: Model,
    ms: float,
    frames: Sequence[int],
    **details: float | str | None,
) -> Row:
    """Return a row of our system: lines of these lengths in ``frames`` took ``ms`` together."""
    audio_s = FRAME_S * sum(frames)
    return Row(
        setting.table,
        "morph",
        options.shape,
        setting.engine,
        precision_of(model),
        setting.seq_groups,
        setting.batch,
        round(ms * setting.batch / sum(frames), 3),
        round(1000 * audio_s / ms, 3),
        round(ms / 1000 / audio_s, 5),
        {name: round(value, 3) if isinstance(value, (int, float)) else value for name, value in details.items()},
    )


def keep(rows: Sequence[Row], options: argparse.Namespace, model: Model) -> None:
    """Print the table and add it to the machine's file."""
    path = save_rows(rows, model.device, options)
    print(
        f"{model.summary()}, {options.frames} frames, median of {options.repeats}\n\n{markdown(rows)}"
        f"\n\nwritten to {path}"
    )
