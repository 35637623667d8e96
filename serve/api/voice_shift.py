"""The field ``voice_shift`` of a request, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...morph.options import SHIFT_STRENGTHS
from .errors import ApiError
from .fields import MOST_SHIFTED

NAME = "voice_shift"


@dataclass(frozen=True)
class VoiceShift:
    """Where a request's voice is moved: names of voices, and how often their difference is added."""

    toward: tuple[str, ...]
    away: tuple[str, ...]
    strength: float = 1.0


def read_shift(fields: Mapping[str, Any]) -> VoiceShift:
    """Return what the object says; ApiError 400 for what is no shift."""
    low, high = SHIFT_STRENGTHS
    strength = fields.get("strength")
    strength = 1.0 if strength is None else strength
    if isinstance(strength, bool) or not isinstance(strength, int | float) or not low <= strength <= high:
        raise ApiError(400, f"strength of {NAME} is {strength!r:.40}: choose {low:g} to {high:g}", NAME)
    return VoiceShift(_names(fields, "toward"), _names(fields, "away"), float(strength))


def _names(fields: Mapping[str, Any], side: str) -> tuple[str, ...]:
    sent = fields.get(side)
    names: list[Any] = [sent] if isinstance(sent, str) else sent if isinstance(sent, list) else []
    known = all(isinstance(name, str) and name.strip() for name in names)
    if not known or not 1 <= len(names) <= MOST_SHIFTED:
        raise ApiError(
            400,
            f"{side} of {NAME} names no voices: send a name, or a list of 1 to {MOST_SHIFTED} names",
            NAME,
        )
    return tuple(names)
