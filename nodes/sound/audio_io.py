"""Convert ComfyUI's AUDIO, ``{"waveform": float [B, C, T], "sample_rate": int}``, to and from numpy ``[C, T]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch

if TYPE_CHECKING:
    from .facts import Facts


class Audio(TypedDict, total=False):
    """The value of an AUDIO socket."""

    waveform: torch.Tensor
    sample_rate: int
    morph_speech: tuple[Facts, ...]  # only in the pack's own; see facts.py


def to_waveforms(audio: dict[str, Any]) -> list[np.ndarray]:
    """Return every recording of a batch as float32 ``[C, T]``; ValueError if there is none."""
    if not isinstance(audio, Mapping) or "waveform" not in audio or "sample_rate" not in audio:
        raise ValueError("audio is missing (a video without a sound track has none): connect a recording")
    shape = tuple(audio["waveform"].shape)
    if len(shape) != 3 or 0 in shape:
        raise ValueError(
            f"audio has shape {shape}, but needs [batch, channels, samples], each at least 1: connect a recording"
        )
    return [np.ascontiguousarray(one) for one in audio["waveform"].detach().cpu().float().numpy()]


def to_one_waveform(audio: dict[str, Any], name: str) -> np.ndarray:
    """Return the single recording of an AUDIO as float32 ``[C, T]``; ValueError for a batch of several."""
    waveforms = to_waveforms(audio)
    if len(waveforms) != 1:
        raise ValueError(
            f"{name} is a batch of {len(waveforms)} recordings: connect a single recording, such as one from Load Audio"
        )
    return waveforms[0]


def to_audio(waveform: np.ndarray, sample_rate: int, facts: Sequence[Facts] = ()) -> Audio:
    """Return an AUDIO of one recording, ``[T]`` or ``[C, T]``; ``facts`` are of its lines."""
    channels = np.atleast_2d(np.ascontiguousarray(waveform, dtype=np.float32))
    audio: Audio = {"waveform": torch.from_numpy(channels)[None], "sample_rate": sample_rate}
    if facts:
        audio["morph_speech"] = tuple(facts)
    return audio
