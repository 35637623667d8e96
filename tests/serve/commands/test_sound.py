"""Sound files, and streams of sound."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.postprocess.pcm import to_s16
from qwen3_tts_morph.serve.commands import sound
from qwen3_tts_morph.serve.commands.arguments import FORMATS


def tone() -> np.ndarray:
    return np.sin(np.arange(24000, dtype=np.float32) / 10)


def test_a_file_that_cannot_be_replaced_stays_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    out = tmp_path / "speech.wav"
    out.write_bytes(b"yesterday's")
    monkeypatch.setattr(sound.os, "replace", locked)
    with pytest.raises(
        ValueError, match=r"speech.wav cannot be written \(Permission denied\): choose another"
    ):
        sound.write_sound(out, np.zeros(100, np.float32), 24000)
    assert out.read_bytes() == b"yesterday's" and list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("ending", FORMATS)
def test_every_supported_format_can_be_written_and_read(ending: str, tmp_path: Path) -> None:
    out = tmp_path / f"speech{ending.upper()}"
    sound.write_sound(out, tone(), 24000)
    waveform, rate = soundfile.read(out)
    assert len(waveform) / rate == pytest.approx(1, abs=0.06) and abs(waveform).max() > 0.5


def test_a_stream_has_the_samples_of_a_file_and_of_comfyui() -> None:
    samples = np.concatenate([tone(), [-1.0, 1.0, 1.5, -1.5, 0.0]]).astype(np.float32)
    content = sound.to_s16(samples)
    assert np.array_equal(content, to_s16(samples))
    written, _ = soundfile.read(io.BytesIO(sound.encode(samples, 24000, ".wav")), dtype="int16")
    assert np.array_equal(content, written)
    assert sound.encode(samples, 24000, ".pcm") == content.tobytes()
    streamed = sound.stream_header("wav", 24000) + content.tobytes()
    read, rate = soundfile.read(io.BytesIO(streamed), dtype="int16")
    assert rate == 24000 and np.array_equal(read, written)
    assert sound.stream_header("pcm", 24000) == b""


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    noise = tmp_path / "noise.wav"
    noise.write_bytes(bytes(range(256)) * 10)
    with pytest.raises(ValueError, match=r"noise.wav cannot be read as a recording: give a wav"):
        sound.read_recording(noise)
