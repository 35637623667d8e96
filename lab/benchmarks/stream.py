"""Table "stream": lines that are heard while they are made.

    python -m lab.benchmarks.stream --shape demo --device cpu

``first_playable_ms`` is the time from the call to a line's first samples. ``first_audible_ms`` is the time at which a
player that starts with them plays the first 10 ms above -50 dBFS. ``underruns`` counts the chunks, of all lines,
that arrive after such a player has played everything before them, and ``gap_ms`` is the longest silence of a line that
this makes. One reader thread per line takes chunks as they come. Medians of ``--repeats`` runs after two that warm up;
underruns and gaps are those of the worst run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.render.channel import Chunk
from qwen3_tts_morph.morph.render.lines import Line
from qwen3_tts_morph.morph.render.stream import stream_lines
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from .common import ENGINES, TEXT, Measured, Setting, keep, load_muted, make_row, parser, usable_engines
from .results import Row

AUTO = (
    "auto"  # what users get; on a CPU with upstream's codec, which the others of the graph engine do not use
)
AUDIBLE = 10 ** (-50 / 20)
WINDOW = 240  # samples: 10 ms
TOLERANCE_S = 0.001  # of a gap, for the resolution of thread switches


@dataclass(frozen=True)
class Heard:
    """What the reader of one line hears: seconds from the call, and the chunks that come too late."""

    playable_s: float
    audible_s: float
    underruns: int
    gap_s: float


def listen(chunks: Iterable[Chunk], began: float, sample_rate: int) -> Heard:
    """Play a line from its first samples on.

    Raises:
        RuntimeError: for a line without samples.
    """
    playable = audible = None
    played_until, underruns, gap = 0.0, 0, 0.0
    for chunk in chunks:
        now = time.perf_counter() - began
        if not len(chunk.samples):
            continue
        if playable is None:
            playable = played_until = now
        elif now - played_until > TOLERANCE_S:
            underruns, gap = underruns + 1, gap + now - played_until
        start = max(now, played_until)
        if audible is None and (offset := first_audible(chunk.samples)) is not None:
            audible = start + offset / sample_rate
        played_until = start + len(chunk.samples) / sample_rate
    if playable is None:
        raise RuntimeError("a line has no samples: allow more frames")
    return Heard(playable, playable if audible is None else audible, underruns, gap)


def first_audible(samples: np.ndarray) -> int | None:
    """Return the index of the first 10 ms that are louder than AUDIBLE, without their mean, or None."""
    windows = samples[: len(samples) // WINDOW * WINDOW].reshape(-1, WINDOW)
    loud = windows.std(axis=1) > AUDIBLE
    return int(loud.argmax()) * WINDOW if loud.any() else None


def run(synthesizer: Synthesizer, options: GenerateOptions, lines: int) -> tuple[float, list[Heard]]:
    """Stream lines at once; return the seconds for all of them, and what each reader hears."""
    voices = synthesizer.model.speakers
    voice = preset_voice(synthesizer.model, "ryan" if "ryan" in voices else voices[0])
    texts = [Line(TEXT, voice, "english", seed) for seed in range(lines)]
    rate = synthesizer.model.sample_rate
    began = time.perf_counter()
    with stream_lines(synthesizer, texts, options) as stream, ThreadPoolExecutor(lines) as pool:
        heard = list(pool.map(lambda index: listen(stream.line(index), began, rate), range(lines)))
    return time.perf_counter() - began, heard


def measure(model: Model, options: argparse.Namespace, name: str, seq_groups: int, lines: int) -> Row:
    """Measure one engine at one SEQ_GROUPS with this many lines at once."""
    engine = Engine() if name == AUTO else Measured(name)
    synthesizer = Synthesizer(model, engine)
    sampling = Sampling(max_new_tokens=options.frames + 1)
    generate = GenerateOptions(seq_groups, sampling, batch_size=lines, guard=False, retries=0)
    runs = [run(synthesizer, generate, lines) for _ in range(options.repeats + 2)][2:]
    if isinstance(engine, Measured):
        engine.check_ran()
    engine.free()
    every = [one for _, heard in runs for one in heard]
    return make_row(
        Setting("stream", name, seq_groups, lines), options, model,
        1000 * statistics.median(seconds for seconds, _ in runs), [options.frames] * lines,
        first_playable_ms=1000 * statistics.median(one.playable_s for one in every),
        first_audible_ms=1000 * statistics.median(one.audible_s for one in every),
        lines=lines,
        underruns=max(sum(one.underruns for one in heard) for _, heard in runs),
        gap_ms=1000 * max(one.gap_s for one in every),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print and store the table."""
    table = parser(__doc__, frames=60, repeats=5)
    table.add_argument("--seq-groups", type=int, nargs="+", default=(15, 5))
    table.add_argument("--engines", nargs="+", choices=[AUTO, *ENGINES], default=[AUTO])
    table.add_argument(
        "--lines", type=int, nargs="+", default=(1,), help="how many lines are streamed at once"
    )
    options = table.parse_args(arguments)
    model = load_muted(options)
    rows = [
        measure(model, options, name, groups, lines)
        for name in usable_engines(options.engines, model)
        for groups in options.seq_groups
        for lines in options.lines
    ]
    keep(rows, options, model)


if __name__ == "__main__":
    main()
