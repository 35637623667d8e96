"""What a checkpoint says about speaking with it: a small ``morph.json`` beside its config.json.

Upstream ignores the file, and a checkpoint without one takes the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from ..checkpoint.json_file import read_object

FILE = "morph.json"
LONGEST_PIECE = (40, 10000)  # least and most
NORMALIZERS = ("", "en")


@dataclass(frozen=True)
class TextProfile:
    """How texts are prepared for a checkpoint.

    Args:
        longest_piece: longer texts are split into pieces of at most this many characters, 40 to 10000.
        normalize: the language whose numbers and signs are written out as words first, one of NORMALIZERS; "" none.
        hold_end: whether the checkpoint tends to end a line too early, so that its end has to be held back.

    Raises:
        ValueError: naming the field.
    """

    longest_piece: int = 400
    normalize: str = ""
    hold_end: bool = False

    def __post_init__(self) -> None:
        least, most = LONGEST_PIECE
        if type(self.longest_piece) is not int or not least <= self.longest_piece <= most:
            raise ValueError(f"longest_piece is {self.longest_piece!r}: choose {least} to {most}")
        if self.normalize not in NORMALIZERS:
            raise ValueError(f'normalize is {self.normalize!r}: choose "en", or null for none')
        if type(self.hold_end) is not bool:
            raise ValueError(f"hold_end is {self.hold_end!r}: choose true or false")


def read_profile(path: Path) -> TextProfile:
    """Give the profile of a checkpoint folder: the defaults where it has no FILE.

    Raises:
        ValueError: naming the checkpoint and the field, for a file that is damaged.
    """
    file = path / FILE
    try:
        if not file.exists():
            return TextProfile()
        given = read_object(file)
        unknown = sorted(given.keys() - {field.name for field in fields(TextProfile)})
        if unknown:
            raise ValueError(f"{unknown[0]!r} is unknown")
        if given.get("normalize", "") is None:
            given["normalize"] = ""
        return TextProfile(**given)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"checkpoint {path.name} has a damaged {FILE} ({error}): correct it, or delete it for the defaults"
        ) from error
