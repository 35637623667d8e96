"""Dubbing: where speech is placed, how it is fitted, what is listed, and the way through a model."""

from typing import Any

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.kept.render import speak_lines
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.script import dub
from qwen3_tts_morph.morph.script.dialogue import ScriptRequest
from qwen3_tts_morph.morph.script.dub import (
    Dub,
    FitLimits,
    assemble_dub,
    find_rooms,
    make_dub_lines,
)
from qwen3_tts_morph.morph.speech.lines import LineReport, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.text.scripts.captions import DubLine, read_captions, read_dub
from qwen3_tts_morph.morph.text.scripts.cues import Cue
from qwen3_tts_morph.morph.text.scripts.script import ScriptError, ScriptLine
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice

RATE = 24000
OPTIONS = GenerateOptions(sampling=Sampling(max_new_tokens=7), batch_size=2, retries=0)


def caption(number: int, start_s: float, end_s: float, text: str = "Hello.") -> Cue:
    return Cue(round(1000 * start_s), round(1000 * end_s), text, number=number)


def speech(seconds: float, level: float = 0.3, ended: str = "eos") -> Spoken:
    time = np.arange(round(seconds * RATE)) / RATE
    wave = (level * np.sin(2 * np.pi * 200 * time)).astype(np.float32)
    why = "no memory" if ended == "error" else ""
    return Spoken(wave, RATE, LineReport("", "Hello.", 10, seconds, ended, 1, error=why))


def assembled(captions: list[Cue], seconds: list[float], limits: FitLimits | None = None, **tags: float) -> Dub:
    lines = [DubLine(one, ScriptLine(one.number, "", one.text, **tags)) for one in captions]
    return assemble_dub(lines, [], [speech(one) for one in seconds], limits or FitLimits())


def rooms(captions: list[Cue], overrun_s: float) -> list[tuple[float, float]]:
    found = find_rooms(captions, 1000, overrun_s)
    return [(start / 1000, end / 1000) for start, end in found]


def test_speech_may_run_into_the_gap_but_not_into_the_next_caption() -> None:
    captions = [caption(1, 1, 2), caption(2, 2.3, 3), caption(3, 5, 6), caption(4, 6, 7)]
    assert rooms(captions, 0.5) == [(1, 2.3), (2.3, 3.5), (5, 6), (6, 7.5)]
    assert rooms(captions, 0) == [(1, 2), (2.3, 3), (5, 6), (6, 7)]


def test_captions_that_overlap_do_not_shorten_each_other() -> None:
    captions = [caption(1, 1, 3), caption(2, 1, 2), caption(3, 2.5, 4), caption(4, 3.2, 5)]
    assert rooms(captions, 0.5) == [(1, 3.2), (1, 2.5), (2.5, 4.5), (3.2, 5.5)]


def test_what_fits_is_left_alone_and_starts_when_its_caption_says() -> None:
    made = assembled([caption(1, 1, 2), caption(2, 3, 4)], [0.8, 1.4])
    assert [one.speed for one in made.placed] == [1, 1] and made.misfits == ""
    assert np.array_equal(made.track[RATE : RATE + 19200], speech(0.8).waveform)
    assert not made.track[:RATE].any() and not made.track[RATE + 19200 : 3 * RATE].any()
    assert len(made.track) == round(4.4 * RATE), "the last one runs over its caption's end"
    assert made.summary == "All 2 captions fit.\nThe track is 4.400 s long."


def test_what_is_too_long_is_spoken_faster_and_ends_where_the_next_one_starts() -> None:
    made = assembled([caption(1, 0, 1), caption(2, 1.2, 3)], [1.5, 1])
    first = made.placed[0]
    assert first.speed == pytest.approx(1.25) and first.end == round(1.2 * RATE) and first.fits
    assert made.misfits == "" and "1 spoken faster than 1, at most 1.25." in made.summary
    assert len(made.track) == 3 * RATE, "to the end of the last caption"


TOO_LONG = [caption(7, 0, 1, "Much too\nlong."), caption(8, 1, 2), caption(9, 3, 4)]
IS_TOO_LONG = (
    "Caption 7 (00:00:00,000, 'Much too long.') is 0.60 s too long at speed 1.25: shorten its text, or give it more "
    "time; it would fit at 2.00."
)


def starts(made: Dub) -> list[float]:
    return [one.start / RATE for one in made.placed]


