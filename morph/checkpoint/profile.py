"""Read a checkpoint's text profile: a small ``morph.json`` beside its config.json.

Upstream ignores the file. A checkpoint without one gets the defaults.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from ..text.profile import TextProfile
from .json_file import read_object

FILE = "morph.json"


def read_profile(path: Path) -> TextProfile:
    """Return the profile of a checkpoint folder; the defaults if it has no FILE.

    Raises:
        ValueError: naming the checkpoint and the field, for a damaged file.
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
