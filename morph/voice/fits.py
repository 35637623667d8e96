"""Tell which checkpoints a voice fits, from its fields and a checkpoint's config."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..model.names import KIND_NAMES, SIZE_NAMES
from .voice import NEEDED_TYPE, speakers_of

DEMO_SIZE = "0b02"  # of the checkpoint in the pack


@dataclass(frozen=True)
class Needs:
    """The properties of a checkpoint that a voice needs."""

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
        known = {name.lower() for name in speakers_in(config)}
        return (
            self.size in ("", config.get("tts_model_size"))
            and self.type in ("", config.get("tts_model_type"))
            and {name.lower() for name in self.speakers} <= known
        )


def needs_of(fields: Mapping[str, Any]) -> Needs:
    """Return what a voice with these fields (``read_fields`` or ``vars(voice)``) needs."""
    kind = fields["kind"]
    return Needs(fields["model_size"], NEEDED_TYPE.get(kind, ""), speakers_of(kind, fields["speaker"]))


def speakers_in(config: Mapping[str, Any]) -> list[str]:
    """Return the preset speakers of a checkpoint with this ``config.json``."""
    talker = config.get("talker_config")
    speakers = talker.get("spk_id") if isinstance(talker, dict) else None
    return list(speakers) if isinstance(speakers, dict) else []


def list_presets(configs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the speakers of checkpoints: name, what it fits in words, and the first checkpoint that has it.

    Args:
        configs: of the checkpoints, by their labels.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for label, config in configs.items():
        fits = Needs(str(config.get("tts_model_size")), str(config.get("tts_model_type"))).checkpoint
        for name in speakers_in(config):
            found.setdefault((fits, name.lower()), {"name": name, "fits": fits, "checkpoint": label})
    return list(found.values())
