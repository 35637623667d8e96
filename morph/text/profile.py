"""A checkpoint's settings for text, which ``checkpoint/profile.py`` reads."""

from dataclasses import dataclass

from ..setting import Checked, setting
from .other_numbers import LANGUAGES


@dataclass(frozen=True)
class TextProfile(Checked):
    """How texts are prepared for a checkpoint; ValueError names a wrong field.

    ``longest_piece`` is in characters. ``normalize``: write out its numbers and symbols (other than English: numbers).
    ``hold_end``: hold back the end, because the checkpoint ends lines too early.
    """

    longest_piece: int = setting(400, low=40, high=10000)
    normalize: str = setting("", hint=", or null for none", choices=("", "en", *LANGUAGES))
    hold_end: bool = setting(False)
