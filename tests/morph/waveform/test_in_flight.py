"""A device has a few rows at a time, who looks waits for none of them, and a line is there with its last row."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import pytest
from qwen3_tts_morph.morph.codec.packing import CodecChunk
from qwen3_tts_morph.morph.waveform import engine as module
from qwen3_tts_morph.morph.waveform.engine import MOST_ROWS, InFlight, RowsInFlight, take_all


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


class Copying:
    """A thread that copies at once, or when it is told so."""

    def __init__(self) -> None:
        self.later, self.waiting = False, list[Callable[[], None]]()

    def submit(self, function, /, *args):
        future: Future[None] = Future()

        def copy() -> None:
            try:
                future.set_result(function(*args))
            except ValueError as error:
                future.set_exception(error)

        self.waiting.append(copy)
        if not self.later:
            self.copy()
        return future

    def copy(self) -> None:
        self.waiting.pop(0)()


def row_of(*lines: int) -> list[CodecChunk]:
    return [CodecChunk(line, 0, 0, 1) for line in lines]


def waves_of(made: dict[int, np.ndarray]) -> dict[int, int]:
    return {line: int(wave[0]) for line, wave in made.items()}


@pytest.fixture(autouse=True)
def copying(monkeypatch: pytest.MonkeyPatch) -> Copying:
    made = Copying()
    monkeypatch.setattr(module, "ThreadPoolExecutor", lambda *_: made)
    return made


def in_flight(lines: int, rows: list[list[CodecChunk]], done=(), waited=None, unpack=lambda *_: None):
    def start(row):
        return Row(rows.index(row), done, [] if waited is None else waited)

    return RowsInFlight(lines, rows, start, unpack, lambda line: np.array([line]))


def test_rows_are_launched_as_those_before_them_are_taken() -> None:
    rows = [row_of(number) for number in range(10)]
    launched, done, waited, unpacked = [], [], [], []

    def start(row):
        launched.append(rows.index(row))
        return Row(launched[-1], done, waited)

    def unpack(row, samples):
        assert samples.tolist() == [rows.index(row)]
        unpacked.append(rows.index(row))

    made = RowsInFlight(10, rows, start, unpack, lambda line: np.array([10 * line]))
    assert launched == list(range(MOST_ROWS)) and not made.take() and not waited, "nothing is ready"
    done += [0, 1]
    assert waves_of(made.take()) == {0: 0} and unpacked == [0], "one at a time"
    assert waves_of(made.take()) == {1: 10} and not made.take() and launched == list(range(10))
    done += range(2, 10)
    assert [*map(waves_of, (made.take() for _ in range(7)))] == [{line: 10 * line} for line in range(2, 9)]
    assert not made.is_done and waves_of(made.take()) == {9: 90} and made.is_done and not made.take()
    assert waited == unpacked == list(range(10))


def test_a_line_is_complete_with_its_last_chunk_and_one_without_at_once() -> None:
    rows = [row_of(2, 0), row_of(0, 3), row_of(0)]
    made = in_flight(4, rows)
    assert list(made.take()) == [1] and not made.take()
    assert [list(made.take(wait=True)) for _ in rows] == [[2], [3], [0]] and made.is_done


def test_who_wants_the_result_waits_for_all_rows() -> None:
    rows, waited = [row_of(number, 0) for number in range(1, 21)], []
    made = in_flight(21, rows, waited=waited)
    assert [int(wave[0]) for wave in take_all(made)] == list(range(21)) and waited == list(range(20))
    assert in_flight(0, []).is_done
    assert take_all(InFlight([np.zeros(2), np.zeros(1)]))[0].shape == (2,) and take_all(InFlight([])) == []


def test_copies_are_not_waited_for_by_who_only_looks(copying: Copying) -> None:
    rows, copying.later, done = [row_of(0), row_of(1)], True, [0]
    made = in_flight(2, rows, done)
    assert not made.take() and len(copying.waiting) == 1, "the device has made it, and it is being copied"
    assert not made.take()
    copying.copy()
    assert list(made.take()) == [0] and not made.is_done
    done.append(1)
    assert not made.take() and not made.is_done
    copying.copy()
    assert list(made.take()) == [1] and made.is_done


def test_an_error_of_a_copy_is_that_of_who_takes() -> None:
    def fail(row, samples) -> None:
        raise ValueError("not finite")

    with pytest.raises(ValueError, match="not finite"):
        in_flight(1, [row_of(0)], unpack=fail).take(wait=True)
