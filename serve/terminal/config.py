"""What a checkpoint's config says: wrong names are told before its weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CheckpointConfig:
    """A checkpoint that is not loaded.

    Args:
        name: of its folder.
        speakers: its preset speakers, as in ``Model``.
        languages: as in ``Model``.
    """

    name: str
    speakers: tuple[str, ...]
    languages: tuple[str, ...]


def read_config(path: Path) -> CheckpointConfig | None:
    """Return what the config in a checkpoint's folder says; None if it is damaged, which loading it explains."""
    from ...morph.checkpoint.json_file import read_object
    from ...morph.model.model import list_languages

    try:
        talker = read_object(path / "config.json")["talker_config"]
        speakers, languages = talker["spk_id"], talker["codec_language_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(speakers, dict) or not isinstance(languages, dict):
        return None
    return CheckpointConfig(path.resolve().name, tuple(speakers), tuple(list_languages(languages)))
