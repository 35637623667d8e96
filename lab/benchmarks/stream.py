"""Table "stream": latency and underruns of streamed lines.

    python -m lab.benchmarks.stream --shape demo --device cpu --repeats 5
    python -m lab.benchmarks.stream --voices x_vector preset icl --repeats 50 --lines 1 8 32 --seconds 60

``first_playable_ms`` is the time from the call to a line's first samples on the host. ``first_audible_ms`` is the time
at which a player that starts with them plays the first 10 ms above -50 dBFS. ``underruns`` counts the chunks, of all
lines, that arrive after such a player has played everything before them, and ``gap_ms`` is the longest single
silence that this causes (in rows before 2026-11-26 the longest sum of a line's silences). One thread reads all lines.
Medians of ``--repeats`` runs after four that warm up (two if lines are 20 s or longer); underruns and gaps are those of
the worst run.

One line, with each of ``--voices``: an ICL voice has 10 s of random codes as its reference, which the warm-up runs have
decoded. Further columns say when a step was reached, all in ms from the call: ``prompt_ms``, the prompt is built and
the engine begins; ``prefill_launched_ms`` (on the host) and ``prefill_done_ms`` (on the device); ``codes_ms``, the host
has the first frame's codes; ``codec_began_ms`` (on the host, perhaps before it has the codes)
and ``codec_done_ms``, of the first chunk, with its copy to the host.

A random checkpoint's tokenizer has a token for every byte; Qwen's has 18 for the benchmark's text. Use ``--characters
18`` to measure voices with the text in their prompt (preset, ICL) as with a published checkpoint.

``--lines``: this many concurrent lines, with the first of the voices. With ``--seconds`` they have this length, in one
run after the warm-up. The table "joins" covers lines that start while others play.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from qwen3_tts_morph.morph.batch.speech import Chunk
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import FRAME_RATE, GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.voice import CODE_GROUPS, Voice

from ..streams import stream_lines
from .audible import first_audible
from .common import (
    ENGINES,
    TEXT,
    NamedEngine,
    RowSetting,
    keep,
    load_muted,
    make_row,
    parser,
    percentile_ms,
    usable_engines,
)
from .results import Row
from .stream_probe import Marks, ProbedEngine, ProbedNamedEngine

# The default of users; on a CPU with upstream's codec, which the other graph engines do not use.
AUTO = "auto"
VOICES = ("preset", "x_vector", "icl")
REFERENCE_FRAMES = 125  # 10 s
TOLERANCE_S = 0.001  # of a gap, for the resolution of thread switches
WARM_UPS = 4
LONG_WARM_UPS = 2  # of long runs: all graphs are captured by the second
LONG = 250  # frames


@dataclass(frozen=True)
class Playback:
    """The playback of one line: seconds from the call, number of late chunks, the longest silence."""

    playable_s: float
    audible_s: float
    underruns: int
    gap_s: float


class Player:
    """Plays a line from its first samples on; ``began`` is the time of its request."""

    def __init__(self, began: float, sample_rate: int):
        self.began = began
        self._sample_rate = sample_rate
        self._playable: float | None = None
        self._audible: float | None = None
        self._played_until, self._underruns, self._gap = 0.0, 0, 0.0

    def add(self, samples: np.ndarray) -> None:
        """Add a chunk that arrives now."""
        now = time.perf_counter()
        if not len(samples):
            return
        if self._playable is None:
            self._playable = self._played_until = now
        elif now - self._played_until > TOLERANCE_S:
            self._underruns, self._gap = self._underruns + 1, max(self._gap, now - self._played_until)
        start = max(now, self._played_until)
        if self._audible is None and (offset := first_audible(samples)) is not None:
            self._audible = start + offset / self._sample_rate
        self._played_until = start + len(samples) / self._sample_rate

    def end(self) -> Playback:
        """Return how the line played.

        Raises:
            RuntimeError: for a line without samples.
        """
        if self._playable is None:
            raise RuntimeError("a line has no samples: allow more frames")
        audible = self._playable if self._audible is None else self._audible
        return Playback(self._playable - self.began, audible - self.began, self._underruns, self._gap)


def listen(chunks: Iterable[Chunk], began: float, sample_rate: int) -> Playback:
    """Play one line; see ``Player``."""
    player = Player(began, sample_rate)
    for chunk in chunks:
        player.add(chunk.samples)
    return player.end()


def make_voice(model: Model, kind: str) -> Voice:
    """Return a preset voice, or one made of random numbers; an ICL voice has a reference of 10 s."""
    if kind == "preset":
        return preset_voice(model, "ryan" if "ryan" in model.speakers else model.speakers[0])
    # No figure depends on the checkpoint's kind, so one random checkpoint serves all voices.
    model.type = "base"
    generator = torch.Generator().manual_seed(0)
    embedding = torch.randn(model.width, generator=generator)
    if kind == "x_vector":
        return Voice("x_vector", model.size, kind, embedding)
    size = int(model.config.talker_config.code_predictor_config.vocab_size)
    codes = torch.randint(size, (REFERENCE_FRAMES, CODE_GROUPS), generator=generator)
    return Voice("icl", model.size, kind, embedding, codes, f"{TEXT} {TEXT}")


@dataclass(frozen=True)
class Case:
    """One row: an engine by its name, SEQ_GROUPS, a voice, concurrent lines, their frames and characters."""

    engine: str
    seq_groups: int
    voice: str
    lines: int = 1
    frames: int = 60
    characters: int = len(TEXT)

    @property
    def options(self) -> GenerateOptions:
        """The options that make lines of exactly these frames."""
        sampling = Sampling(max_new_tokens=self.frames + 1)
        return GenerateOptions(self.seq_groups, sampling, batch_size=self.lines, guard=False, retries=0)


@dataclass(frozen=True)
class Run:
    """One run: seconds for all lines, what their players did, and a line's steps in ms."""

    seconds: float
    playbacks: list[Playback]
    steps: dict[str, float]


