import numpy as np
import pytest
from qwen3_tts_morph.postprocess.filters import LowPass, low_pass

RATE = 24000


def gain_db(frequency: float, options: LowPass, rate: int = RATE) -> float:
    """The filter's gain on one second of a sine, measured in its middle by projection on sine and cosine."""
    phase = 2 * np.pi * frequency * np.arange(rate) / rate
    filtered = low_pass(np.sin(phase), rate, options)
    middle = slice(rate // 4, 3 * rate // 4)  # a whole number of periods of every frequency used
    wave = np.mean(filtered[middle] * np.exp(-1j * phase[middle])) * 2
    return 20 * np.log10(abs(wave))


@pytest.mark.parametrize("order", [1, 2, 3, 8])
@pytest.mark.parametrize("cutoff", [1000.0, 5000.0, 11000.0])
def test_gain_at_the_cutoff_is_minus_3_db_and_twice_that_with_zero_phase(order, cutoff):
    assert gain_db(cutoff, LowPass(order, cutoff)) == pytest.approx(-3.01, abs=0.02)
    assert gain_db(cutoff, LowPass(order, cutoff, zero_phase=True)) == pytest.approx(-6.02, abs=0.02)


@pytest.mark.parametrize(
    ("rate", "frequency", "expected"),
    [
        (24000, 9000, -0.04),
        (24000, 10000, -0.25),
        (24000, 11000, -3.01),
        (24000, 11900, -40.1),
        (48000, 9000, -1.26),
    ],
)
def test_the_default_does_what_its_docs_say(rate, frequency, expected):
    assert gain_db(frequency, LowPass(), rate) == pytest.approx(expected, abs=0.02)


def test_order_steepens_the_slope():
    octave_above = [gain_db(4000, LowPass(order, 2000)) for order in (1, 2, 4)]
    assert octave_above[0] > octave_above[1] + 5 > octave_above[2] + 10


def test_only_zero_phase_leaves_a_pulse_in_its_place():
    pulse = np.zeros(401)
    pulse[200] = 1.0
    through = low_pass(pulse, RATE, LowPass(4, 2000))
    both_ways = low_pass(pulse, RATE, LowPass(4, 2000, zero_phase=True))
    assert np.argmax(through) > 200
    np.testing.assert_allclose(both_ways, both_ways[::-1], atol=1e-9)


@pytest.mark.parametrize("zero_phase", [False, True])
@pytest.mark.parametrize("shape", [(1,), (2,), (5,), (2, 1), (1, 9), (2, 600)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_length_and_width_keeps_shape_and_dtype(zero_phase, shape, dtype):
    waveform = np.random.default_rng(0).normal(size=shape).astype(dtype)
    kept = waveform.copy()
    filtered = low_pass(waveform, RATE, LowPass(order=6, zero_phase=zero_phase))
    assert filtered.shape == shape and filtered.dtype == dtype
    assert np.isfinite(filtered).all()
    np.testing.assert_array_equal(waveform, kept)


def test_channels_are_filtered_apart():
    stereo = np.random.default_rng(1).normal(size=(2, 500))
    filtered = low_pass(stereo, RATE)
    for channel in (0, 1):
        np.testing.assert_array_equal(filtered[channel], low_pass(stereo[channel], RATE))


@pytest.mark.parametrize("zero_phase", [False, True])
def test_silence_stays_silence(zero_phase):
    assert not low_pass(np.zeros((2, 1000), np.float32), RATE, LowPass(zero_phase=zero_phase)).any()


@pytest.mark.parametrize("cutoff", [8000.0, 11000.0])
def test_a_cutoff_at_or_above_nyquist_is_refused_with_both_numbers(cutoff):
    with pytest.raises(ValueError, match=rf"cutoff is {cutoff:g} Hz.*choose a cutoff below 8000 Hz"):
        low_pass(np.zeros(100), 16000, LowPass(cutoff_hz=cutoff))


def test_a_filter_has_an_effect_on_audio_with_frequencies_at_its_cutoff():
    assert [LowPass().has_effect(rate) for rate in (16000, 22000, 22050, RATE)] == [False, False, True, True]
    with pytest.raises(ValueError, match="sample_rate is 0"):
        LowPass().has_effect(0)


@pytest.mark.parametrize("order", [0, 17, 2.5, True, "2"])
def test_a_wrong_order_is_refused(order):
    with pytest.raises(ValueError, match=r"order is .*from 1 to 16"):
        LowPass(order=order)


@pytest.mark.parametrize("zero_phase", [False, True])
@pytest.mark.parametrize("order", [1, 16])
def test_the_loudest_waveform_allowed_stays_finite(zero_phase, order):
    square = np.sign(np.sin(np.arange(5000) / 3 + 0.1)).astype(np.float32) * np.float32(2**32)
    filtered = low_pass(square, RATE, LowPass(order, 11000.0, zero_phase))
    expected = low_pass(square.astype(np.float64) / 2**32, RATE, LowPass(order, 11000.0, zero_phase))
    np.testing.assert_allclose(filtered / 2**32, expected, atol=1e-6)


@pytest.mark.parametrize("zero_phase", ["no", None, 1])
def test_zero_phase_is_on_or_off(zero_phase):
    with pytest.raises(ValueError, match=r"zero_phase is .*: choose True or False"):
        LowPass(zero_phase=zero_phase)


@pytest.mark.parametrize("cutoff", [0.0, -1.0, np.nan, np.inf, "11000"])
def test_a_wrong_cutoff_is_refused(cutoff):
    with pytest.raises(ValueError, match=r"cutoff is .*Hz"):
        LowPass(cutoff_hz=cutoff)
