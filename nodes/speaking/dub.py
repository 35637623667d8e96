"""The Dub Captions node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ...morph.runtime.whole_file import FileState
from ...morph.text.names import name_key
from ...morph.text.scripts.captions import read_captions
from ...morph.text.scripts.script import NARRATOR
from .. import inputs
from ..models.linked import check_cast, check_voice
from ..page.clips import show
from ..schema import output
from ..sockets import VoiceSocket
from ..sound.audio_io import to_audio
from .characters import find_characters, saved_states
from .common import SpeakingNode, speaking_schema
from .pronunciation import lists_of

if TYPE_CHECKING:
    from ...morph.voice.voice import Voice

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
            "Dub Captions",
            "Speaks captions (SRT or WebVTT) so that each starts at its own start time. Speech that is too long "
            "for its caption is spoken faster, up to your limit; captions that still do not fit are listed, and "
            "the next one waits for their end.",
            "the track",
            advanced="batch_size language max_speed overrun decoding retries normalize_text reuse_lines overlap "
            "read_sounds",
            inputs=[
                inputs.model(optional=True),
                inputs.text_box(
                    "captions",
                    EXAMPLE,
                    "The text of an SRT or WebVTT file: paste it, or connect Script From File. 'NAME: text' is "
                    "spoken by that character of the cast. Default: an example.",
                ),
                inputs.seq_groups(),
                inputs.seed(
                    "Random seed: each caption gets its own, derived from this one, its name and its text."
                ),
                inputs.batch_size("captions"),
                inputs.language(),
                inputs.number(
                    "max_speed",
                    1.25,
                    (1.0, 2.0, 0.01),
                    "The highest speed of speech that is too long for its caption, at the same pitch. 1 turns "
                    "this off. Unit: times. Default: 1.25.",
                ),
                inputs.number(
                    "overrun",
                    0.5,
                    (0.0, 60.0, 0.05),
                    "How long speech may go on after its caption has ended, before the next one starts. Unit: "
                    "seconds. Default: 0.5.",
                ),
                VoiceSocket.Input(
                    "voice",
                    optional=True,
                    tooltip=(
                        "Who speaks captions without a name of the cast: everything, if no cast is connected. "
                        "Default: the cast's NARRATOR; without a cast, as in Generate Speech."
                    ),
                ),
                inputs.cast(),
                inputs.sampling(),
                inputs.decoding(),
                inputs.retries(),
                inputs.normalize_text(),
                inputs.reuse_lines(),
                inputs.word_check(),
                inputs.choice(
                    "overlap",
                    OVERLAPS,
                    LATER,
                    "What happens to the caption after one that is too long. move later: it starts when that one "
                    "has ended; the report says how much later. speak over the next: it starts at its time, and "
                    "both are heard together. Default: move later.",
                    optional=True,
                ),
                inputs.switch(
                    "read_sounds",
                    False,
                    "Whether sounds are read aloud: words in brackets, as [door slams] and (laughs), and what is "
                    "sung between notes. A caption with nothing else is silent if not. Default: off.",
                    optional=True,
                ),
                inputs.pronunciation(),
            ],
            outputs=[
                output(
                    io.Audio,
                    "lines",
                    "Each caption as a separate recording, at its final speed: mono, 24 kHz.",
                    many=True,
                ),
                output(io.Audio, "audio", "The track: every caption at its time, mono, 24 kHz."),
                output(io.String, "srt", "Subtitles at the times at which they are heard."),
                output(
                    io.String,
                    "misfits",
                    "The captions that do not fit or start later, one per line; empty if all do.",
                ),
                output(
                    io.String,
                    "report",
                    "What does not fit, the speeds and the track's length, then how each line ended.",
                ),
            ],
        )

    @classmethod
    def validate_inputs(cls, captions: str | None = None) -> bool | str:
        return inputs.judge(captions=(read_captions, captions))

    @classmethod
    def fingerprint_inputs(
        cls, captions: str | None = None, **_: Any
    ) -> list[tuple[str, tuple[FileState, ...]]]:
        """Change when a saved voice that the captions may name is saved, replaced or deleted."""
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
        """Speak captions; ``given``: the inputs that other nodes have too."""
        from ...morph.script.dub import DOES_NOT_FIT, DubRequest, FitLimits, render_dub

        inputs.check(overlap=(OVERLAPS, overlap))
        limits = FitLimits(max_speed, overrun, overlap == OVER)
        speakers = with_narrator(cast, voice)
        with cls.stage({**given, "trim_silence": True}, speakers, is_live=False) as stage:
            characters, lists = find_characters(stage.model, speakers), lists_of(given.get("pronunciation"))
            said = (captions, characters, given["language"], seed, limits, read_sounds, lists)
            request = DubRequest(*said)
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
