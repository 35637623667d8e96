"""A checkpoint's config: wrong names are reported before its weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...morph.checkpoint.json_file import read_object
from ...morph.checkpoint.profile import read_alignment
from ...morph.model.names import list_languages
from ...morph.words.head import AlignmentHead, TalkerShape

SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads")  # of the talker


@dataclass(frozen=True)
class CheckpointConfig:
    """A checkpoint that is not loaded: the name of its folder, and fields as in ``Model``."""

    name: str
    speakers: tuple[str, ...]
    languages: tuple[str, ...]
    alignment: AlignmentHead | None = None


def read_config(path: Path) -> CheckpointConfig | None:
    """Return what the config in a checkpoint's folder says; None if it is damaged, which loading it explains."""
    try:
        talker = read_object(path / "config.json")["talker_config"]
        speakers, languages = talker["spk_id"], talker["codec_language_id"]
        shape = TalkerShape(*(talker[name] for name in SHAPE))
        alignment = read_alignment(path, shape)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(speakers, dict) or not isinstance(languages, dict):
        return None
    return CheckpointConfig(path.resolve().name, tuple(speakers), tuple(list_languages(languages)), alignment)
