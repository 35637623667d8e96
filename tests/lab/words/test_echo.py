"""What the table of echoes counts, and how references are cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.words.echo import Heard, Judge, Told, parse, summarise, words_around
from lab.words.endings import ENDINGS, Recording, end_recording

RATE = 24000


def recording() -> Recording:
    """Two seconds of sound and half a second of quiet; the last sentence begins at 1 s, the last word at 1.6 s."""
    sound = np.concatenate([np.ones(2 * RATE), np.zeros(RATE // 2)]).astype(np.float32)
    return Recording(sound, RATE, "One two. Three four.", 1.0, 1.6)


@pytest.mark.parametrize(
    ("ending", "seconds"), [("whole", 2.5), ("word", 2.0), ("inside", 1.8), ("anywhere", 1.5)]
)
def test_a_reference_ends_where_its_ending_says(ending: str, seconds: float) -> None:
    assert ending in ENDINGS
    assert len(end_recording(recording(), ending, 0.5)) == round(seconds * RATE)


@pytest.mark.parametrize(
    ("heard", "counts"),
    [
        ("The bridge was closed.", (0, 0)),
        ("In her coat. The bridge was closed.", (3, 0)),
        ("Bridge was closed.", (0, 0)),
        ("A bridge was closed.", (0, 0)),
        ("Coat, a bridge was closed.", (1, 0)),
        ("The bridge was closed. Closed.", (0, 1)),
        ("The bridge was hard to close, hard.", (0, 3)),
        ("Something else entirely, as it is, and more.", (4, 0)),
        ("", (0, 0)),
    ],
)
def test_words_before_and_after_the_text_are_counted(heard: str, counts: tuple[int, int]) -> None:
    assert words_around("The bridge was closed.", heard) == counts


def told(called: bool, ended: str = "eos") -> Told:
    return Told("A.", "B.", np.zeros((2, 16)), np.zeros((3, 16)), np.zeros(4), ended, called)


def test_a_row_has_sums_and_what_the_head_found() -> None:
    lines = [told(True), told(True), told(False), told(False, "cap")]
    heard = [
        Heard(0, 10, 2, 0, True, 0.9, 0.1),
        Heard(1, 10, 0, 1, False, 0.8, 0.2),
        Heard(3, 10, 1, 2, False, 0.9, 0.2),
        Heard(0, 10, 0, 0, False, 0.8, 0.3),
    ]
    assert summarise(lines, heard) == {
        "lines": 4,
        "echoes": 1,
        "before": 2,
        "after": 2,
        "called": 2,
        "found": 1,
        "alarms": 1,
        "wrong_words_percent": 10.0,
        "similarity": 0.85,
        "onset_ms": 200,
        "not_ended": 1,
    }


def test_a_line_is_kept_as_it_was(tmp_path: Path) -> None:
    told(True).write(tmp_path / "one.npz")
    again = Told.read(tmp_path / "one.npz")
    assert (again.text, again.transcript, again.ended, again.called) == ("A.", "B.", "eos", True)
    assert again.codes.shape == (2, 16) and again.reference.shape == (3, 16)


def test_each_item_has_a_recogniser_of_its_own_and_the_order_stays() -> None:
    judge = Judge.__new__(Judge)
    judge.ears = ["one", "two"]  # type: ignore[list-item]
    busy: set[str] = set()

    def work(ear: str, item: int) -> int:
        assert ear not in busy
        busy.add(ear)
        busy.discard(ear)
        return item * item

    assert judge.each(work, range(20)) == [item * item for item in range(20)]  # type: ignore[arg-type]


def test_the_command_measures_all_endings_and_lengths_by_default() -> None:
    asked = parse(["folder", "--device", "cpu"])
    assert (asked.endings, asked.paddings, asked.lines) == (ENDINGS, (0, 80, 240, 480), 60)