def run(synthesizer: Synthesizer, engine: ProbedEngine, case: Case, voice: Voice) -> Run:
    """Stream the lines of a case."""
    texts = [Line(TEXT[: case.characters], voice, "english", seed) for seed in range(case.lines)]
    engine.marks = marks = Marks(synthesizer.model.device) if case.lines == 1 else None
    began = time.perf_counter()
    players = [Player(began, synthesizer.model.sample_rate) for _ in texts]
    with stream_lines(synthesizer, texts, case.options) as stream:
        for chunk in stream:
            players[chunk.line].add(chunk.samples)
    seconds = time.perf_counter() - began
    return Run(seconds, [player.end() for player in players], marks.read() if marks else {})


def measure(model: Model, options: argparse.Namespace, case: Case, repeats: int) -> Row:
    engine = ProbedEngine() if case.engine == AUTO else ProbedNamedEngine(case.engine)
    synthesizer, voice = Synthesizer(model, engine), make_voice(model, case.voice)
    warm_ups = LONG_WARM_UPS if case.frames >= LONG else WARM_UPS
    runs = [run(synthesizer, engine, case, voice) for _ in range(repeats + warm_ups)][warm_ups:]
    if isinstance(engine, NamedEngine):
        engine.check_ran()
    engine.free()
    return make_row(
        RowSetting("stream", case.engine, case.seq_groups, case.lines), options, model,
        1000 * statistics.median(one.seconds for one in runs), [case.frames] * case.lines,
        voice=case.voice, lines=case.lines, seconds=case.frames / FRAME_RATE, characters=case.characters,
        **figures(runs),
    )  # fmt: skip


def figures(runs: Sequence[Run]) -> dict[str, float | None]:
    """Return the figures of a case's runs, by their names in the row."""
    every = [one for run in runs for one in run.playbacks]
    made: dict[str, float | None] = {
        "first_playable_ms": 1000 * statistics.median(one.playable_s for one in every),
        "first_playable_p95_ms": percentile_ms([one.playable_s for one in every], 95),
        "first_audible_ms": 1000 * statistics.median(one.audible_s for one in every),
        "underruns": max(sum(one.underruns for one in run.playbacks) for run in runs),
        "gap_ms": 1000 * max(one.gap_s for one in every),
    }
    steps = [run.steps for run in runs if run.steps]
    names = dict.fromkeys(name for one in steps for name in one)
    return made | {name: statistics.median(one[name] for one in steps) for name in names}


def cases_of(options: argparse.Namespace, engine: str, groups: int) -> list[tuple[Case, int]]:
    """Return the cases of one engine at one SEQ_GROUPS, and how often each is repeated."""
    one = Case(engine, groups, options.voices[0], frames=options.frames, characters=options.characters)
    first = [(replace(one, voice=voice), options.repeats) for voice in options.voices]
    if options.seconds is None:
        return first + [(replace(one, lines=lines), options.repeats) for lines in options.lines if lines > 1]
    frames = round(options.seconds * FRAME_RATE)
    return first + [(replace(one, lines=lines, frames=frames), 1) for lines in options.lines]


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    table = parser(__doc__, frames=60, repeats=5)
    table.add_argument("--seq-groups", type=int, nargs="+", default=(15, 5))
    table.add_argument("--engines", nargs="+", choices=[AUTO, *ENGINES], default=[AUTO])
    table.add_argument("--voices", nargs="+", choices=VOICES, default=VOICES[:1])
    table.add_argument("--lines", type=int, nargs="+", default=(1,), help="how many lines are streamed concurrently")
    table.add_argument(
        "--characters", type=int, default=len(TEXT), help="of the text that is spoken (default %(default)s)"
    )
    table.add_argument("--seconds", type=float, help="length of the concurrent lines")
    return table.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    model = load_muted(options)
    rows = []
    for name in usable_engines(options.engines, model):
        for groups in options.seq_groups:
            for case, repeats in cases_of(options, name, groups):
                rows.append(measure(model, options, case, repeats))
                print(describe(rows[-1]), flush=True)
    keep(rows, options, model)


def describe(row: Row) -> str:
    """Return a row in one line, printed before the table is complete."""
    named = {name: value for name, value in row.details.items() if value is not None}
    values = (f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}" for name, value in named.items())
    return f"{row.engine} S={row.seq_groups} batch {row.batch}: {row.ms_per_frame:.2f} ms/frame, {', '.join(values)}"


if __name__ == "__main__":
    main()
