"""The Shift Voice node: a voice with a mood, from the difference of two others."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ...morph.options import SHIFT_STRENGTHS
from ...morph.voice.shift import Shift, shift_voice
from ...morph.voice.voice import Voice
from .. import inputs
from ..models.linked import check_voice
from ..models.memory import ManagedModel
from ..schema import output, schema
from ..sockets import VoiceSocket
from .voices import mixed

SIDES = ("toward", "away")
MORE = (2, 3)  # pairs beside the first


class ShiftVoice(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSShiftVoice",
            inputs=[
                inputs.voice(),
                VoiceSocket.Input("toward"),
                VoiceSocket.Input("away"),
                inputs.number("strength", 1.0, (*SHIFT_STRENGTHS, 0.05)),
                *(VoiceSocket.Input(f"{side}_{number}", optional=True) for number in MORE for side in SIDES),
                inputs.model(optional=True),
            ],
            outputs=[output(VoiceSocket, "made_voice")],
        )

    @classmethod
    def execute(
        cls, voice: Voice, strength: float, model: ManagedModel | None = None, **given: Voice | None
    ) -> io.NodeOutput:
        check_voice(voice)
        toward, away = (connected(side, given) for side in SIDES)
        shift = Shift(toward, away, strength)
        return mixed(model, lambda ready: shift_voice(voice, shift, ready))


def connected(side: str, given: dict[str, Any]) -> list[Voice]:
    """Return the voices of a side, of which the first is required; ValueError for anything else."""
    more = [f"{side}_{number}" for number in MORE]
    names = [side, *(name for name in more if given.get(name) is not None)]
    for name in names:
        check_voice(given.get(name), name)
    return [given[name] for name in names]
