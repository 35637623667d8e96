import builtins

import numpy as np
import pytest
from qwen3_tts_morph.postprocess.stretch import Stretch, stretch, stretched_length

RATE = 24000


def tone(seconds: float, frequency: float = 220.0) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def pitch_of(waveform: np.ndarray) -> float:
    """The strongest frequency in the middle of a waveform, in Hz."""
    middle = waveform[len(waveform) // 4 : -len(waveform) // 4]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 8 * RATE))
    return float(spectrum.argmax()) / 8


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1000,), (2, 1000)])
def test_speed_1_and_pitch_0_return_the_same_samples(dtype: type, shape: tuple[int, ...]) -> None:
    wave = np.random.default_rng(0).normal(size=shape).astype(dtype)
    same = stretch(wave, RATE, Stretch())
    assert same is not wave and same.dtype == dtype and np.array_equal(same, wave)


@pytest.mark.parametrize("speed", [0.5, 0.83, 1.1, 1.37, 2.0])
@pytest.mark.parametrize("samples", [1, 2, 719, 1441, 24001])
def test_the_length_is_exact_and_the_dtype_stays(speed: float, samples: int) -> None:
    wave = np.random.default_rng(0).normal(size=(2, samples)) * 0.1
    made = stretch(wave, RATE, Stretch(speed, 1.0))
    assert made.shape == (2, stretched_length(samples, speed)) and made.dtype == wave.dtype
    assert abs(stretched_length(samples, speed) - samples / speed) <= 0.5


@pytest.mark.parametrize(("speed", "semitones"), [(0.7, 0), (1.4, 0), (1, 5), (1, -12), (1.25, 12)])
def test_each_changes_without_the_other(speed: float, semitones: float) -> None:
    made = stretch(tone(2.0), RATE, Stretch(speed, semitones))
    assert len(made) == stretched_length(2 * RATE, speed)
    assert pitch_of(made) == pytest.approx(220 * 2 ** (semitones / 12), rel=0.01)


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.25, 2.0])
def test_a_place_moves_with_the_speed_to_within_a_hop(speed: float) -> None:
    wave = np.concatenate([np.zeros(RATE), tone(0.5), np.zeros(RATE)]).astype(np.float32)
    made = stretch(wave, RATE, Stretch(speed))
    heard = np.flatnonzero(np.abs(made) > 0.15)
    assert heard[0] == pytest.approx(RATE / speed, abs=0.015 * RATE)
    assert heard[-1] == pytest.approx(1.5 * RATE / speed, abs=0.015 * RATE)


def test_it_gives_the_same_samples_each_time_and_no_sample_is_over_full_scale() -> None:
    wave = np.random.default_rng(0).uniform(-1, 1, RATE).astype(np.float32)
    made = stretch(wave, RATE, Stretch(1.2, -3))
    assert np.array_equal(made, stretch(wave, RATE, Stretch(1.2, -3)))
    assert np.abs(made).max() <= 1


def test_silence_stays_silence() -> None:
    assert not stretch(np.zeros(1000, np.float32), RATE, Stretch(1.3)).any()


@pytest.mark.parametrize(
    ("speed", "semitones", "sentence"),
    [
        (0.49, 0, "speed is 0.49: choose 0.5 to 2"),
        (2.1, 0, "speed is 2.1: choose 0.5 to 2"),
        (float("nan"), 0, "speed is nan"),
        (1, 12.5, "pitch is 12.5: choose -12 to 12 semitones"),
        (1, -13, "pitch is -13: choose -12 to 12 semitones"),
    ],
)
def test_values_out_of_range_are_refused(speed: float, semitones: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Stretch(speed, semitones)


def test_a_missing_library_is_named_but_not_needed_to_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *more):
        if name == "python_stretch":
            raise ImportError("No module named 'python_stretch'")
        return original(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert len(stretch(tone(0.1), RATE, Stretch())) == 2400
    with pytest.raises(ValueError, match=r"need the package python-stretch .*: run python -m pip install"):
        stretch(tone(0.1), RATE, Stretch(1.1))
