"""Milliseconds a frame of every condition: whole lines at batch 1, prompt included, codec not."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from functools import partial

from qwen3_tts_morph.morph.eager import Decoded
from qwen3_tts_morph.morph.model import Model
from tqdm import tqdm

from ..common import synchronize, timed_ms
from ..results import machine_name
from .folder import TIMES, RunFolder, read_json, write_json
from .speak import Speaker
from .strategies import Condition

WARM_UPS = 2  # lines: kernels met for the first time, captures, compilation


def measure_times(speaker: Speaker, folder: RunFolder, conditions: Sequence[Condition], lines: int) -> None:
    """Time the conditions in turns, so that a slow spell hits all of them; all anew when one was not timed here yet.

    Times are compared with each other, so they are of one session, on one machine.
    Every condition is timed in the eager engine, in which the laboratory decodes; what the product's graph engine
    can run is timed in that too where it is the model's own.
    """
    machine = machine_name(speaker.model.device)
    wanted = min(lines, len(speaker.tasks))
    timed = [condition for condition in conditions if condition.strategy.spoil is None]
    if not wanted or _are_timed(folder, timed, machine, wanted):
        return
    session = datetime.datetime.now(datetime.timezone.utc).isoformat()
    runs = {
        (condition.key, engine): decode
        for condition in timed
        for engine, decode in _engines(speaker, condition).items()
    }
    times: dict[tuple[str, str], list[float]] = {key: [] for key in runs}
    for place in tqdm(range(-WARM_UPS, wanted), desc="times", unit="line"):
        for key, decode in runs.items():
            ms, decoded = timed_ms(partial(decode, max(0, place)), speaker.model.device)
            if place >= 0:
                times[key].append(ms / max(1, len(decoded.codes)))
    for condition in timed:
        own = {engine: values for (key, engine), values in times.items() if key == condition.key}
        write_json(
            folder.root / TIMES / f"{condition.key}.json", {"machine": machine, "session": session, "ms": own}
        )
    speaker.model.engine.free()
    synchronize(speaker.model.device)


def _are_timed(folder: RunFolder, conditions: Sequence[Condition], machine: str, lines: int) -> bool:
    """Whether one session on this machine has timed all of them, on so many lines."""
    kept = [read_json(folder.root / TIMES / f"{condition.key}.json") for condition in conditions]
    sessions = {
        one["session"] if one and one["machine"] == machine and len(one["ms"]["eager"]) >= lines else None
        for one in kept
    }
    return len(sessions) == 1 and None not in sessions


def _engines(speaker: Speaker, condition: Condition) -> dict[str, Callable[[int], Decoded]]:
    """By engine, what decodes one line of this condition."""
    decode = condition.strategy.start(speaker.model, condition.seq_groups)

    def eager(line: int) -> Decoded:
        guards, seeds = speaker.guards([line]), speaker.seeds([line])
        return decode([speaker.prompts[line]], guards, speaker.sampling, seeds, None)[0]

    def graph(line: int) -> Decoded:
        guards, seeds = speaker.guards([line]), speaker.seeds([line])
        model, prompts = speaker.model, [speaker.prompts[line]]
        tail = "stock" if condition.strategy.heads == "stock" else "auto"
        return model.engine.decode_lines(
            model, prompts, guards, condition.seq_groups, speaker.sampling, seeds, tail=tail
        )[0]

    runs: dict[str, Callable[[int], Decoded]] = {"eager": eager}
    if condition.strategy.product and _has_graph(speaker.model):
        runs["graph"] = graph
    return runs


def _has_graph(model: Model) -> bool:
    return model.engine.pick(model)[0] == "graph"
