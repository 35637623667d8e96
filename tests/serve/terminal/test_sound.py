"""Sound files, and streams of sound."""

import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.audio.formats import FILES
from qwen3_tts_morph.morph.audio.writer import encode_by_libsndfile, open_encoder
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.postprocess.convert import to_s16
from qwen3_tts_morph.serve.terminal import sound
from qwen3_tts_morph.serve.terminal.sound import find_device, playing


def tone() -> np.ndarray:
    return np.sin(np.arange(24000, dtype=np.float32) / 10)


def test_a_file_that_cannot_be_replaced_stays_complete(tmp_path, monkeypatch) -> None:
    def locked(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    out = tmp_path / "speech.wav"
    out.write_bytes(b"yesterday's")
    monkeypatch.setattr(Path, "replace", locked)
    with pytest.raises(ValueError, match=r"speech.wav cannot be written \(Permission denied\): choose another"):
        sound.write_sound(out, np.zeros(100, np.float32), 24000)
    assert out.read_bytes() == b"yesterday's" and list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("ending", FILES)
def test_every_supported_format_can_be_written_and_read(ending: str, tmp_path: Path) -> None:
    out = tmp_path / f"speech{ending.upper()}"
    sound.write_sound(out, tone(), 24000)
    waveform, rate = soundfile.read(out)
    assert len(waveform) / rate == pytest.approx(1, abs=0.06) and abs(waveform).max() > 0.5


def test_a_stream_has_the_samples_of_a_file_and_of_comfyui() -> None:
    samples = np.concatenate([tone(), [-1.0, 1.0, 1.5, -1.5, 0.0]]).astype(np.float32)
    content = to_s16(samples)
    written, _ = soundfile.read(io.BytesIO(encode_by_libsndfile(samples, 24000, "wav")), dtype="int16")
    assert np.array_equal(content, written)
    streamed = open_encoder("wav", 24000).add(samples)
    read, rate = soundfile.read(io.BytesIO(streamed), dtype="int16")
    assert rate == 24000 and np.array_equal(read, written)
    pcm = open_encoder("pcm", 24000)
    assert pcm.finish() == b"" and pcm.add(samples) == content.tobytes() == streamed[44:]


@pytest.mark.parametrize("name", [suffix[1:] for suffix in FILES])
def test_a_long_sound_is_written_to_its_end(name: str) -> None:
    """libsndfile fails with long arrays in some formats."""
    long = np.tile(tone(), 90)
    assert soundfile.info(io.BytesIO(encode_by_libsndfile(long, 24000, name))).duration >= 90


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    noise = tmp_path / "noise.wav"
    noise.write_bytes(bytes(range(256)) * 10)
    with pytest.raises(ValueError, match=r"noise.wav cannot be read as a recording: give a wav"):
        sound.read_recording(noise)


@pytest.mark.parametrize("samples", [2**36 - 1, 0])
def test_a_header_that_claims_any_length_is_one_sentence(tmp_path: Path, samples: int) -> None:
    """numpy would be asked for 256 GiB. 0 is what a program writes that does not know the length yet."""
    path = tmp_path / "speech.flac"
    soundfile.write(path, tone(), 24000)
    content = bytearray(path.read_bytes())
    content[21] = content[21] & 0xF0 | samples >> 32  # 36 bits of STREAMINFO
    content[22:26] = (samples & 0xFFFFFFFF).to_bytes(4, "big")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot be read as a recording: give a wav.*samples: save it again"):
        sound.read_recording(path)


CODECS = {
    ".m4a": ("ipod", "aac"),
    ".mp4": ("mp4", "aac"),
    ".aac": ("adts", "aac"),
    ".webm": ("webm", "libopus"),
}


def write_compressed(path: Path) -> None:
    av = pytest.importorskip("av", reason="not run: PyAV is not installed")
    container_kind, codec = CODECS[path.suffix.lower()]
    with av.open(str(path), "w", format=container_kind) as container:
        stream = container.add_stream(codec, rate=48000, layout="mono")
        wave = 0.5 * np.sin(np.arange(48000) * 2 * np.pi * 440 / 48000)
        frame = av.AudioFrame.from_ndarray(wave[None].astype(np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 48000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@pytest.mark.parametrize("ending", [*CODECS, ".M4A"])
def test_what_telephones_and_browsers_record_is_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"speech{ending}"
    write_compressed(path)
    waveform, rate = sound.read_recording(path)
    assert (waveform.dtype, waveform.shape[0], rate) == (np.float32, 1, 48000)
    assert waveform.shape[1] / rate == pytest.approx(1, abs=0.06)
    middle = waveform[0, 10000:34000]
    assert np.argmax(np.abs(np.fft.rfft(middle))) * rate / middle.size == pytest.approx(440, abs=3)


@pytest.mark.parametrize("content", [b"", b"junk" * 500, b"#EXTM3U\nfile:///etc/passwd\n"])
@pytest.mark.parametrize("ending", list(CODECS))
def test_a_compressed_file_that_is_none_is_refused(tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"speech{ending}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot be read as a recording: give a wav"):
        sound.read_recording(path)


def test_without_pyav_the_formats_that_can_be_read_are_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sound, "is_installed", lambda: False)
    path = tmp_path / "speech.m4a"
    path.write_bytes(b"junk" * 500)
    with pytest.raises(ValueError, match=r"give a wav, flac, ogg or mp3 file \("):
        sound.read_recording(path)


def test_a_link_beside_the_file_is_not_written_through(tmp_path: Path) -> None:
    out, outside = tmp_path / "out" / "speech.wav", tmp_path / "outside"
    out.parent.mkdir()
    try:
        (out.parent / f"speech.wav.{os.getpid()}.part").symlink_to(outside)
    except OSError:
        pytest.skip("not run: this system does not allow links")
    sound.write_sound(out, tone(), 24000)
    assert not outside.exists() and out.is_file() and not out.is_symlink()


class PortAudioError(Exception):
    """Like sounddevice's."""


@dataclass
class Device:
    """What sounddevice is to us, and what was done with it."""

    missing: bool = False
    heard: bytes = b""
    done: list[str] = field(default_factory=list)
    opened: dict[str, Any] = field(default_factory=dict)
    PortAudioError: type[Exception] = PortAudioError

    def query_devices(self, kind: str) -> dict[str, str]:
        if self.missing:
            raise PortAudioError("no default output device")
        return {"name": kind}

    def RawOutputStream(self, **options: Any) -> SimpleNamespace:
        self.opened = options
        note = {name: lambda name=name: self.done.append(name) for name in ("start", "stop", "abort", "close")}
        return SimpleNamespace(write=self._write, **note)

    def _write(self, data: bytes) -> None:
        self.heard += data


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setitem(sys.modules, "sounddevice", made)
    return made


def test_what_is_heard_is_what_is_written(run, tiny, tmp_path, device) -> None:
    done = run("Yes.", "--play", "--out", tmp_path / "a.wav", *tiny)
    assert done.code == 0 and done.lines == [str(tmp_path / "a.wav")], done.err
    assert device.opened["samplerate"] == 24000 and device.done == ["start", "stop", "close"]
    written, _ = soundfile.read(tmp_path / "a.wav", dtype="int16")
    assert np.array_equal(np.frombuffer(device.heard, "<i2"), written) and len(written) > 0


def test_without_a_file_nothing_is_written(run, tiny, tmp_path, device) -> None:
    before = set(tmp_path.iterdir())
    done = run("Yes.", "--play", *tiny)
    assert (done.code, done.lines) == (0, []) and "times real time" in done.err and device.heard
    assert set(tmp_path.iterdir()) == before


def test_a_missing_package_or_device_is_said_before_the_model_is_loaded(run, device, monkeypatch) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    device.missing = True
    done = run("Yes.", "--play")
    assert done.code == 2 and "no sound device can play (no default output device): connect one" in done.err
    monkeypatch.setattr(sound, "PACKAGE", "no_such_package")
    done = run("Yes.", "--play")
    assert done.code == 2 and "-m pip install no_such_package" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise OSError("PortAudio library not found")

    monkeypatch.setattr(sound.importlib, "import_module", fail)
    with pytest.raises(ValueError, match="libportaudio2"):
        find_device()


def test_an_interrupted_sound_is_cut_off(device: Device) -> None:
    with pytest.raises(KeyboardInterrupt), playing(device, 24000):
        raise KeyboardInterrupt
    assert device.done == ["start", "abort", "close"]


@pytest.mark.parametrize(
    ("words", "why"), [(("--out", "-"), "leave one out"), (("--format", "flac"), "name one with --out")]
)
def test_options_that_do_not_fit(run: Callable, device: Device, words: tuple[str, ...], why: str) -> None:
    done = run("Yes.", "--play", *words)
    assert done.code == 2 and why in done.err
