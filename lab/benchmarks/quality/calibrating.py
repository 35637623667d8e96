"""Calibrate a run's adaptive conditions once, on lines of the run; all steps and SEQ_GROUPS share the result."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS

from .adaptive import AdaptivePredictor, Calibration, calibrate, choose_target
from .distance import trace_lines
from .folder import CALIBRATION, RunFolder, read_json, write_json
from .speak import Speaker
from .strategies import Condition, by_predictor

log = logging.getLogger(__name__)

LINES = 8  # the last lines of the run; times and passes are measured on the first
FRAMES = 1024  # upper limit: each frame needs memory for several sets of 15 distributions


@dataclass(frozen=True)
class Calibrated:
    """A run's calibration, and the targets that give a mean of 1..15 passes on the frames it was fitted to."""

    calibration: Calibration
    targets: Sequence[float]

    def predictor(self, model: Model, seq_groups: int) -> AdaptivePredictor:
        """Return a predictor that decodes with a mean of ``seq_groups`` passes."""
        return AdaptivePredictor(model.talker.code_predictor, self.calibration, self.targets[seq_groups - 1])


def calibrate_conditions(
    speaker: Speaker, folder: RunFolder, conditions: Sequence[Condition]
) -> list[Condition]:
    """Return the conditions, with a usable ``start`` in those that need calibration.

    The first call calibrates and stores the result in the folder; a resumed run uses the stored one.
    """
    if not any(condition.strategy.calibrated for condition in conditions):
        return list(conditions)
    path = folder.root / CALIBRATION
    if not path.is_file():
        write_json(path, _calibrate(speaker))
    kept = read_json(path)
    assert kept is not None
    device = speaker.model.device
    offset, slope = (torch.tensor(kept[name], device=device) for name in ("offset", "slope"))
    start = by_predictor(Calibrated(Calibration(offset, slope), kept["targets"]).predictor)
    return [
        replace(condition, strategy=replace(condition.strategy, start=start))
        if condition.strategy.calibrated
        else condition
        for condition in conditions
    ]


def _calibrate(speaker: Speaker) -> dict[str, object]:
    """Decode some lines exactly and fit to their frames; return the JSON to store."""
    traces = trace_lines(speaker, range(len(speaker.tasks))[-LINES:])
    hidden, codes = (
        torch.cat([getattr(one, name) for one in traces])[:FRAMES] for name in ("hidden", "codes")
    )
    calibration, shares = calibrate(speaker.model, hidden, codes, speaker.sampling.subtalker)
    targets = [choose_target(shares, seq_groups) for seq_groups in range(1, PREDICTED_GROUPS + 1)]
    log.info("adaptive: calibrated on %d frames of %d lines", len(codes), len(traces))
    return {
        "lines": len(traces),
        "frames": len(codes),
        "offset": calibration.offset.tolist(),
        "slope": calibration.slope.tolist(),
        "targets": targets,
    }
