"""The nodes that take audio: Smooth and Normalize, Join Audio, Speed and Pitch, and Transcribe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from comfy_api.latest import io, ui

from ...morph.hearing.whisper import check_installed
from ...morph.options import RECOGNISER, RECOGNISERS
from ...morph.text.scripts.cues import UNITS
from ...morph.words.captions import CaptionOptions, LineWords, write_captions
from ...postprocess import ends, filters
from ...postprocess.checks import check_choice
from ...postprocess.join import Spacing, join
from ...postprocess.loudness import Loudness, normalize_loudness, normalize_peak
from ...postprocess.stretch import HIGHEST_SPEED, LOWEST_SPEED, MOST_SEMITONES, Stretch, stretch
from .. import inputs
from ..inputs import WordsSocket, schema
from ..models.load import load_recogniser
from ..page.progress import show_progress
from .values import SpokenWords, facts_of, to_audio, to_waveforms

MODES: dict[str, Callable[[np.ndarray, int, Loudness], np.ndarray]] = {
    "peak": lambda waveform, _, level: normalize_peak(waveform, level.ceiling_db),
    "loudness": normalize_loudness,
    "off": lambda waveform, *_: waveform,
}
CUTOFF_HZ = 11000.0  # the default


class SmoothNormalize(io.ComfyNode):
    define_schema = schema(
        "MorphTTSSmoothNormalize",
        advanced="order cutoff zero_phase",
        inputs=lambda: [
            io.Audio.Input("audio"),
            io.Boolean.Input("low_pass", default=True),
            inputs.number("order", 2, (1, 16)),
            inputs.number("cutoff", CUTOFF_HZ, (20.0, 96000.0, 100.0)),
            io.Boolean.Input("zero_phase", default=False),
            inputs.choice("normalize", MODES, "peak"),
            inputs.number("peak_db", -3.0, (-60.0, 0.0, 0.1)),
            inputs.number("lufs", -16.0, (-60.0, 0.0, 0.5)),
            io.Boolean.Input("trim_silence", default=False),
        ],
        outputs=[io.Audio.Output("smoothed", is_output_list=True)],
    )

    @classmethod
    def execute(
        cls, audio: dict[str, Any], low_pass: bool, normalize: str, trim_silence: bool, **given: Any
    ) -> io.NodeOutput:
        check_choice("normalize", normalize, tuple(MODES))
        level = Loudness(given["lufs"], given["peak_db"])
        waveforms, rate = to_waveforms(audio), audio["sample_rate"]
        wanted = filters.LowPass(given["order"], given["cutoff"], given["zero_phase"]) if low_pass else None
        # Audio may have no frequencies at the default cutoff.
        left_out = wanted is not None and wanted.cutoff_hz == CUTOFF_HZ and not wanted.has_effect(rate)
        filtering = None if left_out else wanted
        facts = facts_of(audio)
        done = []
        for waveform in waveforms:
            if trim_silence:
                waveform = ends.trim_silence(waveform, rate)
            if filtering:
                waveform = filters.low_pass(waveform, rate, filtering)
            done.append(to_audio(MODES[normalize](waveform, rate, level), rate, facts))
        if not left_out:
            return io.NodeOutput(done)
        end = f"audio of {rate} samples per second ends at {rate / 2:g} Hz"
        note = f"low-pass left out: {end}, and the default cutoff is {CUTOFF_HZ:g} Hz"
        return io.NodeOutput(done, ui=ui.PreviewText(note))


class JoinAudio(io.ComfyNode):
    define_schema = schema(
        "MorphTTSJoinAudio",
        inputs=lambda: [
            io.Audio.Input("audio"),
            inputs.number("gap", 0.3, (0.0, 60.0, 0.05)),
            inputs.number("crossfade", 0.0, (0.0, 5000.0, 5.0)),
        ],
        outputs=[io.Audio.Output("joined")],
        is_input_list=True,
    )

    @classmethod
    def execute(cls, audio: list[dict[str, Any]], gap: list[float], crossfade: list[float]) -> io.NodeOutput:
        inputs.check_filled("audio", audio)
        waveforms = [waveform for one in audio for waveform in to_waveforms(one)]
        rates = sorted({one["sample_rate"] for one in audio})
        if len(rates) > 1:
            shown = " and ".join(map(str, rates))
            raise ValueError(
                f"audio has different sample rates ({shown} Hz): resample the recordings to one rate first"
            )
        joined, _ = join(waveforms, rates[0], Spacing(gap[0], crossfade[0]))
        facts = [known for one in audio for known in facts_of(one)]
        return io.NodeOutput(to_audio(joined, rates[0], facts))


class SpeedPitch(io.ComfyNode):
    define_schema = schema(
        "MorphTTSSpeedPitch",
        inputs=lambda: [
            io.Audio.Input("audio"),
            inputs.number("speed", 1.0, (LOWEST_SPEED, HIGHEST_SPEED, 0.01)),
            inputs.number("pitch", 0.0, (-MOST_SEMITONES, MOST_SEMITONES, 0.1)),
        ],
        outputs=[io.Audio.Output("changed", is_output_list=True)],
    )

    @classmethod
    def execute(cls, audio: dict[str, Any], speed: float, pitch: float) -> io.NodeOutput:
        by = Stretch(speed, pitch)
        rate, done, lengths = audio["sample_rate"], [], []
        facts = [replace(one, settings={**one.settings, "changed": [speed, pitch]}) for one in facts_of(audio)]
        for waveform in to_waveforms(audio):
            changed = stretch(waveform, rate, by)
            lengths.append(f"{waveform.shape[1] / rate:.3f} s became {changed.shape[1] / rate:.3f} s")
            done.append(to_audio(changed, rate, facts))
        return io.NodeOutput(done, ui=ui.PreviewText("\n".join(lengths)))


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

    validate_inputs = inputs.judged(True, recogniser=lambda _: check_installed())

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
            for before, (waveform, rate) in enumerate(recordings):
                progress.say(f"transcribing recording {before + 1} of {len(recordings)}")

                def show(done_s: float, length_s: float, before: int = before) -> None:
                    progress(round(STEPS * (before + done_s / length_s)), STEPS * len(recordings))

                found.append(whisper.transcribe_words(waveform, rate, language[0], show))
        texts = [one.text for one in found]
        captions = [write_captions([LineWords(one.words)], options) for one in found]
        words = [SpokenWords((LineWords(one.words),), "" if one.words else WORDLESS) for one in found]
        shown = "\n\n".join(f"{one.language}: {one.text or WORDLESS}" for one in found)
        return io.NodeOutput(texts, captions, [one.language for one in found], words, ui=ui.PreviewText(shown))
