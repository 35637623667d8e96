"""Generate Speech."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from comfy_api.latest import io

from ..morph.options import GenerateOptions, Sampling
from . import inputs
from .audio_io import to_audio
from .memory import ManagedModel
from .progress import show_progress
from .sockets import CATEGORY

if TYPE_CHECKING:
    from ..morph.voice import Voice

DEFAULTS = GenerateOptions()


class GenerateSpeech(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MorphTTSGenerateSpeech",
            display_name="TTS Generate Speech (text to speech)",
            category=CATEGORY,
            description="Speaks a text with a voice. SEQ_GROUPS trades exactness for speed.",
            inputs=[
                inputs.model(),
                inputs.voice("Who speaks: from Clone, Preset, Design, Blend or Load Voice. Required."),
                inputs.text("Hello! One knob decides how much of my voice is computed step by step."),
                inputs.language(),
                inputs.seq_groups(),
                inputs.seed("Chance: the same seed and inputs give the same speech."),
                inputs.sampling(),
                inputs.advanced(
                    io.Int.Input(
                        "split_chars",
                        default=DEFAULTS.split_chars,
                        min=0,
                        max=10000,
                        step=10,
                        optional=True,
                        tooltip=(
                            "Longer texts are split at sentence ends into pieces of at most this length "
                            "and joined with a crossfade; 0 never splits, otherwise 40 or more. Unit: "
                            f"characters. Default: {DEFAULTS.split_chars}."
                        ),
                    )
                ),
                inputs.advanced(
                    io.Boolean.Input(
                        "guard",
                        default=DEFAULTS.guard,
                        optional=True,
                        tooltip=(
                            "End speech that runs on far beyond its text, or loops; the report says so. "
                            "Default: on."
                        ),
                    )
                ),
                inputs.advanced(inputs.decoding()),
            ],
            outputs=[
                io.Audio.Output("audio", display_name="audio", tooltip="The speech: mono, 24 kHz."),
                io.String.Output(
                    "report",
                    display_name="report",
                    tooltip="Model, SEQ_GROUPS, engine, frames, how the speech ended, ms a frame and RTF.",
                ),
            ],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def validate_inputs(cls, text: str | None) -> bool | str:
        return inputs.refuse(inputs.check_text, text)

    @classmethod
    def execute(
        cls,
        model: ManagedModel,
        voice: Voice,
        text: str,
        language: str,
        seq_groups: int,
        seed: int,
        sampling: Sampling | None = None,
        split_chars: int = DEFAULTS.split_chars,
        guard: bool = DEFAULTS.guard,
        decoding: str = DEFAULTS.decoding,
    ) -> io.NodeOutput:
        from ..morph.render import Line, render_lines
        from ..morph.report import describe

        options = GenerateOptions(
            seq_groups, sampling, guard=guard, split_chars=split_chars, decoding=decoding
        )
        line = Line(text, voice, language, seed)
        with model.use() as ready, show_progress(cls.hidden.unique_id) as on_frame:
            started = time.perf_counter()
            spoken = render_lines(ready, [line], options, on_frame)
            report = describe(ready, spoken, options, time.perf_counter() - started)
        return io.NodeOutput(to_audio(spoken[0].waveform, spoken[0].sample_rate), report)
