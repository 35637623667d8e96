import numpy as np
import pytest
from qwen3_tts_morph.postprocess.ends import trim_silence
from qwen3_tts_morph.postprocess.filters import low_pass
from qwen3_tts_morph.postprocess.join import join
from qwen3_tts_morph.postprocess.loudness import normalize_loudness, normalize_peak

TOOLS = [
    lambda waveform: low_pass(waveform, 24000),
    normalize_peak,
    lambda waveform: normalize_loudness(waveform, 24000),
    lambda waveform: trim_silence(waveform, 24000),
    lambda waveform: join([waveform], 24000),
]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("waveform", "sentence"),
    [
        (np.array([0.1, np.nan, 0.2]), "contains NaN or infinity"),
        (np.array([[0.1, np.inf]], np.float32), "contains NaN or infinity"),
        (np.full(5, 3e38, np.float32), r"has a sample of 3e\+38, where full scale is 1"),
        (np.array([0.0, -1e300]), r"has a sample of 1e\+300"),
        (np.zeros(0), "is empty"),
        (np.zeros((2, 0)), "is empty"),
        (np.zeros((1, 2, 100)), r"has shape \(1, 2, 100\)"),
        (np.float64(0.5), "is float64: give a numpy array"),
        (np.zeros(100, np.int16), "is int16: give a numpy array of float32"),
        ([0.1, 0.2], "is list: give a numpy array"),
        (np.zeros((24000, 2)), r"24000 channels.*not \[samples, channels\]"),
    ],
)
def test_every_tool_refuses_what_is_no_waveform(tool, waveform, sentence):
    with pytest.raises(ValueError, match=sentence):
        tool(waveform)


@pytest.mark.parametrize("rate", [0, -1, 24000.0, True, None, "24000", 768_001, 10**9, 10**400])
def test_every_tool_refuses_a_wrong_sample_rate(rate):
    waveform = np.ones(20000)
    for tool in (low_pass, normalize_loudness, trim_silence):
        with pytest.raises(ValueError, match="sample_rate is"):
            tool(waveform, rate)
    with pytest.raises(ValueError, match="sample_rate is"):
        join([waveform], rate)
