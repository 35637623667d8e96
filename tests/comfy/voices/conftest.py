"""Fixtures of the tests that save voices."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.comfy import graphs


@pytest.fixture(scope="module")
def checkpoints_and_recordings(base_dir: Path, model_folders: Path) -> None:
    """Place tiny checkpoints, and the recordings that are cloned."""
    graphs.place_checkpoints(model_folders)
    graphs.place_recordings(base_dir / "input")


@pytest.fixture
def library(base_dir: Path, checkpoints_and_recordings: None) -> Iterator[Path]:
    """The voice library's folder; files that a test adds are removed afterwards."""
    folder = base_dir / "models" / "qwen3-tts-voices"
    folder.mkdir(exist_ok=True)
    before = set(folder.iterdir())
    yield folder
    for path in set(folder.iterdir()) - before:
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
