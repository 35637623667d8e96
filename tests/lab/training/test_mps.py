"""MPS around a block: started, stopped, waited for; with fake programs instead of NVIDIA's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.training.corpus import mps

pytestmark = pytest.mark.skipif(os.name == "nt", reason="MPS is Linux's")


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that exists while the fake daemon runs; it stops half a second after the quit command."""
    running, programs = tmp_path / "running", tmp_path / "bin"
    programs.mkdir()
    control = (
        f'if [ "$1" = -d ]; then touch {running}; elif grep -q quit; then (sleep 0.5; rm {running}) & fi'
    )
    for name, script in ((mps.CONTROL, control), ("pgrep", f"test -e {running}")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return running


def test_it_runs_during_the_block_and_has_stopped_after_it(daemon: Path) -> None:
    with mps.shared_gpus():
        assert daemon.exists()
    assert not daemon.exists()
    with pytest.raises(KeyError), mps.shared_gpus():
        raise KeyError
    assert not daemon.exists()


def test_only_processes_started_in_the_block_find_it(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, logs = mps.VARIABLES
    monkeypatch.setenv(pipe, "before")
    monkeypatch.delenv(logs, raising=False)
    with mps.shared_gpus():
        folder = os.environ[pipe]
        assert Path(folder).is_dir() and folder == os.environ[logs]
    assert os.environ[pipe] == "before" and logs not in os.environ and not Path(folder).exists()


def test_a_running_daemon_is_left_alone(daemon: Path) -> None:
    daemon.touch()
    with mps.shared_gpus():
        pass
    assert daemon.exists()


def test_a_daemon_that_does_not_stop_is_reported(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = daemon.parent / "bin" / mps.CONTROL
    control.write_text(f'#!/bin/sh\nif [ "$1" = -d ]; then touch {daemon}; fi\n', encoding="utf-8")
    monkeypatch.setattr(mps, "TIMEOUT", 0.1)
    with pytest.raises(RuntimeError, match=mps.DAEMONS), mps.shared_gpus():
        pass


def test_without_mps_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with mps.shared_gpus():
        assert not list(tmp_path.iterdir())
