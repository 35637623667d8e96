"""What is measured of a shift: pitch, level and rate of known sounds, the rows, and the page's table."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from lab.benchmarks.moods.__main__ import FIGURES, RESULTS, describe, pair_figures, read_pairs
from pack import ROOT

RATE = 24000


def tone(hertz: float, seconds: float, level: float = 0.3) -> np.ndarray:
    """A sound with overtones, as a voice has them, and silence at both ends."""
    time = np.arange(round(seconds * RATE)) / RATE
    wave = sum(np.sin(2 * np.pi * hertz * k * time) / k for k in (1, 2, 3))
    return np.pad(level * wave, RATE // 4).astype(np.float32)


def test_the_recordings_of_a_pair_are_compared_by_name(tmp_path: Path) -> None:
    for side, hertz, seconds in (("toward", 150.0, 1.0), ("away", 120.0, 1.5)):
        folder = tmp_path / "pairs" / "loud" / side
        folder.mkdir(parents=True)
        soundfile.write(folder / "anna.wav", tone(hertz, seconds), RATE)
    [pair] = read_pairs(tmp_path / "pairs")
    found = pair_figures(pair)
    assert found["pitch"].value == pytest.approx(3.86, abs=0.3) and found["rate"].value == pytest.approx(
        50, abs=5
    )
    (tmp_path / "pairs" / "empty").mkdir()
    with pytest.raises(ValueError, match="has no recordings in toward or in away"):
        read_pairs(tmp_path / "pairs")


def test_the_page_has_the_rows_of_the_results_file() -> None:
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    page = (ROOT / "docs" / "log" / "moods.md").read_text(encoding="utf-8")
    assert len({row["pair"] for row in rows}) == 6 and {row["strength"] for row in rows} >= {0, 1, 2}
    for row in rows:
        assert describe(row) in page
        assert row["command"].startswith("python -m lab.benchmarks.moods ") and row["date"] in page
        assert row["machine"] and row["commit"] and set(row) >= {*FIGURES[:4]}
