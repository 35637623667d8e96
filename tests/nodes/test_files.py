"""Helpers of the nodes that need no ComfyUI. They are loaded by path, because the package nodes imports ComfyUI."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.nodes.package import load

recordings = load("saving.recordings")
values = load("sound.values")


def test_a_link_out_of_the_folder_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "voices"
    folder.mkdir()
    assert recordings.confine(folder, "a.safetensors") == folder / "a.safetensors"
    try:
        (folder / "b.safetensors").symlink_to(tmp_path / "elsewhere")
    except OSError:
        pytest.skip("not run: this system does not allow links")
    with pytest.raises(ValueError, match="is outside the folder voices"):
        recordings.confine(folder, "b.safetensors")


def test_audio_converts_to_numpy_and_back() -> None:
    waveform = torch.arange(12, dtype=torch.float16).reshape(2, 2, 3)
    first, second = values.to_waveforms({"waveform": waveform, "sample_rate": 24000})
    assert first.dtype == np.float32 and np.array_equal(second, [[6, 7, 8], [9, 10, 11]])
    back = values.to_audio(second, 24000)
    assert torch.equal(back["waveform"], waveform[1:].float()) and back["sample_rate"] == 24000
    assert values.to_audio(np.zeros(5), 24000)["waveform"].shape == (1, 1, 5)


@pytest.mark.parametrize("audio", [None, {}, {"sample_rate": 24000}, {"waveform": torch.zeros(1, 1, 5)}])
def test_missing_audio_is_rejected(audio: object) -> None:
    """Get Video Components returns None for a video without a sound track."""
    with pytest.raises(ValueError, match=r"audio is missing .*: connect a recording"):
        values.to_waveforms(audio)


@pytest.mark.parametrize("shape", [(0, 1, 10), (1, 0, 10), (1, 1, 0), (1, 10), (10,)])
def test_an_empty_batch_is_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"audio has shape \(.*: connect a recording"):
        values.to_waveforms({"waveform": torch.zeros(shape), "sample_rate": 24000})


def test_a_batch_is_rejected_as_reference() -> None:
    batch = {"waveform": torch.zeros(3, 1, 10), "sample_rate": 24000}
    with pytest.raises(ValueError, match="audio is a batch of 3 recordings: connect a single recording"):
        values.to_one_waveform(batch, "audio")
    assert values.to_one_waveform({**batch, "waveform": torch.ones(1, 2, 4)}, "audio").shape == (2, 4)
