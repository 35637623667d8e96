"""Which line has which row, with reports that arrive late."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.graph.rows import FirstFrames, RowTable
from qwen3_tts_morph.morph.voice.prompt import Prompt


def table_of(rows: int, *lengths: int) -> RowTable:
    """Return rows with lines 0, 1, ... with prompts of these lengths."""
    table = RowTable(rows)
    assert table.take(range(len(lengths)), lengths) == list(range(len(lengths)))
    return table


def report(*codes: int) -> np.ndarray:
    return np.array([[code] * 16 + [0] for code in codes])


def received(table: RowTable, *codes: int) -> dict[int, int]:
    """Return the lines of the oldest frame in flight, and their codes of group 0."""
    frame = table.receive(report(*codes))
    return dict(zip(frame.lines.tolist(), frame.report[:, 0].tolist(), strict=True))


def test_a_freed_row_takes_the_next_line():
    table = table_of(2, 10, 20)
    assert table.running == 2 and table.room(2) == 0
    table.release(1)
    assert table.room(2) == 1 and table.take([2], [5]) == [1]
    table.release(0)
    assert table.take([3], [5]) == [0] and (table.row(3), table.row(2)) == (0, 1)


def test_reports_in_flight_belong_to_the_line_that_was_in_the_row():
    table = table_of(1, 10)
    table.send(), table.send(), table.send()
    assert received(table, 6) == {0: 6}
    table.release(0)
    table.take([1], [10])
    table.send()
    assert [received(table, code) for code in (7, 8, 9)] == [{}, {}, {1: 9}]


def test_a_stopped_row_has_no_frame():
    table = table_of(3, 10, 10, 10)
    table.send([1])
    table.send()
    assert received(table, 5, 6, 7) == {0: 5, 2: 7} and received(table, 5, 6, 7) == {0: 5, 1: 6, 2: 7}


def test_positions_are_those_of_the_longest_running_line():
    table = table_of(2, 10, 20)
    table.send(), table.send()
    assert table.positions == 22
    table.release(1)
    assert table.positions == 12
    table.take([2], [30])
    assert table.positions == 30
    table.send([1])
    assert table.positions == 31, "the stopped line overwrites the position of its next frame"


def test_large_batches_are_refilled_several_rows_at_a_time_and_the_last_lines_immediately():
    table = table_of(16, *[10] * 16)
    table.release(0)
    assert table.room(3) == 0, "one of sixteen rows is free"
    table.release(1)
    assert table.room(3) == 2 and table.room(0) == 0
    table.take([16, 17], [10, 10])
    table.release(2)
    assert table.room(1) == 1, "no more lines are waiting"


def requests(*heard: bool) -> dict[int, LineRequest]:
    prompt = Prompt(torch.zeros(3, 1), torch.zeros(0, 1), torch.zeros(1, 1), 1)
    return {
        line: LineRequest(prompt, Guard(9), on_codes=(lambda _: None) if one else None)
        for line, one in enumerate(heard)
    }


def test_the_first_frame_of_a_line_with_a_listener_is_in_flight_until_it_is_read():
    table, first = table_of(2, 3, 3), FirstFrames()
    first.add(requests(False, True))
    assert not first.in_flight
    for stopped, wanted in ([1], False), ([], True):
        table.send(stopped)
        first.send(stopped)
        assert first.in_flight == wanted, "nobody listens to the first line"
    first.read(table.receive(report(5, 6)))
    assert first.in_flight
    first.read(table.receive(report(5, 6)))
    assert not first.in_flight
    first.send([])
    assert not first.in_flight, "its second frame"


def test_a_line_that_ends_before_its_first_frame_is_not_waited_for():
    first = FirstFrames()
    first.add(requests(True, True))
    first.forget(0)
    first.send([])
    first.forget(1)
    assert not first.in_flight


def test_lines_are_told_that_their_first_frame_is_launched_and_get_its_codes_if_it_is_the_only_one():
    table, first, told = table_of(3, 3, 3, 3), FirstFrames(), []
    lines = {line: replace(one, on_launch=told.append) for line, one in requests(True, True, True).items()}
    first.add(lines)
    codes = torch.from_numpy(report(5, 6, 7))
    first.send([2])
    first.launched(codes, table)
    assert told == [None, None]
    first.send([])
    first.launched(codes, table)
    assert torch.equal(told[2], codes[2, :16])
    first.send([])
    first.launched(codes, table)
    assert len(told) == 3
