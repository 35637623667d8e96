"""Table "memory": the GPU memory that decoding takes in addition to the weights, at several batch sizes.

    python -m lab.benchmarks.memory --shape 0.6B --frames 125 --repeats 1

In GB of 10^9 bytes, by torch's allocator: ``weights_gb`` talker and codec, ``peak_gb`` the most that was allocated
during decoding and codec, ``reserved_gb`` the most that was reserved on the device (including graph pools and
fragmentation), ``kept_gb`` what remains allocated between two decodings, without the weights, ``after_free_gb`` what
remains of that once the engine is freed, as at an eviction. On the CPU everything but the weights is empty.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch
from qwen3_tts_morph.morph.model.model import Model

from .batches import codec_ms
from .common import (
    ENGINES,
    NamedEngine,
    RowSetting,
    decode_fixed,
    keep,
    load_muted,
    make_row,
    parser,
    timed_ms,
    usable_engines,
)
from .results import Row

GB = 1e9


def measure(model: Model, options: argparse.Namespace, name: str, batch: int) -> Row:
    """Measure three runs of one engine (plain, captured, replayed), and the memory it leaves."""
    on_cuda = model.device.type == "cuda"

    def read(count: Callable[..., int]) -> float | None:
        return count(model.device) / GB if on_cuda else None

    def held() -> float | None:
        allocated = read(torch.cuda.memory_allocated)
        return None if allocated is None else allocated - weights / GB

    engine, weights, frames = NamedEngine(name), model.nbytes, [options.frames] * batch
    if on_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(model.device)
    for _ in range(3):
        ms, decoded = timed_ms(lambda: decode_fixed(engine, model, frames, options.seq_groups, batch), model.device)
        codec_ms(engine, model, decoded)
    peak, reserved = read(torch.cuda.max_memory_allocated), read(torch.cuda.max_memory_reserved)
    kept = held()
    engine.free()
    return make_row(
        RowSetting("memory", name, options.seq_groups, batch), options, model, ms, frames,
        weights_gb=weights / GB, peak_gb=peak, reserved_gb=reserved, kept_gb=kept, after_free_gb=held(),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    table = parser(__doc__, frames=125, repeats=1)
    table.add_argument("--batches", type=int, nargs="+", default=(1, 8, 64))
    table.add_argument("--seq-groups", type=int, default=15)
    table.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    options = table.parse_args(arguments)
    model = load_muted(options)
    names = usable_engines(options.engines, model)
    rows = [measure(model, options, name, batch) for name in names for batch in options.batches]
    keep(rows, options, model)


if __name__ == "__main__":
    main()
