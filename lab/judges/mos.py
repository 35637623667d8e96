"""Predicted opinion scores: DistillMOS (sensitive to coding noise) and DNSMOS (sensitive to background noise).

Both judge 16 kHz audio, so nothing above 8 kHz.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from .clips import JUDGE_RATE


@dataclass(frozen=True)
class Opinion:
    """Scores of one line, 1 (bad) to 5 (excellent)."""

    distillmos: float
    dnsmos_overall: float
    dnsmos_signal: float
    dnsmos_background: float


@contextmanager
def _without_torchaudio() -> Iterator[None]:
    """Let DistillMOS import without torchaudio, two of whose classes it names but does not use here."""
    if importlib.util.find_spec("torchaudio") is not None:
        yield
        return
    package, transforms = ModuleType("torchaudio"), ModuleType("torchaudio.transforms")
    transforms.MFCC = transforms.Resample = object  # type: ignore[attr-defined]
    package.transforms = transforms  # type: ignore[attr-defined]
    sys.modules |= {"torchaudio": package, "torchaudio.transforms": transforms}
    try:
        yield
    finally:
        del sys.modules["torchaudio"], sys.modules["torchaudio.transforms"]


class OpinionJudge:
    """Both predictors, on the CPU."""

    def __init__(self) -> None:
        with _without_torchaudio():
            from distillmos import ConvTransformerSQAModel
        from speechmos import dnsmos

        self._distillmos: Any = ConvTransformerSQAModel().eval()
        self._dnsmos: Any = dnsmos

    @torch.inference_mode()
    def distillmos(self, audio: np.ndarray) -> float:
        """Score 16 kHz audio by DistillMOS alone, which takes a fraction of the time."""
        return float(self._distillmos(torch.from_numpy(audio)[None]))

    def judge(self, audio: np.ndarray) -> Opinion:
        """Score 16 kHz audio. For DNSMOS its peak is set to 0.9, so that loudness does not count."""
        distilled = self.distillmos(audio)
        scores = self._dnsmos.run(audio / max(1e-6, float(np.abs(audio).max())) * 0.9, JUDGE_RATE)
        return Opinion(distilled, *(float(scores[key]) for key in ("ovrl_mos", "sig_mos", "bak_mos")))
