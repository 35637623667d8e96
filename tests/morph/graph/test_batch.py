"""Which line has which row, with reports that arrive late."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.graph.batch import LineBatch
from qwen3_tts_morph.morph.voice.prompt import Prompt

EOS = 99


def lines_of(count: int, rows: int, frames: int = 100) -> LineBatch:
    prompts = [
        Prompt(torch.zeros(10 * (line + 1), 1), torch.zeros(0, 1), torch.zeros(1, 1), 1)
        for line in range(count)
    ]
    lines = [LineRequest(prompt, Guard(frames, False)) for prompt in prompts]
    return LineBatch(lines, EOS, rows, torch.float16)


def report(*codes: int, broken: int = 0) -> torch.Tensor:
    return torch.tensor([[code] * 16 + [broken] for code in codes])


def test_rows_take_lines_in_order_and_a_freed_row_takes_the_next():
    lines = lines_of(4, 2)
    assert lines.admit() == [(0, 0), (1, 1)] and lines.admit() == []
    lines.send()
    assert lines.receive(report(5, EOS)) == 1
    assert lines.admit() == [(1, 2)]
    lines.send()
    assert lines.receive(report(EOS, 6)) == 1
    assert lines.admit() == [(0, 3)]
    assert lines.running


def test_reports_in_flight_belong_to_the_line_that_was_in_the_row():
    lines = lines_of(2, 1)
    lines.admit()
    lines.send(), lines.send(), lines.send()
    lines.receive(report(EOS))
    assert lines.admit() == [(0, 1)]
    lines.send()
    assert [lines.receive(report(code)) for code in (7, 8, 9)] == [0, 0, 1]
    lines.send()
    lines.receive(report(EOS))
    assert not lines.running
    first, second = lines.collect()
    assert first.codes.shape == (0, 16) and first.codes.dtype == torch.int64
    assert second.codes.tolist() == [[9] * 16] and second.ended == "eos"


def test_positions_are_those_of_the_longest_running_line():
    lines = lines_of(3, 2)
    assert lines.positions == 0
    lines.admit()
    assert lines.positions == 20
    lines.send(), lines.send()
    assert lines.positions == 22
    lines.receive(report(1, EOS))
    assert lines.positions == 12
    lines.admit()
    assert lines.positions == 30


def test_large_batches_are_refilled_several_rows_at_a_time_and_the_last_lines_immediately():
    lines = lines_of(19, 16)
    assert len(lines.admit()) == 16
    lines.send()
    lines.receive(report(EOS, *[1] * 15))
    assert lines.admit() == [], "one of sixteen rows is free"
    lines.send()
    lines.receive(report(1, EOS, *[1] * 14))
    assert lines.admit() == [(0, 16), (1, 17)]
    lines.send()
    lines.receive(report(1, 1, EOS, *[1] * 13))
    assert lines.admit() == [(2, 18)], "no more lines are waiting"


def test_a_guard_ends_its_line_at_its_frame():
    lines = lines_of(1, 1, frames=2)
    lines.admit()
    for _ in range(4):
        lines.send()
    assert [lines.receive(report(3)) for _ in range(4)] == [1, 1, 0, 0]
    assert lines.collect()[0].ended == "cap" and len(lines.collect()[0].codes) == 2


def test_numbers_that_are_not_finite_count_only_for_running_lines():
    lines = lines_of(2, 2)
    lines.admit()
    lines.send(), lines.send()
    lines.receive(report(EOS, 4))
    lines.receive(torch.cat((report(1, broken=1), report(4))))
    lines.send()
    with pytest.raises(ValueError, match="overflow in fp16"):
        lines.receive(torch.cat((report(1), report(4, broken=1))))


def test_the_first_frame_of_a_line_with_a_listener_is_awaited_until_it_is_read():
    lines, heard = lines_of(2, 2), []
    lines.source.ready[1] = replace(lines.source.ready[1], on_codes=heard.append)
    lines.admit()
    assert not lines.first_is_awaited, "nothing is in flight"
    lines.send([1])
    assert not lines.first_is_awaited, "of the first line, to which nobody listens"
    lines.receive(report(5, 6))
    lines.send()
    assert lines.first_is_awaited
    lines.receive(report(5, 6))
    assert not lines.first_is_awaited and len(heard) == 1
    lines.send()
    assert not lines.first_is_awaited, "its second frame"


@pytest.mark.parametrize("cancelled", [False, True], ids=["eos", "cancelled"])
def test_a_line_that_ends_before_its_first_frame_is_not_awaited(cancelled):
    lines = lines_of(1, 1)
    [request] = lines.source.ready
    lines.source.ready[0] = replace(request, on_codes=lambda _: None, cancelled=lambda: cancelled)
    lines.admit()
    lines.send()
    lines.end_cancelled()
    if not cancelled:
        lines.receive(report(EOS))
    assert not lines.first_is_awaited and not lines.running
