"""``--play``: the sound goes to a device, here one made of Python, while it is made."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.serve.terminal import player
from qwen3_tts_morph.serve.terminal.player import find_device, playing


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
    monkeypatch.setattr(player, "PACKAGE", "no_such_package")
    done = run("Yes.", "--play")
    assert done.code == 2 and "-m pip install no_such_package" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise OSError("PortAudio library not found")

    monkeypatch.setattr(player.importlib, "import_module", fail)
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
