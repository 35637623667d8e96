"""What is measured of a recording: where somebody speaks, level, peak, clipping, noise."""

import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.voice.measure import LOWEST_DB, measure, shape_of

from tests.morph.voice.made_speech import RATE, clip, hush, phrase

ROOT = Path(__file__).resolve().parents[3]


def test_speech_is_found_between_pauses_and_its_level_and_noise_are_theirs() -> None:
    spoken = phrase(2.0)
    measured = measure(np.concatenate([hush(1), spoken, hush(0.5), phrase(1.0), hush(1)]), RATE)
    assert np.allclose(measured.speech, [(1.0, 3.0), (3.5, 4.5)], atol=0.05)
    assert measured.seconds == pytest.approx(5.5)
    level = 20 * math.log10(float(np.sqrt(np.mean(np.square(spoken)))))
    assert measured.level_db == pytest.approx(level, abs=0.5)
    assert measured.peak_db == pytest.approx(20 * math.log10(float(np.abs(spoken).max())), abs=0.1)
    assert measured.noise_db == pytest.approx(-60, abs=1) and measured.faults == {}
    assert "not clipped" in measured.figures and "speech 3.0 s" in measured.figures


def test_pauses_in_words_and_clicks_are_no_pauses_and_no_words() -> None:
    click = np.full(200, 0.5, dtype=np.float32)
    parts = [hush(1), phrase(1.0), hush(0.1), phrase(1.0), hush(1), click, hush(1)]
    [(start, end)] = measure(np.concatenate(parts), RATE).speech
    assert (start, end) == (pytest.approx(1.0, abs=0.05), pytest.approx(3.1, abs=0.05))


@pytest.mark.parametrize("rate", [11025, 16000, 44100])
def test_moments_are_right_at_the_end_of_a_long_recording_of_any_rate(rate: int) -> None:
    quiet = np.zeros(round(40 * rate), dtype=np.float32)
    tone = 0.3 * np.sin(2 * np.pi * 200 * np.arange(2 * rate) / rate).astype(np.float32)
    tone[: rate // 2] *= 0.1
    [(start, end)] = measure(np.concatenate([quiet, tone]), rate).speech
    assert (start, end) == (pytest.approx(40, abs=0.03), pytest.approx(42, abs=0.03))


def test_clipping_is_found_in_any_channel_and_at_any_level_and_the_loudest_moment_is_none() -> None:
    clean = np.concatenate([hush(1), phrase(2.0), hush(1)])
    assert measure(clean, RATE).clipped == 0
    spoilt = clean.copy()
    spoilt[RATE : 2 * RATE] = clip(spoilt[RATE : 2 * RATE] * 4, 0.5)
    for recording in (spoilt, 0.3 * spoilt, np.stack([0.9 * clean, spoilt])):
        measured = measure(recording, RATE)
        assert measured.clipped > 0.005 and "clipped" in measured.faults
        moments = measured.clipped_at(10)
        assert 0 < len(moments) <= 10 and min(moments) >= 1 and max(moments) <= 2


@pytest.mark.parametrize(
    ("recording", "faults"),
    [
        (np.concatenate([hush(1), phrase(2.0, 0.02), hush(1)]), ["quiet"]),
        (np.concatenate([hush(1, 0.03), phrase(2.0) + hush(2.0, 0.03), hush(1, 0.03)]), ["noisy"]),
        (hush(4, 0.1), ["speech"]),
        (np.zeros(2 * RATE, dtype=np.float32), ["speech"]),
    ],
)
def test_what_would_spoil_a_voice_is_named(recording: np.ndarray, faults: list[str]) -> None:
    assert list(measure(recording, RATE).faults) == faults


def test_without_pauses_no_noise_is_told_of() -> None:
    measured = measure(phrase(3.0), RATE)
    assert measured.noise_db is None and measured.faults == {}
    assert measured.figures.endswith("no pause to measure noise in")


def test_digital_silence_has_the_lowest_level() -> None:
    silence = np.zeros(RATE, dtype=np.float32)
    assert measure(np.concatenate([silence, phrase(2.0), silence]), RATE).noise_db == LOWEST_DB


def test_the_packs_own_recording_is_fit_for_a_voice() -> None:
    samples, rate = soundfile.read(ROOT / "recordings" / "austen.flac", dtype="float32")
    measured = measure(samples, rate)
    assert measured.faults == {} and len(measured.speech) == 1
    assert -30 < measured.level_db < -20 and measured.snr_db > 15


def test_the_shape_has_as_many_points_as_asked_for_and_misses_no_peak() -> None:
    samples = phrase(3.0)
    samples[12345] = 0.9
    shape = shape_of(np.stack([samples, -samples]), 100)
    assert len(shape) == 100 and max(high for _, high in shape) == pytest.approx(0.9)
    assert min(low for low, _ in shape) == pytest.approx(-0.9)
    assert len(shape_of(samples[:7], 100)) == 7


@pytest.mark.parametrize(
    ("recording", "words"),
    [(np.zeros(100), "give at least 1 s"), (np.full(RATE, np.nan), "NaN"), (np.zeros((1, 1, 9)), "shape")],
)
def test_what_is_no_recording_is_refused(recording: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        measure(recording, RATE)
