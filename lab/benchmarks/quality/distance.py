"""How far each group's distribution is from the exact one, teacher-forced on exact lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from qwen3_tts_morph.morph.decode.eager import Experiment, decode
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, GenerateOptions
from qwen3_tts_morph.morph.study.sweep import CHUNK, embed_inputs
from tqdm import tqdm

from .folder import DISTANCES, RunFolder, read_json, write_json
from .speak import Speaker
from .strategies import Condition, exact_distributions


@dataclass(frozen=True)
class Trace:
    """One exact line: the talker's state ``[T, 1, H]`` before each frame, and the frames ``[T, 16]``."""

    hidden: torch.Tensor
    codes: torch.Tensor


@torch.inference_mode()
def trace_lines(speaker: Speaker, lines: Sequence[int]) -> list[Trace]:
    """Decode these lines exactly, in one batch, and keep the states and codes to measure distances on."""
    hidden: list[torch.Tensor] = []
    model = speaker.model
    options = GenerateOptions(PREDICTED_GROUPS, speaker.sampling, batch_size=len(lines))
    experiment = Experiment(observe=lambda states, _: hidden.append(states))
    decoded = decode(model, speaker.requests(lines), options, experiment=experiment)
    states = torch.stack(hidden, dim=1)
    return [
        Trace(states[row, : len(one.codes)], one.codes.to(model.device)) for row, one in enumerate(decoded)
    ]


@torch.inference_mode()
def measure_line(model: Model, trace: Trace, condition: Condition) -> list[float]:
    """Return the total variation distance (0 equal, 1 disjoint) of each of the 15 groups, summed over the frames."""
    distributions = condition.strategy.distributions
    assert distributions is not None
    predictor, sampling = Predictor(model.talker.code_predictor), model.sampling.subtalker
    total = torch.zeros(PREDICTED_GROUPS, dtype=torch.float64)
    for start in range(0, len(trace.codes), CHUNK):
        part = slice(start, start + CHUNK)
        states = predictor.teacher_force(trace.hidden[part], embed_inputs(model, trace.codes[part]))
        codes = trace.codes[part]
        exact = exact_distributions(model, states, codes, PREDICTED_GROUPS, sampling)
        own = distributions(model, states, codes, condition.seq_groups, sampling)
        total += 0.5 * (own - exact).abs().sum(-1).sum(0).double().cpu()
    return total.tolist()


def measure_distances(
    speaker: Speaker, folder: RunFolder, conditions: Sequence[Condition], lines: int
) -> None:
    """Measure all conditions that have distributions on the first ``lines`` lines; write one file per condition."""
    wanted = list(range(min(lines, len(speaker.tasks))))
    missing = []
    for condition in conditions:
        kept = read_json(folder.root / DISTANCES / f"{condition.key}.json")
        if condition.strategy.distributions is not None and (
            kept is None or len(kept["frames"]) < len(wanted)
        ):
            missing.append(condition)
    if not missing:
        return
    traces = trace_lines(speaker, wanted)
    for condition in tqdm(missing, desc="distances", unit="condition"):
        groups = [measure_line(speaker.model, trace, condition) for trace in traces]
        value = {"frames": [len(trace.codes) for trace in traces], "groups": groups}
        write_json(folder.root / DISTANCES / f"{condition.key}.json", value)
