"""Silence at the ends of speech: where it is cut, complete or in portions."""

import numpy as np
import pytest
from qwen3_tts_morph.postprocess.ends import EndTrim, is_silent, quiet_spans, speech_span, trim_ends

RATE = 24000
NOISE = (10 ** (-60 / 20) * np.random.default_rng(0).normal(size=RATE)).astype(np.float32)  # as the demo voice's
TONE = (0.1 * np.sin(np.arange(RATE) / 5)).astype(np.float32)


def test_silence_is_cut_but_for_a_margin() -> None:
    wave = np.concatenate((NOISE[:5520], TONE, np.zeros(4800, np.float32), TONE, NOISE[:9000]))
    cut, start = trim_ends(wave, RATE)
    assert start == 5520 - 960 and len(cut) == 960 + 2 * RATE + 4800 + 960
    assert np.array_equal(cut, wave[start : start + len(cut)])


def test_a_sound_is_never_cut_by_more_than_a_window() -> None:
    for at in (0, 1, 239, 240, 5000):
        wave = np.concatenate((np.zeros(at, np.float32), TONE))
        cut, start = trim_ends(wave, RATE)
        assert start <= max(0, at - 960) and np.array_equal(cut, wave[start:])


@pytest.mark.parametrize("wave", [NOISE, np.zeros(100, np.float32), NOISE[:0]], ids=["noise", "zeros", "none"])
def test_what_has_no_sound_is_left_as_it_is(wave: np.ndarray) -> None:
    cut, start = trim_ends(wave, RATE)
    assert start == 0 and np.array_equal(cut, wave)


@pytest.mark.parametrize("portion", [1, 100, 1920, 7000])
@pytest.mark.parametrize("tail", [0, 100, 961, 30_000])
def test_the_portions_do_not_matter(portion: int, tail: int) -> None:
    wave = np.concatenate((NOISE[:3333], TONE[:4000], NOISE[:2001], TONE[:777], np.resize(NOISE, tail)))
    whole, start = trim_ends(wave, RATE)
    trim = EndTrim(RATE)
    parts = [trim.add(wave[begin : begin + portion]) for begin in range(0, len(wave), portion)]
    ours = np.concatenate((*parts, trim.end()))
    assert ours.tobytes() == whole.tobytes() and trim.start == start and ours.dtype == np.float32


def test_sound_is_given_out_while_it_comes() -> None:
    trim = EndTrim(RATE)
    assert len(trim.add(NOISE)) == 0
    assert len(trim.add(TONE[:2400])) == 960 + 2400
    assert len(trim.add(np.zeros(24000, np.float32))) == 960
    assert len(trim.add(TONE[:2400])) == 24000 - 960 + 2400


@pytest.mark.parametrize("gain", [0.001, 1.0])
def test_speech_is_found_behind_a_click_at_any_level(gain: float) -> None:
    click = np.zeros(240, np.float32)
    click[:5] = 0.01
    wave = gain * np.concatenate((click, NOISE[:5520], TONE, NOISE[:9000]))
    assert speech_span(wave.astype(np.float32), RATE) == (5760 - 960, 5760 + RATE + 960)


@pytest.mark.parametrize("samples", [0, 1, 241])
def test_the_span_of_silence_is_all_of_it(samples: int) -> None:
    assert speech_span(np.zeros(samples, np.float32), RATE) == (0, samples)


def test_a_click_at_the_beginning_is_cut() -> None:
    click = np.zeros(240, np.float32)
    click[:5] = 0.02  # -51 dBFS over 10 ms
    wave = np.concatenate((click, NOISE[:5520], TONE))
    assert trim_ends(wave, RATE)[1] == 5760 - 960


def test_quiet_spans_are_long_enough_and_reach_the_ends() -> None:
    wave = np.concatenate((NOISE[:4800], TONE, NOISE[:1000], TONE, NOISE[:2400], TONE, NOISE[:4805])).astype(np.float32)
    spans = quiet_spans(wave, RATE)
    assert len(spans) == 3  # 42 ms are no pause
    assert spans[0] == (0, 4800) and spans[-1][1] == len(wave)
    assert all(end - start >= 0.08 * RATE for start, end in spans)
    assert quiet_spans(np.zeros(RATE, np.float32), RATE) == [] == quiet_spans(np.zeros(3, np.float32), RATE)


def test_silence_is_distinguished_from_quiet_speech() -> None:
    noise = (0.001 * np.random.default_rng(0).standard_normal(RATE)).astype(np.float32)
    assert is_silent(noise, RATE) and is_silent(np.zeros(0, dtype=np.float32), RATE)
    assert not is_silent(TONE / 10, RATE), "-43 dBFS"
    with_one_word = noise.copy()
    with_one_word[5000:8000] = TONE[:3000] / 2
    assert not is_silent(with_one_word, RATE)
