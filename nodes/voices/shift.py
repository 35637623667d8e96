"""The Shift Voice node: a voice with a mood, from the difference of two others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ...morph.options import SHIFT_STRENGTHS
from .. import inputs
from ..models.linked import check_voice
from ..models.memory import ManagedModel
from ..schema import schema
from ..sockets import VoiceSocket
from .voices import mixed, presets_model, voice_output

if TYPE_CHECKING:
    from ...morph.voice.voice import Voice

SIDES = ("toward", "away")
MORE = (2, 3)  # pairs beside the first


def end_input(side: str, number: int) -> io.Input:
    """Return an optional input of another pair: ``toward_2``, ``away_2`` and so on."""
    return VoiceSocket.Input(
        f"{side}_{number}",
        optional=True,
        tooltip=f"Another such voice; the mean of all {side} voices is taken. Default: none.",
    )


class ShiftVoice(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSShiftVoice",
            "Shift Voice",
            "Gives a voice a mood: adds the difference of two other voices to it, such as a speaker angry less the "
            "same speaker calm. All are cloned or preset voices of one model size. Presets need their checkpoint at "
            "model.",
            inputs=[
                inputs.voice("The voice to shift, cloned or preset. Required."),
                VoiceSocket.Input("toward", tooltip="A voice that has the mood: somebody angry. Required."),
                VoiceSocket.Input(
                    "away", tooltip="One that does not, best of the same speaker: calm. Required."
                ),
                inputs.number(
                    "strength",
                    1.0,
                    (*SHIFT_STRENGTHS, 0.05),
                    "How often the difference is added. 0 changes nothing, below 0 goes the other way; far from 0 the "
                    "voice becomes another, and words go wrong. No unit, -2 to 3. Default: 1.",
                ),
                *(end_input(side, number) for number in MORE for side in SIDES),
                presets_model(),
            ],
            outputs=[
                voice_output(
                    "The shifted voice: x-vector, or, of presets alone, one that checkpoints with these speakers speak."
                )
            ],
        )

    @classmethod
    def execute(
        cls, voice: Voice, strength: float, model: ManagedModel | None = None, **given: Voice | None
    ) -> io.NodeOutput:
        """Shift a voice; ``given``: the voices of both sides, by the names of their inputs."""
        from ...morph.voice.shift import Shift, shift_voice

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
