"""The pitch of a voice, by autocorrelation below 1 kHz."""

from __future__ import annotations

from dataclasses import dataclass

import torch

SAMPLE_RATE = 24000
PITCH = (60.0, 400.0)  # Hz
PITCH_BAND = (50.0, 1000.0)
VOICED = 0.85  # autocorrelation of a voiced frame below 1 kHz
QUIET = 0.1  # of a crop's loudest frame's amplitude: frames below are left out
FRAME, HOP = 720, 480  # samples: 30 and 20 ms


@dataclass(frozen=True)
class Pitch:
    """Per frame of each crop ``[B, frames]``: the lag in samples, and whether the frame is voiced."""

    lags: torch.Tensor
    voiced: torch.Tensor


def in_band(wave: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Return ``[B, T]``, band-passed from ``low`` to ``high`` Hz."""
    spectrum = torch.fft.rfft(wave.float())
    hertz = torch.fft.rfftfreq(wave.shape[-1], 1 / SAMPLE_RATE, device=wave.device)
    return torch.fft.irfft(spectrum * ((hertz >= low) & (hertz < high)), wave.shape[-1])


def _autocorrelation(wave: torch.Tensor, longest: int) -> torch.Tensor:
    """Return the normalised autocorrelation ``[B, frames, longest + 1]`` of ``[B, T]``, a frame and the shifted one."""
    size = FRAME + longest
    whole = wave.unfold(1, size, HOP)
    spectra = [torch.fft.rfft(part, size) for part in (whole[..., :FRAME], whole)]
    products = torch.fft.irfft(spectra[0].conj() * spectra[1], size)[..., : longest + 1]
    sums = torch.nn.functional.pad(whole.double().square().cumsum(-1), (1, 0))
    energy = (sums[..., FRAME:] - sums[..., : longest + 1]).float()
    return products / (energy * energy[..., :1]).clamp(min=1e-12).sqrt()


@torch.no_grad()
def pitch_of(wave: torch.Tensor) -> Pitch:
    """Return the pitch of recordings ``[B, T]``: the shortest lag whose autocorrelation is nearly the highest."""
    low = in_band(wave, *PITCH_BAND)
    longest, shortest = (round(SAMPLE_RATE / hertz) for hertz in PITCH)
    found = _autocorrelation(low, longest)[..., shortest:]
    best = found.max(-1, keepdim=True).values
    inner = torch.zeros_like(found, dtype=torch.bool)
    inner[..., 1:-1] = (found[..., 1:-1] >= found[..., :-2]) & (found[..., 1:-1] >= found[..., 2:])
    chosen = (inner & (found >= 0.95 * best)).int().argmax(-1)
    energy = low.unfold(1, FRAME + longest, HOP)[..., :FRAME].square().mean(-1).sqrt()
    loud = energy > QUIET * energy.amax(1, keepdim=True)
    right = found.gather(-1, chosen[..., None])[..., 0]
    return Pitch(chosen + shortest, (right > VOICED) & loud)
