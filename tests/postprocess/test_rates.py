"""Another sample rate: the same tone, as long."""

import numpy as np
import pytest
from qwen3_tts_morph.postprocess.rates import resample


@pytest.mark.parametrize(("rate", "wanted"), [(22050, 24000), (24000, 16000), (48000, 24000), (24000, 24000)])
def test_a_tone_stays_as_it_sounds(rate: int, wanted: int) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32)
    made = resample(tone, rate, wanted)
    assert made.dtype == np.float32 and abs(len(made) - wanted) <= 1
    inner = slice(wanted // 10, -wanted // 10)  # the filter begins and ends with silence
    same = np.sin(2 * np.pi * 440 * np.arange(len(made)) / wanted)
    assert np.abs(made[inner] - same[inner]).max() < 0.01
