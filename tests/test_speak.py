"""The first command of the README: a text in, the demo voice's speech out."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import speak


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command with a Western European terminal encoding, as is common on Windows."""
    command = [sys.executable, speak.__file__, "--here", *map(str, arguments)]
    env = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    return subprocess.run(command, capture_output=True, text=True, encoding="cp1252", env=env)


def test_only_the_text_is_required() -> None:
    options = speak.parse_arguments(["Hello."])
    assert (options.text, options.checkpoint, options.speaker, options.reference) == (
        "Hello.",
        None,
        None,
        None,
    )
    assert options.out == Path("speech.wav") and not options.here


def test_the_demo_voice_speaks_and_the_report_has_duration_rtf_and_path(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="not run: the package soundfile is not installed")
    out = tmp_path / "a line.wav"
    done = run("Good evening, \u0418\u0432\u0430\u043d.", "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(out)]  # for scripts: nothing but the path
    assert "demo_voice (" in done.stderr and r"\u0418\u0432\u0430\u043d" in done.stderr
    assert "Traceback" not in done.stderr and "\r" not in done.stderr and "frame 1 " not in done.stderr
    seconds = float(re.search(r"([\d.]+) s of audio in [\d.]+ s: RTF [\d.]+,", done.stderr)[1])
    waveform, rate = soundfile.read(out)
    assert rate == 24000 and len(waveform) / rate == pytest.approx(seconds, abs=0.01) and seconds > 0
    assert abs(waveform).max() > 0.01
    assert list(tmp_path.iterdir()) == [out]


def test_the_speaker_is_the_first_unless_one_is_named(tmp_path: Path) -> None:
    def speech(*arguments: str) -> bytes:
        speak.speak(speak.parse_arguments(["Yes.", "--out", str(tmp_path / "speech.wav"), *arguments]))
        return (tmp_path / "speech.wav").read_bytes()

    unnamed = speech()
    assert unnamed == speech("--speaker", "heart")
    assert unnamed != speech("--speaker", "george")


def test_bad_input_gets_an_error_sentence_and_no_file(tmp_path: Path) -> None:
    done = run("Yes.", "--speaker", "vivian", "--out", tmp_path / "speech.wav")
    assert done.returncode == 2
    assert "speak.py: speaker 'vivian' is unknown to demo_voice" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--out", "{}"], "is a folder: name a file"),
        (["--out", "{}/speech.txt"], "does not end in one of .wav, .flac, .ogg, .mp3"),
        (["--out", "{}/none/speech.wav"], "does not exist: create it"),
        (["--out", "{}/" + 250 * "x" + ".wav"], "cannot be written"),
        (["--reference", "{}/none.wav"], "is not a file"),
        (["--transcript", "Yes."], "give the recording with --reference"),
        (["--speaker", "emma", "--describe", "a voice"], "not allowed with"),
        (["--seq-groups", "99"], "is not a whole number from 1 to 15"),
        (["--seq-groups", "5.0"], "is not a whole number from 1 to 15"),
        (["--seed", "-1"], "is not a whole number from 0 to 18446744073709551615"),
        (["--seed", str(2**64)], "is not a whole number from 0 to"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_installed_or_loaded(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        speak.parse_arguments(["Yes.", *(word.format(tmp_path) for word in arguments)])
    told = capsys.readouterr()
    assert sentence in told.err and not told.out
    assert list(tmp_path.iterdir()) == []


def test_an_empty_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        speak.parse_arguments(["  "])
    assert "the text is empty" in capsys.readouterr().err


def test_the_limits_equal_the_engines() -> None:
    from qwen3_tts_morph.morph import options
    from qwen3_tts_morph.morph.text import script

    assert speak.MOST_GROUPS == options.PREDICTED_GROUPS and speak.MAX_SEED == script.MAX_SEED


def test_a_reference_that_is_not_a_recording_is_refused_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("soundfile", reason="not run: the package soundfile is not installed")

    from qwen3_tts_morph.morph.synthesizer import Synthesizer

    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    noise = tmp_path / "noise.wav"
    noise.write_bytes(bytes(range(256)) * 10)
    monkeypatch.setattr(
        sys,
        "argv",
        ["speak.py", "Yes.", "--here", "--reference", str(noise), "--out", str(tmp_path / "a.wav")],
    )
    assert speak.main() == 2
    assert f"{noise} cannot be read as a recording: give a wav" in capsys.readouterr().err


def test_an_interrupt_ends_quietly_with_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(speak, "speak", interrupted)
    monkeypatch.setattr(sys, "argv", ["speak.py", "Yes.", "--here", "--out", str(tmp_path / "a.wav")])
    assert speak.main() == 130
    assert capsys.readouterr() == ("", "")


def test_a_file_that_cannot_be_replaced_stays_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("soundfile", reason="not run: the package soundfile is not installed")

    def locked(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    out = tmp_path / "speech.wav"
    out.write_bytes(b"yesterday's")
    monkeypatch.setattr(speak.os, "replace", locked)
    with pytest.raises(
        ValueError, match=r"speech.wav cannot be written \(Permission denied\): choose another"
    ):
        speak.write_sound(out, np.zeros(100, np.float32), 24000)
    assert out.read_bytes() == b"yesterday's" and list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("ending", speak.FORMATS)
def test_every_supported_format_can_be_written_and_read(ending: str, tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="not run: the package soundfile is not installed")
    out = tmp_path / f"speech{ending.upper()}"
    speak.write_sound(out, np.sin(np.arange(24000, dtype=np.float32) / 10), 24000)
    waveform, rate = soundfile.read(out)
    assert rate == 24000 and len(waveform) >= 24000 and abs(waveform).max() > 0.5


def test_a_closed_pipe_is_not_an_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        speak.say("nobody hears this", stream)
        speak.say("nor this", stream)


def test_frames_are_counted_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with speak.counted_frames() as show:
        show(3, 20)
    assert sys.stderr.getvalue() == "\rframe 3 of about 20\n"
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with speak.counted_frames() as show:
        assert show is None
