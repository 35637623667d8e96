"""ComfyUI's AUDIO, ``{"waveform": float [B, C, T], "sample_rate": int}``, to and from numpy ``[C, T]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np
import torch


class Audio(TypedDict):
    """What an AUDIO socket carries."""

    waveform: torch.Tensor
    sample_rate: int


def to_waveforms(audio: dict[str, Any]) -> list[np.ndarray]:
    """Every recording of a batch, float32 ``[C, T]``; ValueError when it holds none."""
    if not isinstance(audio, Mapping) or "waveform" not in audio or "sample_rate" not in audio:
        raise ValueError(
            "audio carries no sound (a video without a sound track gives none): connect a recording"
        )
    shape = tuple(audio["waveform"].shape)
    if len(shape) != 3 or 0 in shape:
        raise ValueError(
            f"audio has the shape {shape} instead of [batch, channels, samples], none of them 0: connect a recording"
        )
    return [np.ascontiguousarray(one) for one in audio["waveform"].detach().cpu().float().numpy()]


def to_one_waveform(audio: dict[str, Any], name: str) -> np.ndarray:
    """The only recording of an AUDIO, float32 ``[C, T]``; ValueError when it is a batch."""
    waveforms = to_waveforms(audio)
    if len(waveforms) != 1:
        raise ValueError(
            f"{name} is a batch of {len(waveforms)} recordings: connect one recording (Load Audio gives one)"
        )
    return waveforms[0]


def to_audio(waveform: np.ndarray, sample_rate: int) -> Audio:
    """An AUDIO of one recording, from ``[T]`` or ``[C, T]``."""
    channels = np.atleast_2d(np.ascontiguousarray(waveform, dtype=np.float32))
    return {"waveform": torch.from_numpy(channels)[None], "sample_rate": sample_rate}
