import numpy as np
import pytest
from qwen3_tts_morph.postprocess.ends import trim_silence

RATE = 1000


def padded(before: int, after: int, level: float = 0.5) -> np.ndarray:
    return np.concatenate([np.zeros(before), np.full(100, level), np.zeros(after)])


def test_both_ends_are_cut_and_the_middle_stays():
    waveform = np.concatenate([padded(300, 200), padded(0, 50)])
    np.testing.assert_array_equal(trim_silence(waveform, RATE), waveform[280:720])


@pytest.mark.parametrize(("before", "after", "length"), [(300, 200, 140), (5, 200, 125), (0, 0, 100)])
def test_the_margin_is_kept_as_far_as_there_is_any(before, after, length):
    trimmed = trim_silence(padded(before, after), RATE)
    assert trimmed.size == length
    assert np.argmax(trimmed > 0) == min(before, 20)


@pytest.mark.parametrize("level", [1e-4, 0.01, 1.0])
def test_the_threshold_is_relative_to_the_peak(level):
    waveform = padded(300, 300, level)
    waveform[100] = level * 10 ** (-45 / 20)
    waveform[50] = level * 10 ** (-55 / 20)
    assert trim_silence(waveform, RATE).size == 20 + 300 + 20


def test_sound_in_either_channel_counts():
    stereo = np.stack([padded(300, 0), np.zeros(400)]).astype(np.float32)
    stereo[1, 100] = -0.5
    trimmed = trim_silence(stereo, RATE)
    assert trimmed.shape == (2, 320) and trimmed.dtype == np.float32


@pytest.mark.parametrize("shape", [(1,), (500,), (2, 500)])
def test_silence_comes_back_whole(shape):
    assert trim_silence(np.zeros(shape), RATE).shape == shape


def test_one_sample_and_one_click_stay():
    np.testing.assert_array_equal(trim_silence(np.array([-0.1]), RATE), [-0.1])
    click = np.zeros(99)
    click[50] = 1.0
    assert trim_silence(click, RATE).sum() == 1.0 and trim_silence(click, RATE).size == 41


def test_the_result_shares_no_memory_with_the_input():
    waveform = padded(0, 0)
    assert not np.shares_memory(trim_silence(waveform, RATE), waveform)
