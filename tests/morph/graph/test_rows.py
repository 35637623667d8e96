"""Which line has which row, with reports that arrive late."""

import numpy as np
from qwen3_tts_morph.morph.graph.rows import REFILL_PATIENCE, RowTable


def table_of(rows: int, *lengths: int) -> RowTable:
    """Return rows with lines 0, 1, ... with prompts of these lengths."""
    table = RowTable(rows)
    assert table.take(lengths) == list(range(len(lengths)))
    return table


def report(*codes: int) -> np.ndarray:
    return np.array([[code] * 16 + [0] * 4 for code in codes])


def received(table: RowTable, *codes: int) -> dict[int, int]:
    """Return the rows of the oldest frame in flight, and their codes of group 0."""
    frame = table.receive(report(*codes))
    return dict(zip(frame.rows.tolist(), frame.report[:, 0].tolist(), strict=True))


def test_a_freed_row_takes_the_next_line():
    table = table_of(2, 10, 20)
    assert table.running == 2 and table.room(2) == 0
    table.release(1)
    assert table.room(2) == 1 and table.take([5]) == [1]
    table.release(0)
    assert table.take([5]) == [0] and table.running == 2


def test_reports_in_flight_belong_to_the_line_that_was_in_the_row():
    table = table_of(1, 10)
    table.send(), table.send(), table.send()
    assert received(table, 6) == {0: 6}
    table.release(0)
    table.take([10])
    table.send()
    assert [received(table, code) for code in (7, 8, 9)] == [{}, {}, {0: 9}]


def test_a_stopped_row_has_no_frame():
    table = table_of(3, 10, 10, 10)
    table.send([1])
    table.send()
    assert received(table, 5, 6, 7) == {0: 5, 2: 7} and received(table, 5, 6, 7) == {0: 5, 1: 6, 2: 7}


def test_positions_are_those_of_the_longest_running_line():
    table = table_of(2, 10, 20)
    assert [table.send(), table.send()] == [21, 22]
    table.release(1)
    assert table.send() == 13
    table.take([30])
    assert table.send([1]) == 31, "the stopped line overwrites the position of its next frame"


def test_large_batches_are_refilled_several_rows_at_a_time_and_the_last_lines_immediately():
    table = table_of(16, *[10] * 16)
    table.release(0)
    assert table.room(3) == 0, "one of sixteen rows is free"
    table.release(1)
    assert table.room(3) == 2 and table.room(0) == 0
    table.take([10, 10])
    table.release(2)
    assert table.room(1) == 1, "no more lines are waiting"


def test_a_few_free_rows_wait_for_others_for_some_frames_only():
    table = table_of(64, *[10] * 64)
    assert [table.room(9) for _ in range(2 * REFILL_PATIENCE)] == [0] * (2 * REFILL_PATIENCE), "none is free"
    for line in range(3):
        table.release(line)
    assert [table.room(9) for _ in range(REFILL_PATIENCE)] == [0] * REFILL_PATIENCE
    assert table.room(9) == 3
    table.take([10] * 3)
    table.release(3)
    assert table.room(9) == 0, "the next one waits for others again"
