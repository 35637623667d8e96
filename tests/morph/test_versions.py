"""Kept lines are found while two numbers of the code stay: they must be raised when speech changes."""

import json

import pytest
from qwen3_tts_morph.morph.batch import key

from lab import versions


@pytest.mark.parametrize("name", versions.MAKERS)
def test_speech_that_changes_has_another_version(name: str) -> None:
    recorded_on = json.loads(versions.FILE.read_text(encoding="utf-8"))["recorded on"]
    if name == "SOUND_VERSION" and recorded_on != versions.here():
        pytest.skip(f"recorded on {recorded_on}: sums round differently on {versions.here()}")
    if name == "TEXT_VERSION":
        pytest.importorskip("num2words", reason="not run: num2words is not installed")
    assert versions.find_change(name) == ""


def test_a_change_says_which_number_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(versions.MAKERS, "TEXT_VERSION", lambda: {"It is 5.": "another"})
    assert "TEXT_VERSION is still 1: raise it in morph/batch/key.py" in versions.find_change("TEXT_VERSION")
    monkeypatch.setattr(key, "TEXT_VERSION", 2)
    assert "TEXT_VERSION is 2: run python -m lab.versions" in versions.find_change("TEXT_VERSION")