def test_what_does_not_fit_is_heard_in_full_and_the_next_one_waits_and_both_are_listed() -> None:
    made = assembled(TOO_LONG, [2, 0.4, 1], FitLimits(1.25, 0))
    first, second, _ = made.placed
    assert (first.speed, first.wanted, first.end) == (1.25, 2, round(1.6 * RATE))
    assert starts(made) == [0, 1.6, 3] and second.speed == 1, "there is room enough where it is moved to"
    assert np.array_equal(made.track[second.start : second.end], second.spoken.waveform), "another line is mixed in"
    assert made.misfits == (
        f"{IS_TOO_LONG}\n"
        "Caption 8 (00:00:01,000, 'Hello.') starts 0.60 s later than its time, because an earlier one goes on."
    )
    assert made.summary.startswith("1 of 3 captions do not fit, 1 starts later:\nCaption 7")
    cues = [line for line in made.srt.splitlines() if "-->" in line]
    assert cues[1].startswith("00:00:01,6") and cues[2].startswith("00:00:03,0")


def test_a_caption_that_waits_is_spoken_faster_to_end_in_its_time() -> None:
    made = assembled(TOO_LONG, [2, 1, 1], FitLimits(1.25, 0))
    _, second, third = made.placed
    assert (second.start, second.speed, second.end) == (round(1.6 * RATE), 1.25, round(2.4 * RATE))
    assert second.too_long_s == 0 and third.fits, "the pause takes up what is too long"
    late = assembled([caption(1, 0, 1), caption(2, 1, 2), caption(3, 2, 3)], [4, 1, 1], FitLimits(1, 0))
    assert starts(late) == [0, 4, 5] and "2 start later" in late.summary


def test_what_does_not_fit_is_spoken_over_the_next_one_where_that_is_wanted() -> None:
    made = assembled(TOO_LONG, [2, 1, 1], FitLimits(1.25, 0, speak_over=True))
    assert starts(made) == [0, 1, 3] and made.misfits == IS_TOO_LONG
    assert made.summary.startswith("1 of 3 captions do not fit:\nCaption 7")


def test_the_fit_begins_with_the_speed_that_the_text_asks_for() -> None:
    slow, fast = (assembled([caption(1, 0, 1)], [1.0], FitLimits(1.25, 0), speed=at) for at in (0.5, 1.5))
    assert slow.placed[0].speed == 1.0 and slow.placed[0].fits
    assert fast.placed[0].speed == 1.5 and fast.placed[0].end == RATE / 1.5


def of(names: str, captions: list[Cue], seconds: list[float], limits: FitLimits | None = None) -> Dub:
    """Return a dub whose captions are spoken by one-letter characters."""
    lines = [DubLine(one, ScriptLine(one.number, name, one.text)) for one, name in zip(captions, names, strict=True)]
    return assemble_dub(lines, [], [speech(one) for one in seconds], limits or FitLimits())


