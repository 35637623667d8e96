"""The Speed and Pitch node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from comfy_api.latest import io, ui

from ...postprocess.stretch import HIGHEST_SPEED, LOWEST_SPEED, MOST_SEMITONES
from .. import inputs
from ..schema import output, schema
from .audio_io import to_audio, to_waveforms
from .facts import facts_of


class SpeedPitch(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "MorphTTSSpeedPitch",
            inputs=[
                io.Audio.Input("audio"),
                inputs.number("speed", 1.0, (LOWEST_SPEED, HIGHEST_SPEED, 0.01)),
                inputs.number("pitch", 0.0, (-MOST_SEMITONES, MOST_SEMITONES, 0.1)),
            ],
            outputs=[output(io.Audio, "changed", many=True)],
        )

    @classmethod
    def execute(cls, audio: dict[str, Any], speed: float, pitch: float) -> io.NodeOutput:
        from ...postprocess import Stretch, stretch

        by = Stretch(speed, pitch)
        waveforms, rate = to_waveforms(audio), audio["sample_rate"]
        facts = facts_of(audio) if len(waveforms) == 1 else ()
        facts = tuple(replace(one, settings={**one.settings, "changed": [speed, pitch]}) for one in facts)
        made = [stretch(waveform, rate, by) for waveform in waveforms]
        lengths = [
            f"{old.shape[1] / rate:.3f} s became {new.shape[1] / rate:.3f} s"
            for old, new in zip(waveforms, made, strict=True)
        ]
        done = [to_audio(waveform, rate, facts) for waveform in made]
        return io.NodeOutput(done, ui=ui.PreviewText("\n".join(lengths)))
