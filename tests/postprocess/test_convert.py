"""Samples as integers, and at another sample rate."""

import numpy as np
import pytest
from qwen3_tts_morph.postprocess.convert import resample, to_s16


def test_samples_become_sixteen_bits_as_in_files() -> None:
    samples = np.array([-1.0, 0.0, 1.0, 0.5, 1 / 65536 + 1e-7], dtype=np.float32)
    assert to_s16(samples).tolist() == [-32768, 0, 32767, 16384, 1]


@pytest.mark.parametrize(("rate", "wanted"), [(22050, 24000), (24000, 16000), (48000, 24000), (24000, 24000)])
def test_a_tone_stays_as_it_sounds(rate: int, wanted: int) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32)
    made = resample(tone, rate, wanted)
    assert made.dtype == np.float32 and abs(len(made) - wanted) <= 1
    inner = slice(wanted // 10, -wanted // 10)  # the filter begins and ends with silence
    same = np.sin(2 * np.pi * 440 * np.arange(len(made)) / wanted)
    assert np.abs(made[inner] - same[inner]).max() < 0.01
