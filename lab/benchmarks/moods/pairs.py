"""Speak pairs for ``lab.benchmarks.moods`` with the demo voice's teacher (Kokoro-82M): the same speakers, two manners.

    python -m lab.benchmarks.moods.pairs --voices artifacts/corpus/sources/package/voices --out PAIRS

A style of the teacher has the timbre in one half and pitch and rhythm in the other. So one speaker's timbre with the
manner of another voice is the same speaker in another manner. Needs what ``lab/training/corpus`` needs, and the voices
that its command ``fetch`` downloads. Nobody was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...training.corpus.bundle import Packed, Weight

SPEAKERS = (
    "af_kore",
    "af_sarah",
    "am_fenrir",
    "am_puck",
)  # their timbres; none is a preset of the demo voice
TEXTS = (
    "The shop on our street sells the best cheese in town.",
    "He looked at the map for a long time and said nothing.",
    "A strange noise came from the room under the stairs.",
)


@dataclass(frozen=True)
class Manners:
    """A pair: whose pitch and rhythm the speakers have on both sides, and how much of it, 1 being as that voice has it.

    Above 1 it is further from the mean of the voices named.
    """

    toward: Sequence[str]
    away: Sequence[str]


PAIRS: Mapping[str, Manners] = {}


def unpacked(weights: Mapping[str, Weight]) -> dict[str, torch.Tensor]:
    """Return the teacher's published weights as float32."""
    return {
        name: torch.from_numpy(np.ascontiguousarray(one.unpack() if isinstance(one, Packed) else one)).float()
        for name, one in weights.items()
    }
