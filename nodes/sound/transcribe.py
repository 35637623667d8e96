"""The Transcribe node: the words of recordings, with their times."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from comfy_api.latest import io, ui

from ...morph.hearing.whisper import check_installed
from ...morph.options import RECOGNISER, RECOGNISERS
from ...morph.text.scripts.cues import UNITS
from ...morph.words.captions import CaptionOptions, LineWords, write_captions
from .. import inputs
from ..models.load import load_recogniser
from ..page.progress import NodeProgress, show_progress
from ..schema import WordsSocket, schema
from .values import SpokenWords, to_waveforms

WORDLESS = "no words were recognised"
STEPS = 1000  # of the bar, per recording


class Transcribe(io.ComfyNode):
    define_schema = schema(
        "MorphTTSTranscribe",
        advanced="unit",
        inputs=lambda: [
            io.Audio.Input("audio"),
            inputs.language(),
            inputs.choice("recogniser", RECOGNISERS, RECOGNISER),
            inputs.choice("unit", UNITS, "sentence"),
        ],
        outputs=[
            *(io.String.Output(name, is_output_list=True) for name in ("text", "srt", "detected")),
            WordsSocket.Output("words", is_output_list=True),
        ],
        hidden=[io.Hidden.unique_id],
        is_input_list=True,
        is_output_node=True,
    )

    @classmethod
    def validate_inputs(cls, recogniser: Sequence[str | None] = (None,)) -> bool | str:
        return inputs.judge(recogniser=(lambda _: check_installed(), recogniser[0]))

    @classmethod
    def execute(
        cls, audio: list[dict[str, Any]], language: list[str], recogniser: list[str], unit: list[str]
    ) -> io.NodeOutput:
        inputs.check_filled("audio", audio)
        inputs.check_word("language", language[0])
        options = CaptionOptions("srt", unit[0])
        recordings = [(one.mean(axis=0), sound["sample_rate"]) for sound in audio for one in to_waveforms(sound)]
        found = []
        with show_progress(cls.hidden.unique_id) as progress:
            whisper = load_recogniser(recogniser[0], progress)
            for number, (waveform, rate) in enumerate(recordings, start=1):
                progress.say(f"transcribing recording {number} of {len(recordings)}")
                show = partial(show_part, progress, number - 1, len(recordings))
                found.append(whisper.transcribe_words(waveform, rate, language[0], show))
        texts = [one.text for one in found]
        captions = [write_captions([LineWords(one.words)], options) for one in found]
        words = [SpokenWords((LineWords(one.words),), "" if one.words else WORDLESS) for one in found]
        shown = "\n\n".join(f"{one.language}: {one.text or WORDLESS}" for one in found)
        return io.NodeOutput(texts, captions, [one.language for one in found], words, ui=ui.PreviewText(shown))


def show_part(progress: NodeProgress, before: int, count: int, done_s: float, length_s: float) -> None:
    """Move the bar of ``count`` recordings, ``before`` of which are transcribed."""
    progress(round(STEPS * (before + done_s / length_s)), STEPS * count)
