"""The comparison of libraries for speed and pitch: its arithmetic, and the table in the documentation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from qwen3_tts_morph.morph.speech.lines import LineReport, Spoken
from qwen3_tts_morph.postprocess.stretch import Stretch

from lab.benchmarks.stretch import LIBRARIES, RESULTS, Judged, Lines, Row, measure, save, summarise, table

ROOT = Path(__file__).resolve().parents[3]
RATE = 24000


class Length:
    """Judges a recording by its length in seconds."""

    def judge(self, wave: np.ndarray, rate: int) -> Judged:
        return Judged(np.array([1.0, len(wave) / rate - 2]), len(wave) / rate)


def lines() -> Lines:
    wave = (0.3 * np.sin(2 * np.pi * 200 * np.arange(2 * RATE) / RATE)).astype(np.float32)
    spoken = [Spoken(wave, RATE, LineReport("", "Hello.", 25, 2.0, "eos", 1))] * 2
    return Lines(spoken, [Length().judge(one.waveform, RATE) for one in spoken], Length())


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("by", [Stretch(1.25), Stretch(0.8), Stretch(semitones=3.0)])
def test_every_library_changes_the_length_by_the_speed_alone(library: str, by: Stretch) -> None:
    if library == "FFmpeg atempo":
        pytest.importorskip("av", reason="not run: no av")
    row = measure(library, LIBRARIES[library][1], by, lines())
    assert row.distillmos[0] == pytest.approx(2 / by.speed, abs=0.02)
    assert row.length_error_ms < 20 and row.cost > 0 and row.lines == 2


def test_the_rows_are_saved_with_machine_date_and_versions(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="not run: no av")
    before = lines().before
    row = summarise("unchanged", Stretch(), before, before)
    assert row.similarity == (1, 1, 1) and row.distillmos == (2, 2, 2)
    save([row], tmp_path / "rows.json")
    document = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))
    assert {"machine", "date", "versions", "command"} <= set(document)
    assert document["rows"][0]["library"] == "unchanged" and "python-stretch" in document["versions"]


def test_the_documentation_has_the_measured_table() -> None:
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = [
        Row(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
        for row in document["rows"]
    ]
    page = (ROOT / "docs" / "timing.md").read_text(encoding="utf-8")
    assert table(rows) in page and document["date"] in page and document["command"] in page
