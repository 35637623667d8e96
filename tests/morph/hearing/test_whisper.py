"""Whisper through faster-whisper: what is missing is said; tests/morph/voice/test_transcript.py hears speech."""

import builtins

import pytest
from qwen3_tts_morph.morph.hearing import whisper


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
