"""A device has a few rows at a time, and who looks waits for none of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from qwen3_tts_morph.morph.waveform.in_flight import MOST_ROWS, RowsInFlight


@dataclass
class Row:
    """A row on a device that is done when it is told so."""

    number: int
    done: list[int]
    waited: list[int]

    @property
    def is_ready(self) -> bool:
        return self.number in self.done

    def wait(self) -> np.ndarray:
        self.waited.append(self.number)
        return np.array([self.number])


def test_rows_are_launched_as_those_before_them_are_taken() -> None:
    launched, done, waited, unpacked = [], [], [], []

    def start(row):
        launched.append(row)
        return Row(row, done, waited)

    def unpack(row, samples):
        assert samples.tolist() == [row] and len(launched) == min(10, MOST_ROWS + len(unpacked) + 1)
        unpacked.append(row)

    made = RowsInFlight(range(10), start, unpack, lambda: ["waves"])
    assert launched == list(range(MOST_ROWS)) and not made.look() and not waited, "nothing is ready"
    done += [0, 1]
    assert not made.look() and unpacked == [0], "one at a time"
    assert not made.look() and not made.look() and unpacked == [0, 1] and launched == list(range(10))
    done += range(2, 10)
    assert [made.look() for _ in range(8)] == [False] * 7 + [True]
    assert made.look() and made.result() == ["waves"] and waited == unpacked == list(range(10))


def test_who_wants_the_result_waits_for_all_rows() -> None:
    launched, waited = [], []

    def start(row):
        launched.append(row)
        return Row(row, [], waited)

    made = RowsInFlight(range(20), start, lambda *_: None, lambda: ["waves"])
    assert made.result() == ["waves"] and launched == waited == list(range(20))
    assert RowsInFlight([], start, lambda *_: None, lambda: []).look()
