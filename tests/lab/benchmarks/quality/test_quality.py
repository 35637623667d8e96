"""The quality study from its command line: a run on a tiny checkpoint with fake judges, then its rules."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from lab.benchmarks.quality import __main__ as command

FIGURES = ("wer", "cer", "similarity", "mos", "ended")
TEXTS = ("One line.", "And another line.", "A third, to be sure.")


class LoudnessJudge:
    """A fake judge whose scores depend on the samples, so that sums can be checked."""

    def __init__(self, name: str, heard: list[str]):
        self.name = name
        self.heard = heard

    def judge(self, audio: np.ndarray, text: str) -> dict[str, Any]:
        self.heard.append(self.name)
        level = float(np.abs(audio).mean())
        if self.name == "words":
            return {"word_errors": 1, "words": 4, "letter_errors": 2, "letters": len(text) + 1}
        if self.name == "voice":
            return {"embedding": [1.0, level, level**2]}
        return {"distillmos": 3.0 + level, "dnsmos_overall": 2.0 + level}


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Install fake judges; return the list of the calls they got."""
    asked: list[str] = []
    judges = {name: LoudnessJudge(name, asked) for name in ("words", "voice", "opinion")}
    monkeypatch.setattr(command, "make_judges", lambda *_: judges)
    return asked


@pytest.fixture
def world(tiny: Path, tmp_path: Path, short_lines: None, heard: list[str]) -> Callable[..., int]:
    """``world(*more)``: run the study on two recordings and three lines, into ``tmp_path / "run"``."""
    torch.set_num_threads(1)
    folder = tmp_path / "voices" / "beth"
    folder.mkdir(parents=True)
    for number, pitch in enumerate((130, 140, 220)):
        tone = 0.3 * np.sin(2 * np.pi * pitch * np.arange(36000) / 24000)
        path = tmp_path / "voices" / "adam.flac" if number == 2 else folder / f"{number}.wav"
        soundfile.write(path, tone, 24000)
    (tmp_path / "lines.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    options = [
        *("--checkpoint", str(tiny), "--out", str(tmp_path / "run"), "--device", "cpu"),
        *("--voices", str(tmp_path / "voices"), "--lines", str(tmp_path / "lines.txt")),
        *("--seq-groups", "1", "15"),
    ]
    return lambda *more: command.main([*options, *more])


@pytest.mark.slow
def test_one_command_writes_rows_and_a_report(world, tmp_path, capsys) -> None:
    assert world("--name", "mine") == 0
    run = tmp_path / "run"
    document = json.loads((run / "quality_mine.json").read_text(encoding="utf-8"))
    rows = {(row["strategy"], row["seq_groups"]): row for row in document["rows"]}
    assert list(rows) == [("crossbar", 1), ("crossbar", 15), ("tail-zeroed", 5), ("tail-random", 5)]
    for (_, groups), row in rows.items():
        for figure in FIGURES:
            value, low, high = row[figure]
            assert low <= value <= high
        assert row["wer"][0] == 0.25
        assert (row["against_exact"]["mos"] is None) == (groups == 15)
    assert document["power"]["wer"] == {"tail-zeroed": False, "tail-random": False}
    report = (run / "quality.md").read_text(encoding="utf-8")
    assert document["machine"] in report
    assert report in capsys.readouterr().out
    assert "| crossbar | 1 | 25.00 [25.00, 25.00] |" in report and "**WER % has no power here**" in report
    page = (run / "quality.html").read_text(encoding="utf-8")
    assert page.count("<audio") == 3 * len(rows) and "And another line." in page


def test_steps_can_run_separately_and_the_last_ones_need_no_checkpoint(world, tmp_path, heard) -> None:
    assert world("--steps", "codes", "wavs") == 0 and not heard
    run = tmp_path / "run"
    assert not (run / "quality.md").exists()
    assert command.main(["--out", str(run), "--seq-groups", "1,15", "--steps", "judge", "report"]) == 0
    [path] = run.glob("quality_*.json")
    row = json.loads(path.read_text(encoding="utf-8"))["rows"][0]
    assert row["mos"] is not None and row["ended"] is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--strategies", "crosbar"], "unknown: choose one of crossbar"),
        (["--strategies", "tail-zeroed:4"], "supports only SEQ_GROUPS"),
        (["--strategies", "trained:5"], "no trained tail for SEQ_GROUPS 5"),
        (["--strategies", "crossbar:16"], "SEQ_GROUPS is 16"),
        (["--seq-groups", "one"], "write e.g."),
        (["--steps", "report", "--out", "nowhere"], "contains no run"),
    ],
)
def test_bad_input_prints_one_sentence(world, options, said, capsys) -> None:
    assert world(*options) == 2
    assert said in capsys.readouterr().err
