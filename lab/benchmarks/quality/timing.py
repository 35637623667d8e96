"""Milliseconds per frame of every condition, including the prompt, excluding the codec: complete lines at batch 1.

Where the number of predictor passes varies from frame to frame, passes are counted and batches are timed too.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from qwen3_tts_morph.morph.decode.decoded import Decoded
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.options import GenerateOptions
from tqdm import tqdm

from ..common import synchronize, timed_ms
from ..results import machine_name
from .adaptive import AdaptivePredictor
from .folder import TIMES, RunFolder, read_json, write_json
from .lossless import LosslessPredictor, Tally
from .speak import Speaker
from .strategies import Condition, Decode, PredictorDecode

WARM_UPS = 2  # lines: first use of kernels, captures, compilation
BATCH = 16
BATCHES = 3  # timed, after one warm-up batch

DecodeLines: TypeAlias = Callable[[Sequence[int], Sequence[int]], list[Decoded]]
"""Decodes one batch: indices of lines, and a seed for each."""


class Timed:
    """Timings of one condition on one engine.

    ``ms`` has the milliseconds per frame of each complete batch; ``passes`` has ``[passes, frames]`` of each, where a
    frame of a batch takes the passes of the line that needs most. ``tally`` is the predictor's, if it has one.
    ``before`` is how often a batch is decoded before it is timed.
    """

    def __init__(self, decode: DecodeLines, tally: Tally | None = None, before: int = 0):
        self.decode, self.tally, self.before = decode, tally, before
        self.ms: list[float] = []
        self.passes: list[tuple[int, int]] = []

    def take(self, speaker: Speaker, indices: Sequence[int], keep: bool) -> None:
        """Time a batch of lines; indices beyond the run's lines repeat them with other seeds."""
        lines = [index % len(speaker.tasks) for index in indices]
        offsets = [index // len(speaker.tasks) * len(speaker.tasks) for index in indices]
        seeds = [seed + offset for seed, offset in zip(speaker.seeds(lines), offsets, strict=True)]
        for _ in range(self.before if keep else 0):
            self.decode(lines, seeds)
        passes, frames = (self.tally.passes, self.tally.frames) if self.tally else (0, 0)
        ms, decoded = timed_ms(lambda: self.decode(lines, seeds), speaker.model.device)
        if not keep:
            return
        self.ms.append(ms * len(lines) / max(1, sum(len(one.codes) for one in decoded)))
        if self.tally:
            self.passes.append((self.tally.passes - passes, self.tally.frames - frames))


def measure_times(speaker: Speaker, folder: RunFolder, conditions: Sequence[Condition], lines: int) -> None:
    """Time all conditions if any has not been timed on this machine yet.

    The conditions take turns, so that a slow spell of the machine affects all of them; times are only comparable
    within a session. Every condition is timed on the eager engine, which the lab decodes with; the product's
    strategies are also timed on the graph engine, if the model uses it.
    """
    machine = machine_name(speaker.model.device)
    wanted = min(lines, len(speaker.tasks))
    timed = [condition for condition in conditions if condition.strategy.spoil is None]
    if not wanted or _are_timed(folder, timed, machine, wanted):
        return
    session = datetime.datetime.now(datetime.timezone.utc).isoformat()
    alone = {condition.key: _engines(speaker, condition) for condition in timed}
    batches = {condition.key: _eager(speaker, condition) for condition in _batched(timed)}
    for index in tqdm(range(-WARM_UPS, wanted), desc="times", unit="line"):
        for engines in alone.values():
            for run in engines.values():
                run.take(speaker, [max(0, index)], index >= 0)
    for number in tqdm(range(-1, BATCHES) if batches else [], desc="times of batches", unit="batch"):
        first = BATCH * max(0, number)
        for run in batches.values():
            run.take(speaker, range(first, first + BATCH), number >= 0)
    for key, engines in alone.items():
        value = {"machine": machine, "session": session, **_to_json(engines, batches.get(key))}
        write_json(folder.root / TIMES / f"{key}.json", value)
    speaker.engine.free()
    synchronize(speaker.model.device)


def _to_json(engines: dict[str, Timed], batch: Timed | None) -> dict[str, Any]:
    """Return what ``figures.py`` reads; "passes" is empty if none are counted, "batch" null if none were timed."""
    return {
        "ms": {engine: run.ms for engine, run in engines.items()},
        "passes": engines["eager"].passes,
        "batch": batch and {"lines": BATCH, "ms": batch.ms, "passes": batch.passes},
    }


def _batched(conditions: Sequence[Condition]) -> list[Condition]:
    """Return the conditions to time in batches: those with varying passes, and exact decoding for comparison."""
    if not any(condition.strategy.counts_passes for condition in conditions):
        return []
    return [condition for condition in conditions if condition.strategy.counts_passes or condition.is_exact]


def _are_timed(folder: RunFolder, conditions: Sequence[Condition], machine: str, lines: int) -> bool:
    """Whether one session on this machine has timed them all on ``lines`` lines, and in batches where needed."""
    batched = {condition.key for condition in _batched(conditions)}
    sessions = set()
    for condition in conditions:
        one = read_json(folder.root / TIMES / f"{condition.key}.json")
        if not one or one["machine"] != machine or len(one["ms"]["eager"]) < lines:
            return False
        if condition.key in batched and not one.get("batch"):
            return False
        sessions.add(one["session"])
    return len(sessions) == 1


def _tally_of(decode: Decode) -> Tally:
    """Return the tally of a strategy that ``counts_passes``: its predictor's."""
    assert isinstance(decode, PredictorDecode)
    assert isinstance(decode.predictor, (LosslessPredictor, AdaptivePredictor))
    return decode.predictor.tally


def _eager(speaker: Speaker, condition: Condition) -> Timed:
    """Time the condition as the lab decodes it."""
    decode = condition.strategy.start(speaker.model, condition.seq_groups)

    def run(lines: Sequence[int], seeds: Sequence[int]) -> list[Decoded]:
        prompts = [speaker.prompts[line] for line in lines]
        return decode(prompts, speaker.guards(lines), speaker.sampling, seeds, None)

    return Timed(run, _tally_of(decode) if condition.strategy.counts_passes else None)


def _engines(speaker: Speaker, condition: Condition) -> dict[str, Timed]:
    """Return the timings to take for this condition, by engine."""
    model = speaker.model
    tail = "stock" if condition.strategy.heads == "stock" else "auto"

    def graph(lines: Sequence[int], seeds: Sequence[int]) -> list[Decoded]:
        prompts = [speaker.prompts[line] for line in lines]
        requests = [LineRequest(*line) for line in zip(prompts, speaker.guards(lines), seeds, strict=True)]
        options = GenerateOptions(condition.seq_groups, speaker.sampling, len(lines), tail=tail)
        return speaker.engine.decode(model, requests, options)

    engines = {"eager": _eager(speaker, condition)}
    if condition.strategy.product and _has_graph(speaker):
        # A change of tail frees all graphs: the first decoding after it is not captured, the second captures.
        engines["graph"] = Timed(graph, before=2 if model.device.type == "cuda" else 0)
    return engines


def _has_graph(speaker: Speaker) -> bool:
    return speaker.engine.choose(speaker.model).engine == "graph"
