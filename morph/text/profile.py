"""How texts are prepared for a checkpoint; ``checkpoint/profile.py`` reads it."""

from __future__ import annotations

from dataclasses import dataclass

from .other_numbers import LANGUAGES

LONGEST_PIECE = (40, 10000)  # characters: smallest and largest allowed value
NORMALIZERS = ("", "en", *LANGUAGES)


@dataclass(frozen=True)
class TextProfile:
    """How texts are prepared for a checkpoint; ValueError names a wrong field."""

    longest_piece: int = 400  # characters, 40 to 10000
    normalize: str = ""  # of NORMALIZERS: write out its numbers and symbols (other than English: numbers)
    hold_end: bool = False  # hold back the end: the checkpoint ends lines too early

    def __post_init__(self) -> None:
        least, most = LONGEST_PIECE
        if type(self.longest_piece) is not int or not least <= self.longest_piece <= most:
            raise ValueError(f"longest_piece is {self.longest_piece!r}: choose {least} to {most}")
        if self.normalize not in NORMALIZERS:
            known = ", ".join(NORMALIZERS[1:])
            raise ValueError(f"normalize is {self.normalize!r}: choose {known}, or null for none")
        if type(self.hold_end) is not bool:
            raise ValueError(f"hold_end is {self.hold_end!r}: choose true or false")
