"""``sweep``: what it writes, and where."""

from collections.abc import Callable
from pathlib import Path

import pytest
from qwen3_tts_morph.morph.synthesizer import Synthesizer


def test_a_sweep_into_a_folder_that_cannot_be_written_is_refused_before_it_begins(
    run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch = Path.touch

    def refused(path: Path, **more: object) -> None:
        if path.parent.name == "out":
            raise PermissionError(13, "Permission denied")
        touch(path, **more)

    monkeypatch.setattr(Path, "touch", refused)
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    done = run("sweep", "Yes.", "--out", "out")
    assert done.code == 2 and "cannot be written (Permission denied): choose another" in done.err


def test_a_sweep_writes_recordings_and_a_plot(run: Callable, tiny: list[str], tmp_path: Path) -> None:
    done = run("sweep", "Yes.", "--groups", "1,15", "--out", "out", *tiny)
    assert done.code == 0 and done.lines[0].startswith("| SEQ_GROUPS"), done.err
    assert len(done.lines) == 4
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["groups_01.wav", "groups_15.wav", "sweep.png"]
