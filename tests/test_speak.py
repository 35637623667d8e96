"""The first command of the README: a text in, the demo voice's speech out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import speak


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, speak.__file__, "--here", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


def test_a_text_is_all_it_needs() -> None:
    options = speak.parse_arguments(["Hello."])
    assert (options.text, options.checkpoint, options.speaker, options.reference) == (
        "Hello.",
        None,
        None,
        None,
    )
    assert options.out == Path("speech.wav") and not options.here


def test_the_demo_voice_speaks_and_the_report_tells_duration_rtf_and_place(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="not run: the package soundfile is not installed")
    out = tmp_path / "a line.wav"
    done = run("Good evening.", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "demo_voice (" in done.stdout and f"written to {out}" in done.stdout
    seconds = float(re.search(r"([\d.]+) s of audio in [\d.]+ s: RTF [\d.]+,", done.stdout)[1])
    waveform, rate = soundfile.read(out)
    assert rate == 24000 and len(waveform) / rate == pytest.approx(seconds, abs=0.01) and seconds > 0
    assert abs(waveform).max() > 0.01


def test_the_speaker_is_the_first_unless_one_is_named(tmp_path: Path) -> None:
    def speech(*arguments: str) -> bytes:
        speak.speak(speak.parse_arguments(["Yes.", "--out", str(tmp_path / "speech.wav"), *arguments]))
        return (tmp_path / "speech.wav").read_bytes()

    unnamed = speech()
    assert unnamed == speech("--speaker", "heart")
    assert unnamed != speech("--speaker", "george")


def test_bad_input_gets_its_sentence_and_no_file(tmp_path: Path) -> None:
    done = run("Yes.", "--speaker", "vivian", "--out", tmp_path / "speech.wav")
    assert done.returncode == 2
    assert "speak.py: speaker 'vivian' is unknown to demo_voice" in done.stderr
    assert list(tmp_path.iterdir()) == []
