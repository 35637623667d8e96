"""Random windows of stretches; a step's batch depends only on the seed and the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..codec.config import GROUPS, SAMPLES_PER_FRAME
from ..codec.data import send
from .config import Windows
from .stretches import Stretches


class Batch(NamedTuple):
    """Windows of equal length.

    Args:
        codes: ``[B, frames, 16]``.
        wave: recordings of the judged samples, float32 ``[B, judged]``.
        offsets: ``[B]``, the frame at which the fast layers begin.
        groups: ``[B]``, how many groups to decode with.
    """

    codes: torch.Tensor
    wave: torch.Tensor
    offsets: torch.Tensor
    groups: torch.Tensor


@dataclass(frozen=True)
class Places:
    """Frames at which a window may begin: ``any`` within a stretch, ``first`` of one; both int64, on the CPU."""

    any: torch.Tensor
    first: torch.Tensor


def places_of(starts: torch.Tensor, frames: int) -> Places:
    """Return where windows of ``frames`` frames fit; raises ValueError if they fit nowhere."""
    lengths = starts.diff()
    long = lengths >= frames
    if not long.any():
        raise ValueError(f"no stretch has {frames} frames: join more lines, or shorten the windows")
    runs = [
        torch.arange(int(start), int(start) + int(length) - frames + 1)
        for start, length in zip(starts[:-1][long], lengths[long], strict=True)
    ]
    return Places(torch.cat(runs), starts[:-1][long])


def sample_batch(speech: Stretches, places: Places, options: Windows, seed: int, step: int) -> Batch:
    """Return the batch of a step, on the speech's device."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    count, last = options.count, options.frames - options.decoded
    at = places.any[torch.randint(len(places.any), (count,), generator=generator)]
    first = places.first[torch.randint(len(places.first), (count,), generator=generator)]
    cold = torch.rand(count, generator=generator) < options.cold
    anywhere = (torch.rand(count, generator=generator) * 2 * (last + 1) - last - 1).long().clamp(min=0)
    at = torch.where(cold, first, at)
    offsets = torch.where(cold, anywhere, torch.full_like(anywhere, last))
    some = torch.randint(1, GROUPS, (count,), generator=generator)
    dropped = torch.rand(count, generator=generator) < options.dropout
    groups = torch.where(dropped, some, torch.full_like(some, GROUPS))
    return _cut(speech, at, offsets, groups, options)


def _cut(
    speech: Stretches, at: torch.Tensor, offsets: torch.Tensor, groups: torch.Tensor, options: Windows
) -> Batch:
    device = speech.audio.device
    begin = judged_from(offsets, options) + (at + offsets) * SAMPLES_PER_FRAME
    at, begin, offsets, groups = (send(tensor, device) for tensor in (at, begin, offsets, groups))
    codes = speech.codes[at[:, None] + torch.arange(options.frames, device=device)].long()
    wave = speech.audio[begin[:, None] + torch.arange(options.judged, device=device)].float() / 32768
    return Batch(codes, wave, offsets, groups)


def judged_from(offsets: torch.Tensor, options: Windows) -> torch.Tensor:
    """Return the first judged sample of what the fast layers decode, ``[B]``."""
    late = options.decoded * SAMPLES_PER_FRAME - options.judged
    return torch.where(offsets == 0, torch.zeros_like(offsets), torch.full_like(offsets, late))


def judged_part(wave: torch.Tensor, offsets: torch.Tensor, options: Windows) -> torch.Tensor:
    """Cut the judged samples ``[B, judged]`` out of decoded windows ``[B, decoded * 1920]``."""
    early, late = wave[:, : options.judged], wave[:, -options.judged :]
    return torch.where((offsets == 0)[:, None], early, late)


def held_out(speech: Stretches, frames: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return evenly spaced crops: codes ``[count, frames, 16]`` and recordings float32 ``[count, frames * 1920]``."""
    fit = places_of(speech.starts, frames).first
    at = fit[torch.linspace(0, len(fit) - 1, min(count, len(fit))).long()].to(speech.codes.device)
    codes = speech.codes[at[:, None] + torch.arange(frames, device=at.device)].long()
    samples = torch.arange(frames * SAMPLES_PER_FRAME, device=at.device)
    return codes, speech.audio[at[:, None] * SAMPLES_PER_FRAME + samples].float() / 32768
