"""Table "training": time and GPU memory of training a voice, by batch and rank.

    python -m lab.benchmarks.training --shape 1.7B --batches 2 8 --steps 40

Noise stands in for the recordings: their lengths decide, not their contents. In GB of 10^9 bytes, by torch's allocator:
``weights_gb`` what the loaded model holds, ``encode_gb`` the most that was allocated while the recordings were encoded,
``peak_gb`` the same of the updates, ``reserved_gb`` the most that was reserved on the device; a process needs its CUDA
context beside that. ``left_gb`` is what stays reserved after the training, beyond what the model held before.
``update_ms`` is the median of the updates after the first, ``check_ms`` the loss of all held-out lines.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import FRAME_RATE, PREDICTED_GROUPS
from qwen3_tts_morph.morph.training.pairs import Example, Pair, make_examples
from qwen3_tts_morph.morph.training.trainer import LAYERS, Trainer, Training
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from .common import TEXT, RowSetting, keep, load_muted, make_row, parser, synchronize, timed_ms
from .results import Row

GB = 1e9
HELD_OUT = 10  # lines


def make_lines(model: Model, count: int, seconds: float) -> tuple[Voice, list[Example]]:
    """Return a cloned voice and ``count`` lines of noise."""
    chance, rate = np.random.default_rng(0), model.sample_rate
    sounds = [0.1 * chance.standard_normal(round(seconds * rate)).astype(np.float32) for _ in range(count)]
    voice = clone_voice(model, sounds[0], rate, CloneOptions("x_vector"))
    pairs = [Pair(f"line {number}", sound, TEXT) for number, sound in enumerate(sounds)]
    return voice, make_examples(model, pairs, voice, "english")


def timed_training(model: Model, options: Training, voice: Voice, lines: Sequence[Example]) -> tuple[float, float]:
    """Train; return the milliseconds of an update and of a check of the held-out lines."""
    ends: list[float] = []

    def note(_step: int) -> None:
        synchronize(model.device)
        ends.append(time.perf_counter())

    with torch.enable_grad():
        trainer = Trainer(model, options, note, voice)
        trainer.train(lines[HELD_OUT:], ())
        update_ms = 1000 * statistics.median(np.diff(ends))
        check_ms, _ = timed_ms(lambda: trainer._check(0, None, lines[:HELD_OUT]), model.device)
    return update_ms, check_ms


def measure(model: Model, options: argparse.Namespace, batch: int, rank: int) -> Row:
    """Measure one training, from the recordings to the weights."""
    on_cuda = model.device.type == "cuda"

    def read(count: Callable[..., int]) -> float | None:
        return count(model.device) / GB if on_cuda else None

    def settle() -> float | None:
        gc.collect()
        if on_cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(model.device)
        return read(torch.cuda.memory_reserved)

    before, weights = settle(), read(torch.cuda.memory_allocated)
    encode_ms, (voice, lines) = timed_ms(lambda: make_lines(model, options.lines, options.seconds), model.device)
    encode = read(torch.cuda.max_memory_allocated)
    settle()
    training = Training(rank=rank, layers=options.layers, steps=options.steps, batch=batch)
    update_ms, check_ms = timed_training(model, training, voice, lines)
    peak, reserved = read(torch.cuda.max_memory_allocated), read(torch.cuda.max_memory_reserved)
    del lines
    after = settle()
    return make_row(
        RowSetting("training", f"torch, {options.layers}, rank {rank}", PREDICTED_GROUPS, batch),
        options, model, update_ms, [round(options.seconds * FRAME_RATE)] * batch,
        update_ms=update_ms, check_ms=check_ms, encode_ms=encode_ms, weights_gb=weights, encode_gb=encode,
        peak_gb=peak, reserved_gb=reserved, left_gb=None if after is None or before is None else after - before,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    table = parser(__doc__, frames=0, repeats=1)
    table.set_defaults(kind="base")
    table.add_argument("--batches", type=int, nargs="+", default=[Training.batch])
    table.add_argument("--ranks", type=int, nargs="+", default=[Training.rank])
    table.add_argument("--layers", choices=LAYERS, default=Training.layers)
    table.add_argument("--steps", type=int, default=40)
    table.add_argument("--lines", type=int, default=30, help=f"the first {HELD_OUT} are held out")
    table.add_argument("--seconds", type=float, default=6.0, help="of each line")
    options = table.parse_args(arguments)
    model = load_muted(options)
    rows = [measure(model, options, batch, rank) for batch in options.batches for rank in options.ranks]
    keep(rows, options, model)


if __name__ == "__main__":
    main()
