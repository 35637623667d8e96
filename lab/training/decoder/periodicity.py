"""How periodic voiced speech is in a band: hoarseness, which log mel distances hardly hear.

In frames where the recording is voiced, the decoded speech's normalised autocorrelation at the recording's pitch lag,
band by band. Recordings of the teacher have 0.50 between 1 and 2 kHz; noise has 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..codec.config import SAMPLE_RATE

BANDS = ((1000.0, 2000.0), (2000.0, 4000.0))
PITCH = (60.0, 400.0)  # Hz
PITCH_BAND = (50.0, 1000.0)
VOICED = 0.85  # autocorrelation of a voiced frame below 1 kHz
QUIET = 0.1  # of a crop's loudest frame's amplitude: frames below are left out
FRAME, HOP = 960, 480  # samples: 40 and 20 ms


@dataclass(frozen=True)
class Pitch:
    """Per frame of each crop ``[B, frames]``: the lag in samples, and whether the frame is voiced."""

    lags: torch.Tensor
    voiced: torch.Tensor


def in_band(wave: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Return ``[B, T]`` with nothing outside ``low`` to ``high`` Hz."""
    spectrum = torch.fft.rfft(wave.float())
    hertz = torch.fft.rfftfreq(wave.shape[-1], 1 / SAMPLE_RATE, device=wave.device)
    return torch.fft.irfft(spectrum * ((hertz >= low) & (hertz < high)), wave.shape[-1])


def _autocorrelation(wave: torch.Tensor, lags: torch.Tensor) -> torch.Tensor:
    """Return the normalised autocorrelation ``[B, frames, len(lags)]`` of ``[B, T]``, frame and shifted frame."""
    longest = int(lags.max())
    frames = wave.unfold(1, FRAME + longest, HOP)
    first = frames[..., :FRAME]
    found = []
    for lag in lags.tolist():
        second = frames[..., lag : lag + FRAME]
        size = (first.square().sum(-1) * second.square().sum(-1) + 1e-12).sqrt()
        found.append((first * second).sum(-1) / size)
    return torch.stack(found, dim=-1)


@torch.no_grad()
def pitch_of(wave: torch.Tensor) -> Pitch:
    """Return the pitch of recordings ``[B, T]``: the shortest lag whose autocorrelation is nearly the highest."""
    low = in_band(wave, *PITCH_BAND)
    lags = torch.arange(round(SAMPLE_RATE / PITCH[1]), round(SAMPLE_RATE / PITCH[0]) + 1, device=wave.device)
    found = _autocorrelation(low, lags)
    best = found.max(-1, keepdim=True).values
    inner = torch.zeros_like(found, dtype=torch.bool)
    inner[..., 1:-1] = (found[..., 1:-1] >= found[..., :-2]) & (found[..., 1:-1] >= found[..., 2:])
    chosen = (inner & (found >= 0.95 * best)).int().argmax(-1)
    energy = low.unfold(1, FRAME + int(lags.max()), HOP)[..., :FRAME].square().mean(-1).sqrt()
    loud = energy > QUIET * energy.amax(1, keepdim=True)
    right = found.gather(-1, chosen[..., None])[..., 0]
    return Pitch(lags[chosen], (right > VOICED) & loud)


@torch.no_grad()
def periodicity(
    wave: torch.Tensor, pitch: Pitch, bands: Sequence[tuple[float, float]] = BANDS
) -> dict[str, float]:
    """Return the mean over voiced frames, by band ("periodicity 1-2 kHz"), of ``[B, T]`` cut as the recordings were."""
    rows, frames = pitch.voiced.nonzero(as_tuple=True)
    lags = pitch.lags[rows, frames]
    found = {}
    for low, high in bands:
        part = in_band(wave, low, high)
        inside = torch.arange(FRAME, device=wave.device) + (frames * HOP)[:, None]
        first, second = (part[rows[:, None], inside + shift] for shift in (0, lags[:, None]))
        size = (first.square().sum(-1) * second.square().sum(-1) + 1e-12).sqrt()
        name = f"periodicity {low / 1000:g}-{high / 1000:g} kHz"
        found[name] = float(((first * second).sum(-1) / size).mean()) if len(rows) else 0.0
    return found
