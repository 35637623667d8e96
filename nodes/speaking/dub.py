"""The Dub Captions node."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from comfy_api.latest import io

from ...morph.options import FitLimits
from ...morph.runtime.whole_file import FileState
from ...morph.text.names import name_key
from ...morph.text.scripts.captions import read_captions
from ...morph.text.scripts.script import NARRATOR
from ...morph.voice.voice import Voice
from .. import inputs
from ..models.memory import check_cast, check_voice
from ..page.clips import show
from ..schema import VoiceSocket, output
from ..sound.values import to_audio
from .characters import find_characters, saved_states
from .common import SpeakingNode, speaking_schema
from .pronunciation import lists_of

LATER, OVER = OVERLAPS = ("move later", "speak over the next")
EXAMPLE = """\
1
00:00:00,500 --> 00:00:02,500
Good morning! Did you sleep at all?

2
00:00:03,000 --> 00:00:04,200
Not a minute.

3
00:00:05,000 --> 00:00:07,500
Then let us walk. The rain has stopped.
"""


class DubCaptions(SpeakingNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return speaking_schema(
            "MorphTTSDub",
            advanced="batch_size language max_speed overrun decoding retries normalize_text reuse_lines overlap "
            "read_sounds",
            inputs=[
                inputs.model(optional=True),
                inputs.text_box("captions", EXAMPLE),
                inputs.seq_groups(),
                inputs.seed(),
                inputs.setting("batch_size"),
                inputs.language(),
                inputs.setting("max_speed", FitLimits),
                inputs.setting("overrun", FitLimits),
                VoiceSocket.Input("voice", optional=True),
                inputs.cast(),
                inputs.sampling(),
                inputs.decoding(),
                inputs.setting("retries", optional=True),
                inputs.setting("normalize", optional=True),
                inputs.reuse_lines(),
                inputs.word_check(),
                inputs.choice("overlap", OVERLAPS, LATER, optional=True),
                inputs.switch("read_sounds", False, optional=True),
                inputs.pronunciation(),
            ],
            outputs=[
                output(io.Audio, "lines", many=True),
                output(io.Audio, "audio"),
                output(io.String, "srt"),
                output(io.String, "misfits"),
                output(io.String, "report"),
            ],
        )

    @classmethod
    def validate_inputs(cls, captions: str | None = None) -> bool | str:
        return inputs.judge(captions=(read_captions, captions))

    @classmethod
    def fingerprint_inputs(
        cls, captions: str | None = None, **_: Any
    ) -> list[tuple[str, tuple[FileState, ...]]]:
        return saved_states(captions)

    @classmethod
    def execute(
        cls,
        captions: str,
        seed: int,
        max_speed: float,
        overrun: float,
        voice: Voice | None = None,
        cast: dict[str, Voice] | None = None,
        overlap: str = LATER,
        read_sounds: bool = False,
        **given: Any,
    ) -> io.NodeOutput:
        from ...morph.script.dub import DOES_NOT_FIT, DubRequest, render_dub

        inputs.check(overlap=(OVERLAPS, overlap))
        limits = FitLimits(max_speed, overrun, overlap == OVER)
        speakers = with_narrator(cast, voice)
        with cls.stage({**given, "trim_silence": True}, speakers, is_live=False) as stage:
            characters, lists = find_characters(stage.model, speakers), lists_of(given.get("pronunciation"))
            request = DubRequest(captions, characters, given["language"], seed, limits, read_sounds, lists)
            dub = render_dub(stage.speaks, request, stage.options, stage.once, stage.listener)
            sources = [replace(one.source.line, speed=one.speed) for one in dub.placed]
            found, spoken = characters.describe_found(), [one.spoken for one in dub.placed]
            told = stage.end(dub.asked, spoken, sources, found, dub.summary)
        clips = [
            clip if one.fits else replace(clip, problems=(*clip.problems, DOES_NOT_FIT))
            for clip, one in zip(told.clips(), dub.placed, strict=True)
        ]
        shown = show(f"{dub.summary}\n{told.outcome}", clips, report=told.report)
        track = to_audio(dub.track, dub.sample_rate, told.facts)
        heard = told.words.at([one.start for one in dub.placed], dub.sample_rate)
        return io.NodeOutput(told.audios(), track, dub.srt, dub.misfits, told.report, heard, ui=shown)


def with_narrator(cast: Mapping[str, Voice] | None, voice: Voice | None) -> dict[str, Voice]:
    """Return the cast with the voice of captions that name none; ValueError for two of these."""
    check_cast(cast or {})
    speakers = dict(cast or {})
    if voice is None:
        return speakers
    check_voice(voice)
    if NARRATOR in {name_key(name) for name in speakers}:
        raise ValueError("voice is connected and the cast has a NARRATOR: disconnect one of them")
    return {**speakers, NARRATOR.upper(): voice}
