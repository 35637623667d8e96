import logging

import numpy as np
import pyloudnorm
import pytest
from qwen3_tts_morph.postprocess.loudness import (
    Loudness,
    measure_loudness,
    normalize_loudness,
    normalize_peak,
)

RATE = 24000


def sine(seconds: float = 2.0, level: float = 0.1, rate: int = RATE) -> np.ndarray:
    return level * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate)


def lufs_of(waveform: np.ndarray, rate: int = RATE) -> float:
    return pyloudnorm.Meter(rate).integrated_loudness(waveform.astype(np.float64).T)


@pytest.mark.parametrize("peak_db", [-3.0, -20.0, 0.0])
@pytest.mark.parametrize("level", [1e-6, 0.1, 7.0])
def test_the_peak_lands_on_its_level(peak_db, level):
    stereo = np.stack([sine(level=level), sine(level=level / 2)]).astype(np.float32)
    result = normalize_peak(stereo, peak_db)
    assert 20 * np.log10(np.abs(result).max()) == pytest.approx(peak_db, abs=1e-4)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result[0], 2 * result[1], atol=1e-6)  # one gain for both channels


def test_a_negative_peak_counts():
    np.testing.assert_allclose(normalize_peak(np.array([0.1, -0.5]), 0.0), [0.2, -1.0])


@pytest.mark.parametrize("sample", [0.25, -1e-3, 5e-324])
def test_one_sample_is_normalized(sample):
    assert abs(normalize_peak(np.array([sample]), 0.0)[0]) == pytest.approx(1.0)


@pytest.mark.parametrize("shape", [(1,), (1000,), (2, 24000)])
def test_silence_comes_back_as_a_new_silence(shape):
    silence = np.zeros(shape, np.float32)
    for result in (normalize_peak(silence), normalize_loudness(silence, RATE)):
        assert result.shape == shape and not result.any()
        assert result is not silence


@pytest.mark.parametrize("rate", [16000, 24000, 48000])
@pytest.mark.parametrize("lufs", [-16.0, -23.0])
def test_the_loudness_lands_on_its_level(rate, lufs):
    mono = sine(rate=rate).astype(np.float32)
    for waveform in (mono, np.stack([mono, mono / 3])):
        result = normalize_loudness(waveform, rate, Loudness(lufs=lufs))
        assert lufs_of(result, rate) == pytest.approx(lufs, abs=0.01)
        assert result.shape == waveform.shape and result.dtype == np.float32


def test_loudness_is_as_the_standard_says():
    """BS.1770-4: a full-scale 997 Hz sine in one channel reads -3.01 LUFS."""
    tone = np.sin(2 * np.pi * 997 * np.arange(48000 * 4) / 48000)
    assert measure_loudness(tone, 48000) == pytest.approx(-3.01, abs=0.05)


@pytest.mark.parametrize("quiet_db", [-15.0, -30.0])
@pytest.mark.parametrize("level", [10.0**-2.75, 0.1])
@pytest.mark.parametrize("lufs", [-60.0, -45.0, -23.0])
def test_the_loudness_lands_on_its_level_where_quiet_parts_cross_the_gate(lufs, level, quiet_db):
    """One gain by the loudness before misses some of these by 0.7 LU."""
    samples = 6 * RATE
    fading = level * np.random.default_rng(0).normal(size=samples) * 10 ** np.linspace(0, quiet_db / 20, samples)
    result = normalize_loudness(fading.astype(np.float32), RATE, Loudness(lufs=lufs, ceiling_db=0.0))
    assert np.abs(result).max() < 0.999  # the ceiling has no part in this
    assert lufs_of(result) == pytest.approx(lufs, abs=0.05)


@pytest.mark.parametrize("rate", [1, 10, 3999])
def test_a_rate_too_low_for_the_standards_filter_is_refused(rate):
    with pytest.raises(ValueError, match=f"sample_rate is {rate}, and loudness is defined only from 4000"):
        normalize_loudness(sine(), rate)


@pytest.mark.parametrize("ceiling_db", [-1.0, -6.0])
def test_the_ceiling_holds_where_the_loudness_would_clip(ceiling_db, caplog):
    peaky = sine(level=0.01)
    peaky[RATE] = 0.9
    with caplog.at_level(logging.INFO):
        result = normalize_loudness(peaky, RATE, Loudness(lufs=-10.0, ceiling_db=ceiling_db))
    assert 20 * np.log10(np.abs(result).max()) == pytest.approx(ceiling_db, abs=1e-6)
    assert f"kept at {lufs_of(result):.1f} LUFS" in caplog.text


def test_the_ceiling_holds_where_a_sample_would_pass_it_by_little():
    for lufs in np.arange(-6.0, 0.0, 0.25):  # this sine passes the ceiling on the way
        peak = np.abs(normalize_loudness(sine(), RATE, Loudness(lufs=lufs))).max()
        assert 20 * np.log10(peak) <= -1.0 + 1e-6


def test_audio_below_the_gate_is_left_as_it_is_and_said_so(caplog):
    whisper = sine(level=1e-5)
    np.testing.assert_array_equal(normalize_loudness(whisper, RATE), whisper)
    assert "has no loudness" in caplog.text


@pytest.mark.parametrize("seconds", [0.1, 0.3])
def test_audio_below_a_block_is_as_loud_as_its_repetition(seconds):
    """A trimmed "Yes." must not stop a whole graph."""
    assert measure_loudness(sine(seconds), RATE) == pytest.approx(measure_loudness(sine(2.0), RATE), abs=0.1)
    short = normalize_loudness(sine(seconds), RATE, Loudness(lufs=-20.0))
    assert measure_loudness(short, RATE) == pytest.approx(-20.0, abs=0.01)


def test_one_sample_comes_back_as_one_sample():
    one = normalize_loudness(np.array([0.5]), RATE)
    assert one.shape == (1,) and np.isfinite(one).all()


def test_more_channels_than_the_standard_weighs_are_refused():
    with pytest.raises(ValueError, match="6 channels"):
        normalize_loudness(np.ones((6, RATE)), RATE)


@pytest.mark.parametrize("value", [0.1, -60.1, np.nan, None, True])
def test_wrong_levels_are_refused(value):
    with pytest.raises(ValueError, match="peak_db is"):
        normalize_peak(sine(), value)
    with pytest.raises(ValueError, match="lufs is"):
        Loudness(lufs=value)
    with pytest.raises(ValueError, match="ceiling_db is"):
        Loudness(ceiling_db=value)
