from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from qwen3_tts_morph.morph.text.scripts.subtitles import Caption, srt_to_vtt, to_srt, to_vtt
from qwen3_tts_morph.postprocess import Spacing, join


def test_an_srt_file_word_for_word():
    captions = [
        Caption.from_samples(0, 36000, 24000, "Hello\nthere. ", "BOB"),
        Caption(3661500, 3662002, "No name."),
    ]
    assert to_srt(captions) == (
        "1\n00:00:00,000 --> 00:00:01,500\nBOB: Hello there.\n\n2\n01:01:01,500 --> 01:01:02,002\nNo name.\n"
    )


def test_a_blank_line_in_a_text_does_not_break_the_file():
    assert to_srt([Caption(0, 1, "one\n\n2\r\n\u2028two", "A\nB")]).splitlines()[2:] == ["A B: one 2 two"]


def test_a_webvtt_file_word_for_word():
    captions = [
        Caption.from_samples(0, 36000, 24000, "Hello\nthere. ", "BOB"),
        Caption(3661500, 3662002, "1 < 2 & no --> name."),
    ]
    assert to_vtt(captions) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n<v BOB>Hello there.\n\n"
        "01:01:01.500 --> 01:01:02.002\n1 &lt; 2 &amp; no --&gt; name.\n"
    )
    with pytest.raises(ValueError, match="before the previous one"):
        to_vtt(captions[::-1])


def test_no_captions_give_an_empty_file():
    assert to_srt([]) == ""


@pytest.mark.parametrize("rate", [24000, 44100, 48000])
def test_times_are_within_half_a_millisecond_of_the_samples_and_never_go_back(rate):
    rng = random.Random(5)
    samples = sorted(rng.randrange(rate * 7200) for _ in range(500))
    times = [Caption.from_samples(sample, sample, rate, "x").start_ms for sample in samples]
    assert times == sorted(times)
    for sample, time in zip(samples, times, strict=True):
        assert abs(Fraction(sample, rate) * 1000 - time) <= Fraction(1, 2)


def test_halves_of_a_millisecond_round_up():
    times = [Caption.from_samples(sample, sample, 24000, "x").start_ms for sample in (11, 12, 13, 36, 60)]
    assert times == [0, 1, 1, 2, 3]


def test_one_boundary_is_one_time_in_both_captions():
    _, spans = join([np.ones(length) for length in (12345, 6789, 4321)], 24000)
    captions = [Caption.from_samples(*span, 24000, "x") for span in spans]
    for before, after in pairwise(captions):
        assert before.end_ms == after.start_ms


def test_captions_of_a_crossfade_overlap_as_the_audio_does():
    _, spans = join([np.ones(24000), np.ones(24000)], 24000, Spacing(crossfade_ms=60))
    srt = to_srt([Caption.from_samples(*span, 24000, "x") for span in spans])
    assert "00:00:00,000 --> 00:00:01,000" in srt and "00:00:00,940 --> 00:00:01,940" in srt


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (6, 5)])
def test_times_that_run_backwards_are_refused(start, end):
    with pytest.raises(ValueError, match=f"from {start} to {end} ms"):
        Caption(start, end, "x")


def test_captions_out_of_order_are_refused():
    with pytest.raises(ValueError, match=r"'b' starts at 5 ms, before .*\(6 ms\): sort"):
        to_srt([Caption(6, 9, "a"), Caption(5, 9, "b")])


def test_empty_text_and_a_wrong_rate_are_refused():
    with pytest.raises(ValueError, match="has no text"):
        Caption(0, 1, " \n")
    with pytest.raises(ValueError, match="sample_rate is 0"):
        Caption.from_samples(0, 1, 0, "x")


def test_srt_becomes_webvtt_with_the_same_times():
    captions = [Caption(0, 1500, "A & B <i>", "ANNA"), Caption(3_600_000, 3_600_001, "Two\n\nlines")]
    assert srt_to_vtt(to_srt(captions)) == (
        "WEBVTT\n\n"
        "1\n00:00:00.000 --> 00:00:01.500\nANNA: A &amp; B &lt;i&gt;\n\n"
        "2\n01:00:00.000 --> 01:00:00.001\nTwo lines\n"
    )


@pytest.mark.parametrize(
    "text", ["Hello.", "1\nHello", "x\n00:00:00,000 --> 00:00:01,000\nHi", "1", "1\n\n2"]
)
def test_what_is_not_srt_is_refused(text):
    with pytest.raises(ValueError, match="which is no caption: connect the srt output of Render Script"):
        srt_to_vtt(text)
