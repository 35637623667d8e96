"""The rows of the paper's ablation that the product does not have, as strategies of the study."""

from __future__ import annotations

import numpy as np
import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import TokenSampling
from qwen3_tts_morph.postprocess import LowPass, low_pass, normalize_peak

from .paper_predictors import Chunked, Compiled, Refined, TightLoop, chunk_sources
from .strategies import Strategy, by_predictor, crossbar_distributions, from_states, own_predictor
from .upstream import start_upstream

FILTER = LowPass(order=2, cutoff_hz=11000.0)
PEAK_DB = 20 * float(np.log10(0.707))


def smooth(waveform: np.ndarray, sample_rate: int) -> np.ndarray:
    """The paper's post-processing: a second-order Butterworth low-pass at 11 kHz, then a peak of 0.707."""
    return normalize_peak(low_pass(waveform, sample_rate, FILTER), PEAK_DB)


def chunk_distributions(
    model: Model, states: torch.Tensor, inputs: torch.Tensor, seq_groups: int, sampling: TokenSampling
) -> torch.Tensor:
    """Predict each chunk from the state before it."""
    return from_states(model, states, chunk_sources(), sampling)


ABLATION = (
    Strategy(
        "upstream",
        "qwen_tts's own generate() throughout; it has one random stream per batch, so the same seed is another take",
        start_upstream,
        groups=(15,),
    ),
    Strategy(
        "tight-loop",
        "a loop over upstream's code_predictor.forward in place of generate(), nothing precomputed",
        by_predictor(lambda model, _: TightLoop(model.talker.code_predictor)),
        groups=(15,),
    ),
    Strategy(
        "compiled",
        "the morph predictor with 15 groups, compiled by torch.compile",
        by_predictor(lambda model, _: Compiled(model)),
        groups=(15,),
    ),
    Strategy(
        "refined",
        "a crossbar draft of all groups, then 5 non-causal rounds restricted to 64 candidate tokens per group",
        by_predictor(lambda model, _: Refined(model)),
        groups=(1,),
    ),
    Strategy(
        "chunked",
        "five passes, each predicting three groups",
        by_predictor(lambda model, _: Chunked(model)),
        groups=(5,),
        distributions=chunk_distributions,
    ),
    Strategy(
        "filtered",
        "the product's decoding, then the Butterworth low-pass at 11 kHz and a peak of 0.707",
        by_predictor(own_predictor),
        distributions=crossbar_distributions,
        finish=smooth,
        product=True,
    ),
)
