"""Shift a voice: add a multiple of the difference of two others to its speaker embedding.

"The same speaker angry" minus "the same speaker calm" is a direction in which any voice of that space can move. Other
differences between the two (room, loudness, another speaker) come with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ...postprocess.checks import check_range
from ..model.model import Model
from ..options import SHIFT_STRENGTHS
from .blend import mix_voices, mixed_embedding, named
from .voice import Voice


@dataclass(frozen=True)
class Shift:
    """Where a voice is moved, from the mean of ``away`` to the mean of ``toward``, best of the same speakers.

    ``strength`` multiplies the difference, within SHIFT_STRENGTHS; negative goes the other way. Raises ValueError for
    no voices, or another strength.
    """

    toward: Sequence[Voice]
    away: Sequence[Voice]
    strength: float = 1.0

    def __post_init__(self) -> None:
        if not self.toward or not self.away:
            raise ValueError("a shift needs voices to go toward and voices to go away from: give one of each")
        check_range("strength", self.strength, *SHIFT_STRENGTHS)

    @property
    def recipe(self) -> str:
        """What is added, in words: "+ 1.5 * (Anna angry - Anna calm)"."""
        sign = "-" if self.strength < 0 else "+"
        return f"{sign} {abs(self.strength):g} * ({_mean_of(self.toward)} - {_mean_of(self.away)})"


def shift_voice(voice: Voice, shift: Shift, model: Model | None = None) -> Voice:
    """Return the shifted voice: an x-vector voice or, of presets alone, a "blend"; ``model`` as ``blend_voices``.

    All voices must share one space (``blend.py``); of an ICL voice only the embedding is used. Raises ValueError for
    voices that cannot be mixed, or do not differ.
    """
    toward, away = ([1 / len(side)] * len(side) for side in (shift.toward, shift.away))
    voices = [voice, *shift.toward, *shift.away]
    shares = [1.0, *(shift.strength * one for one in toward), *(-shift.strength * one for one in away)]
    made = mix_voices(voices, shares, f"{named(voice)} {shift.recipe}", model)
    ends = [mixed_embedding(*side, model).float() for side in ((shift.toward, toward), (shift.away, away))]
    if torch.equal(*ends):
        raise ValueError(
            f"{_mean_of(shift.toward)} and {_mean_of(shift.away)} have the same speaker embedding, which an "
            "instruction does not change: give two different voices"
        )
    return replace(made, pronunciation=voice.pronunciation)


def _mean_of(voices: Sequence[Voice]) -> str:
    names = [named(voice) for voice in voices]
    return names[0] if len(names) == 1 else f"mean({', '.join(names)})"
