"""Samples as integers."""

import numpy as np
from qwen3_tts_morph.postprocess.pcm import to_s16


def test_samples_become_sixteen_bits_as_in_files() -> None:
    samples = np.array([-1.0, 0.0, 1.0, 0.5, 1 / 65536 + 1e-7], dtype=np.float32)
    assert to_s16(samples).tolist() == [-32768, 0, 32767, 16384, 1]
