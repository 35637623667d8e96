"""When a saved voice's file counts as changed."""

from pathlib import Path

import pytest

from tests.nodes.package import load

saved_voices = load("voices.saved_voices")


def test_a_file_that_is_saved_where_there_was_none_has_not_changed(tmp_path: Path) -> None:
    known, path = saved_voices.SavedVoices(), tmp_path / "anna"
    before = known.fingerprint(path)
    with known.saving(path):
        path.write_text("one")
    assert known.fingerprint(path) == before


def test_a_file_that_is_deleted_has_changed_and_saved_again_it_has_not(tmp_path: Path) -> None:
    known, path = saved_voices.SavedVoices(), tmp_path / "anna"
    first = known.fingerprint(path)
    with known.saving(path):
        path.write_text("one")
    path.unlink()
    deleted = known.fingerprint(path)
    with known.saving(path):
        path.write_text("one")
    assert deleted != first and known.fingerprint(path) == deleted


def test_a_file_that_another_program_writes_or_a_run_replaces_has_changed(tmp_path: Path) -> None:
    known, path = saved_voices.SavedVoices(), tmp_path / "anna"
    seen = [known.fingerprint(path)]
    with known.saving(path):
        path.write_text("one")
    path.write_text("foreign")
    seen.append(known.fingerprint(path))
    with known.saving(path):
        path.write_text("another")
    seen.append(known.fingerprint(path))
    assert len(set(seen)) == 3 and known.fingerprint(path) == seen[2]


def test_a_file_that_could_not_be_saved_is_not_noted(tmp_path: Path) -> None:
    known, path = saved_voices.SavedVoices(), tmp_path / "anna"
    with pytest.raises(OSError), known.saving(path):
        raise OSError("the disk is full")
    assert known.fingerprint(path) is None
