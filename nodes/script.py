"""Scripts: Cast and Render Script."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from comfy_api.latest import io

from ..morph.options import GenerateOptions, Sampling
from . import inputs
from .audio_io import to_audio
from .memory import ManagedModel
from .progress import show_progress
from .sockets import CATEGORY, CastSocket

if TYPE_CHECKING:
    from ..morph.voice import Voice

DEFAULTS = GenerateOptions()
NOT_IN_NAMES = ":\uff1a[]#\n\r"  # they have a meaning in scripts
EXAMPLE = """\
# NAME: what the character says. The names come from the Cast nodes.
ANNA: Good morning! Did you sleep at all?
BEN: Not a minute. [pause 0.5]
[seed 7] ANNA: Then let us walk. The rain has stopped.
"""


class Cast(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MorphTTSCast",
            display_name="Cast (Qwen3-TTS)",
            category=CATEGORY,
            description="Gives a character of a script its voice. Chain one node a character.",
            inputs=[
                io.String.Input(
                    "name",
                    default="ANNA",
                    tooltip=(
                        "The character's name as the script writes it, in any case; without : [ ] #. "
                        "Default: ANNA."
                    ),
                ),
                inputs.voice("The character's voice. Required."),
                CastSocket.Input(
                    "cast",
                    optional=True,
                    tooltip="The characters before this one, from another Cast node. Default: none.",
                ),
            ],
            outputs=[
                CastSocket.Output(
                    "larger_cast", display_name="cast", tooltip="The characters so far, with this one."
                )
            ],
        )

    @classmethod
    def validate_inputs(cls, name: str | None) -> bool | str:
        return inputs.refuse(check_character, name)

    @classmethod
    def execute(cls, name: str, voice: Voice, cast: dict[str, Voice] | None = None) -> io.NodeOutput:
        name = check_character(name)
        others = cast or {}
        if name.casefold() in {other.casefold() for other in others}:
            raise ValueError(f"name {name!r} is in the cast already: give every character a name of its own")
        return io.NodeOutput({**others, name: voice})


def check_character(name: str) -> str:
    """Give a character's name back, stripped; ValueError when no script line could name it."""
    name = name.strip()
    if not name:
        raise ValueError("name is empty: type the character's name")
    if any(char in name for char in NOT_IN_NAMES):
        raise ValueError(f"name {name!r} holds one of : [ ] # or a new line: scripts could not name it")
    return name


class RenderScript(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="MorphTTSRenderScript",
            display_name="Render Script (Qwen3-TTS)",
            category=CATEGORY,
            description=(
                "Speaks a script of 'NAME: text' lines, many lines at once. Tags: [pause 0.5], [seed 7], "
                "[lang German], [instruct whispering]; # starts a comment."
            ),
            inputs=[
                inputs.model(),
                CastSocket.Input("cast", tooltip="The characters' voices, from Cast nodes. Required."),
                io.String.Input(
                    "script",
                    multiline=True,
                    default=EXAMPLE,
                    dynamic_prompts=False,
                    tooltip=(
                        "Lines 'NAME: text'. Tags stand in front of a name or a text, or alone on a line "
                        "for all lines below. Default: an example for ANNA and BEN."
                    ),
                ),
                inputs.seq_groups(),
                inputs.seed(
                    "Chance: every line without a [seed] draws its own from this, its name and its text."
                ),
                io.Int.Input(
                    "batch_size",
                    default=DEFAULTS.batch_size,
                    min=1,
                    max=256,
                    tooltip=(
                        "How many lines are decoded together; more is faster and takes more memory. Unit: "
                        f"lines. Default: {DEFAULTS.batch_size}."
                    ),
                ),
                inputs.language(),
                io.Float.Input(
                    "gap",
                    default=0.3,
                    min=0.0,
                    max=60.0,
                    step=0.05,
                    tooltip=(
                        "Silence between lines of the joined track; the script's pauses are added. Unit: "
                        "seconds. Default: 0.3."
                    ),
                ),
                inputs.sampling(),
                inputs.advanced(inputs.decoding()),
            ],
            outputs=[
                io.Audio.Output(
                    "lines",
                    display_name="lines",
                    is_output_list=True,
                    tooltip="Every line by itself, in the script's order: mono, 24 kHz.",
                ),
                io.Audio.Output("audio", display_name="audio", tooltip="All lines joined: mono, 24 kHz."),
                io.String.Output("srt", display_name="srt", tooltip="Subtitles that fit the joined audio."),
                io.String.Output(
                    "report",
                    display_name="report",
                    tooltip="How every line ended, ms a frame and RTF.",
                ),
            ],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def validate_inputs(cls, script: str | None) -> bool | str:
        if script is not None and not script.strip():
            return "script is empty: write lines such as 'NAME: text'"
        return True

    @classmethod
    def execute(
        cls,
        model: ManagedModel,
        cast: dict[str, Voice],
        script: str,
        seq_groups: int,
        seed: int,
        batch_size: int,
        language: str,
        gap: float,
        sampling: Sampling | None = None,
        decoding: str = DEFAULTS.decoding,
    ) -> io.NodeOutput:
        from ..morph.dialogue import render_script
        from ..morph.report import describe

        options = GenerateOptions(seq_groups, sampling, batch_size, decoding=decoding)
        with model.use() as ready, show_progress(cls.hidden.unique_id) as on_frame:
            started = time.perf_counter()
            dialogue = render_script(ready, script, cast, language, seed, options, gap, on_frame)
            report = describe(ready, dialogue.lines, options, time.perf_counter() - started)
        lines = [to_audio(line.waveform, line.sample_rate) for line in dialogue.lines]
        return io.NodeOutput(lines, to_audio(dialogue.joined, dialogue.sample_rate), dialogue.srt, report)
