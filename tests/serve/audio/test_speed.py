import numpy as np
import pytest
from qwen3_tts_morph.serve.audio.speed import SpeedChange, changed_length

RATE = 24000
FRAME = 1920
SPEEDS = [0.25, 0.5, 0.9, 1.5, 2.0, 3.1, 4.0]


def tone(seconds: float, frequency: float = 220.0) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def changed(waveform: np.ndarray, speed: float, size: int = FRAME) -> np.ndarray:
    """A waveform that is given in portions of one size."""
    changing = SpeedChange(speed, RATE)
    parts = [changing.add(waveform[start : start + size]) for start in range(0, len(waveform), size)]
    return np.concatenate([*parts, changing.finish()])


def test_speed_1_gives_the_samples_that_it_is_given() -> None:
    samples, same = tone(0.1), SpeedChange(1.0, RATE)
    assert same.add(samples) is samples and len(same.finish()) == 0


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_length_changes_and_the_pitch_stays(speed: float) -> None:
    made = changed(tone(2.0), speed)
    assert len(made) == changed_length(2 * RATE, speed) == round(2 * RATE / speed)
    middle = made[len(made) // 4 : -len(made) // 4]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 8 * RATE))
    assert spectrum.argmax() / 8 == pytest.approx(220, rel=0.01)
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.3 / np.sqrt(2), rel=0.02), "no gaps, no bursts"


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_samples_do_not_depend_on_the_portions(speed: float) -> None:
    wave = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)
    whole = changed(wave, speed, len(wave))
    assert all(np.array_equal(whole, changed(wave, speed, size)) for size in (777, FRAME))


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("samples", [0, 1, 100, FRAME, FRAME + 1])
def test_a_short_sound_has_its_length_too(speed: float, samples: int) -> None:
    assert len(changed(tone(1.0)[:samples], speed)) == changed_length(samples, speed)


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.5, 4.0])
def test_a_place_moves_with_the_speed_to_within_a_window(speed: float) -> None:
    wave = np.concatenate([np.zeros(RATE), tone(0.5), np.zeros(RATE)]).astype(np.float32)
    heard = np.flatnonzero(np.abs(changed(wave, speed)) > 0.15)
    window = 0.045 * RATE * max(1, 1 / speed)
    assert heard[0] == pytest.approx(RATE / speed, abs=window)
    assert heard[-1] == pytest.approx(1.5 * RATE / speed, abs=window)


@pytest.mark.parametrize("speed", SPEEDS)
def test_it_is_heard_while_it_is_made(speed: float) -> None:
    changing, given = SpeedChange(speed, RATE), 0
    for start in range(0, RATE, FRAME):
        given += len(changing.add(tone(1.0)[start : start + FRAME]))
    assert 0.6 * RATE / speed < given <= RATE / speed
