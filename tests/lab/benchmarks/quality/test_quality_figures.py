"""The arithmetic of the quality study: paired differences, bars, controls, and what a voice is compared with."""

from pathlib import Path

import numpy as np
import pytest

from lab.benchmarks.quality.conditions import CONTROLS, STRATEGIES, Condition
from lab.benchmarks.quality.figures import METRICS, Row, find_power, read_rows
from lab.benchmarks.quality.folder import CODES, JUDGED, REFERENCES, RunFolder, write_json
from lab.benchmarks.quality.lines import Task
from lab.benchmarks.quality.report import describe_power
from lab.judges.stats import Figure, difference

EXACT, FAST = Condition(STRATEGIES["crossbar"], 15), Condition(STRATEGIES["crossbar"], 5)
BY_NAME = {metric.name: metric for metric in METRICS}


def change(low: float, high: float) -> Figure:
    return Figure((low + high) / 2, low, high, 10)


def control(name: str, **changes: Figure) -> Row:
    missing = dict.fromkeys(BY_NAME)
    return Row(Condition(STRATEGIES[name], 5), missing, {**missing, **changes})


def test_a_metric_has_power_if_both_controls_are_significantly_worse() -> None:
    rows = [
        control(
            "tail-zeroed", wer=change(0.01, 0.05), mos=change(-0.3, -0.1), dnsmos=change(-0.1, 0.1),
            similarity=change(0.01, 0.2), ended=change(-0.1, 0.1),
        ),
        control(
            "tail-random", wer=change(0.02, 0.05), mos=change(-0.3, 0.01), dnsmos=change(-0.2, -0.1),
            similarity=change(-0.2, -0.1), ended=change(-0.1, 0.1),
        ),
        Row(FAST, {}, {"wer": change(0.0, 0.5)}),
    ]  # fmt: skip
    rows[2].changes.update({name: None for name in BY_NAME if name != "wer"})
    power = find_power(rows, CONTROLS)
    assert power == {
        "wer": {"tail-zeroed": True, "tail-random": True},
        "mos": {"tail-zeroed": True, "tail-random": False},
        "dnsmos": {"tail-zeroed": False, "tail-random": True},
        # That a control seems better is no power to see harm.
        "similarity": {"tail-zeroed": False, "tail-random": True},
    }
    said = "\n".join(describe_power(power))
    assert said.count("has no power here") == 3
    assert "WER % distinguishes tail-zeroed and tail-random" in said
    assert describe_power({}) == ["Nothing was judged, so the controls say nothing."]


@pytest.mark.parametrize(
    ("name", "low", "high", "verdict"),
    [
        ("wer", -0.02, 0.01, "within"),
        ("wer", -0.02, 0.02, "open"),
        ("wer", 0.011, 0.05, "beyond"),
        ("similarity", -0.01, 0.5, "within"),
        ("similarity", -0.02, 0.5, "open"),
        ("similarity", -0.3, -0.02, "beyond"),
        ("cer", 0.5, 0.9, ""),
    ],
)
def test_verdicts_need_the_whole_interval(name: str, low: float, high: float, verdict: str) -> None:
    assert BY_NAME[name].verdict(change(low, high)) == verdict


def test_paired_differences_need_the_same_lines() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(4, 12, 100).astype(float)
    errors = rng.integers(0, 4, 100).astype(float)
    same = difference(errors, words, errors, words)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    more = difference(errors + 1, words, errors, words)
    assert more.value == pytest.approx(100 / words.sum()) and more.high - more.low < 0.02
    with pytest.raises(ValueError, match="need the same lines"):
        difference(errors, words, errors[1:], words[1:])


TASKS = [Task("one", "a", 0), Task("two", "b", 1), Task("three", "a", 2), Task("four", "b", 3)]


def judged(root: Path, condition: Condition, embeddings: list[list[float] | None], errors: int) -> None:
    """Write codes and verdicts of the four lines; with errors, the last line did not end by itself."""
    folder = RunFolder(root)
    for line, embedding in enumerate(embeddings):
        ended = "cap" if errors and line == 3 else "eos"
        write_json(folder.path(CODES, condition.key, line), {"ended": ended, "codes": [[0] * 16]})
        verdict = {
            "words": {"word_errors": errors, "words": 5, "letter_errors": errors, "letters": 20},
            "voice": {"embedding": embedding},
            "opinion": {"distillmos": 4.0 - errors, "dnsmos_overall": 3.0},
        }
        write_json(folder.path(JUDGED, condition.key, line), verdict)


def test_rows_are_read_from_the_verdicts(tmp_path: Path) -> None:
    east, north = [1.0, 0.0], [0.0, 1.0]
    judged(tmp_path, EXACT, [east, north, east, north], errors=0)
    judged(tmp_path, FAST, [east, north, north, None], errors=1)
    exact, fast = read_rows(RunFolder(tmp_path), [EXACT, FAST], EXACT, TASKS)
    assert fast.figures["wer"].value == 0.2 and fast.changes["wer"].value == 0.2
    assert fast.figures["mos"].value == 3.0 and fast.changes["mos"].low == -1.0
    assert exact.figures["ended"].value == 1.0 > exact.figures["ended"].low, "four of four prove little"
    assert fast.figures["ended"].value == 0.75 and fast.changes["ended"].value == -0.25
    assert exact.changes["wer"] is None
    # Without references a line is compared with its voice's other exact lines; without speech its similarity is 0.
    assert exact.figures["similarity"].value == pytest.approx(1.0)
    assert fast.figures["similarity"].value == pytest.approx((1 + 1 + 0 + 0) / 4)


def test_a_voice_is_compared_with_its_references_first(tmp_path: Path) -> None:
    judged(tmp_path, EXACT, [[1.0, 0.0]] * 4, errors=0)
    for voice, embedding in (("a", [1.0, 0.0]), ("b", [0.0, 1.0])):
        write_json(tmp_path / JUDGED / REFERENCES / voice / "0.json", {"voice": {"embedding": embedding}})
    [row] = read_rows(RunFolder(tmp_path), [EXACT], EXACT, TASKS)
    assert row.figures["similarity"].value == pytest.approx(0.5)