def test_overlapping_captions_of_characters_are_added_and_their_subtitles_stay_in_order() -> None:
    made = of("ABC", [caption(1, 0, 2), caption(2, 0, 1), caption(3, 0.5, 2)], [1.5, 1, 1])
    alone = [one.spoken.waveform for one in made.placed]
    assert np.allclose(made.track[: RATE // 2], alone[0][: RATE // 2] + alone[1][: RATE // 2])
    assert made.srt.count("-->") == 3 and not made.clipped and starts(made) == [0, 0, 0.5]


def test_a_character_is_never_heard_twice_at_once() -> None:
    overlapping = [caption(1, 0, 4), caption(2, 2, 6), caption(3, 4, 8)]
    assert starts(of("AAA", overlapping, [2, 2, 2])) == [0, 2, 4]
    made = of("AAA", overlapping, [3, 2, 2])
    assert starts(made) == [0, 3, 5]
    assert made.summary.startswith("All 3 captions fit, 2 start later:\nCaption 2")
    assert starts(of("AAA", overlapping, [3, 2, 2], FitLimits(speak_over=True))) == [0, 2, 4]


def test_speech_that_is_too_loud_together_is_clipped_and_said() -> None:
    lines = [DubLine(caption(n, 0, 2), ScriptLine(n, name, "Hello.")) for n, name in ((1, "A"), (2, "B"))]
    made = assemble_dub(lines, [], [speech(1, 0.8), speech(1, 0.8)], FitLimits())
    assert made.clipped and np.abs(made.track).max() == 1 and "are clipped" in made.summary


def test_sounds_that_are_not_read_are_counted() -> None:
    lines = [DubLine(caption(2, 0, 2), ScriptLine(1, "", "Hello."), left_out=True)]
    silent = [caption(number, number, number + 1, "[a door]") for number in (3, 4, 5, 6)]
    made = assemble_dub(lines, silent, [speech(1)], FitLimits())
    assert "Captions whose sounds are not read: 2.\n" in made.summary
    assert "Captions with nothing to speak: 4 in all: 3, 4, 5, 6.\n" in made.summary


def test_speakers_of_one_caption_are_spoken_in_turn_and_said() -> None:
    lines = [
        DubLine(caption(3, 0, 1), ScriptLine(1, "A", "Hello.")),
        DubLine(caption(3, 1, 2), ScriptLine(2, "B", "Hello.")),
    ]
    made = assemble_dub(lines, [], [speech(1.5), speech(0.5)], FitLimits(max_speed=1))
    assert [one.start for one in made.placed] == [0, round(1.5 * RATE)]
    assert "Captions of several speakers, in turn, each in a share of the time: 3.\n" in made.summary


def test_an_instruction_that_the_checkpoint_does_not_follow_names_its_caption(load) -> None:
    model = load("tiny", "base")
    captions = "1\n00:00:01,000 --> 00:00:02,000\n[door]\n\n2\n00:00:03,000 --> 00:00:04,000\nBEN (angry): Never!\n"
    request = ScriptRequest(captions, {"BEN": Voice("x_vector", model.size, "Ben", torch.zeros(model.width))})
    with (
        Batch(Synthesizer(model)) as batch,
        pytest.raises(ScriptError, match="\ncaption 2: 'angry' is an instruction"),
    ):
        read_subtitles(batch, request, FitLimits())


def test_a_caption_that_could_not_be_made_is_listed_and_has_no_subtitle() -> None:
    lines = [DubLine(caption(n, n, n + 1), ScriptLine(n, "", "Hello.")) for n in (1, 2)]
    made = assemble_dub(lines, [], [speech(0.5, 0, "error"), speech(0.5)], FitLimits())
    assert made.misfits == "Caption 1 (00:00:01,000, 'Hello.') could not be made: no memory"
    assert made.srt.count("-->") == 1


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ((0.9, 0), "max_speed is 0.9: choose 1 to 2"),
        ((2.1, 0), "max_speed is 2.1"),
        ((1, -1), "overrun is -1: choose 0 to 60 seconds"),
        ((1, 0, "no"), "speak_over is 'no': choose True or False"),
    ],
)
def test_limits_out_of_range_are_refused(limits: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        FitLimits(*limits)


SRT = """\
1
00:00:01,000 --> 00:00:02,000
ANNA: Hello there.

2
00:00:02,500 --> 00:00:03,000
[a door]

3
00:00:03,000 --> 00:00:05,000
It is late.
"""


@pytest.fixture
def speaks(model):
    with Batch(Synthesizer(model), rows=OPTIONS.batch_size) as batch:
        yield batch


@pytest.fixture
def cast(model):
    return {"Anna": preset_voice(model, "vivian"), "Narrator": preset_voice(model, "ryan")}


def read_subtitles(speaks, request: ScriptRequest, limits: FitLimits, read_sounds: bool = False) -> tuple:
    read = read_dub(read_captions(request.text), list(request.cast), speaks.languages, read_sounds)
    return *read, make_dub_lines(speaks, read[0], request, OPTIONS, limits)


def render_dub(speaks, request: ScriptRequest, read_sounds: bool = False) -> Dub:
    dubbed, silent, lines = read_subtitles(speaks, request, FitLimits(), read_sounds)
    return assemble_dub(dubbed, silent, speak_lines(speaks, lines, OPTIONS), FitLimits())


def test_an_srt_becomes_a_track_at_its_times(speaks, cast) -> None:
    made = render_dub(speaks, ScriptRequest(SRT, cast, seed=3))
    assert [one.spoken.report.name for one in made.placed] == ["Anna", ""]
    assert [one.room for one in made.placed] == [
        (RATE, round(2.5 * RATE)),
        (3 * RATE, round(5.5 * RATE)),
    ]
    assert [one.number for one in made.silent] == [2]
    assert "Captions with nothing to speak: 2." in made.summary
    for one in made.placed:
        assert np.array_equal(made.track[one.start : one.end], one.spoken.waveform)
    assert "Anna: Hello there.\n" in made.srt and "\nIt is late.\n" in made.srt
    again = render_dub(speaks, ScriptRequest(SRT, cast, seed=3))
    assert np.array_equal(made.track, again.track)


def test_sounds_are_spoken_where_that_is_wanted(speaks, cast) -> None:
    made = render_dub(speaks, ScriptRequest(SRT, cast), read_sounds=True)
    assert [one.spoken.report.text for one in made.placed] == ["Hello there.", "(a door)", "It is late."]
    assert made.silent == ()


def test_what_cannot_be_spoken_is_refused_before_a_frame_is_made(speaks, cast, monkeypatch) -> None:
    def missing() -> None:
        raise ValueError("speed and pitch need the package python-stretch")

    with pytest.raises(ScriptError, match="caption 1: 'ANNE' is not in the cast"):
        read_subtitles(speaks, ScriptRequest(SRT.replace("ANNA", "ANNE"), cast), FitLimits())
    monkeypatch.setattr(dub, "check_installed", missing)
    with pytest.raises(ValueError, match="need the package python-stretch"):
        read_subtitles(speaks, ScriptRequest(SRT, cast), FitLimits())
    assert read_subtitles(speaks, ScriptRequest(SRT, cast), FitLimits(max_speed=1))
