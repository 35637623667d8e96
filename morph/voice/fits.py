"""Tell which checkpoints a voice fits, from its fields and a checkpoint's config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..model.names import KIND_NAMES, SIZE_NAMES
from .voice import NEEDED_TYPE, speakers_of

DEMO_SIZE = "0b02"  # of the checkpoint in the pack


@dataclass(frozen=True)
class Needs:
    """What a voice needs of a checkpoint."""

    size: str  # upstream's tts_model_size; "" for any
    type: str = ""  # upstream's tts_model_type; "" for any
    speakers: tuple[str, ...] = ()  # presets that the checkpoint must have

    @property
    def checkpoint(self) -> str:
        """The checkpoint's size and kind in words: "0.6B Base", "1.7B", "demo voice"."""
        if not self.size:
            return "any checkpoint"
        if self.size == DEMO_SIZE:
            return "demo voice"
        return " ".join([SIZE_NAMES.get(self.size, self.size), *filter(None, [KIND_NAMES.get(self.type)])])

    def __str__(self) -> str:
        names = " and ".join(self.speakers)
        return f"{self.checkpoint} with {names}" if names else self.checkpoint

    def are_met_by(self, config: Mapping[str, Any]) -> bool:
        talker = config.get("talker_config")
        speakers = talker.get("spk_id") if isinstance(talker, dict) else None
        known = {name.lower() for name in speakers or ()}
        return (
            self.size in ("", config.get("tts_model_size"))
            and self.type in ("", config.get("tts_model_type"))
            and {name.lower() for name in self.speakers} <= known
        )


def needs_of(fields: Mapping[str, Any]) -> Needs:
    """Return what a voice with these fields (``read_fields`` or ``vars(voice)``) needs."""
    kind = fields["kind"]
    return Needs(fields["model_size"], NEEDED_TYPE.get(kind, ""), speakers_of(kind, fields["speaker"]))
