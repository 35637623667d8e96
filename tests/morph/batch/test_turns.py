"""Groups of lines take turns by time."""

import pytest
from qwen3_tts_morph.morph.batch.turns import TURN_S, Turns


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


A, B, C = ("a",), ("b",), ("c",)


def test_the_running_group_passes_another_for_a_bounded_time(clock: Clock) -> None:
    turns = Turns(clock)
    turns.begin(A)
    clock.now = 100.0
    turns.note([A, A])
    assert turns.left_s is None and not turns.is_over, "nobody else waits"
    turns.note([A, B])
    assert turns.left_s == TURN_S
    clock.now += TURN_S - 1
    turns.note([A, B, A])
    assert turns.left_s == 1.0 and not turns.is_over
    clock.now += 1
    assert turns.is_over and turns.next == B
    turns.note([A])
    assert not turns.is_over, "who waited has left"


def test_three_groups_that_always_have_lines_take_turns(clock: Clock) -> None:
    turns, had = Turns(clock), []
    turns.note([A, B, C])
    for _ in range(6):
        group = turns.next
        assert group is not None
        had.append(group)
        turns.begin(group)
        began = clock.now
        turns.note([A, B, C])
        while not turns.is_over:
            clock.now += 1
            turns.note([A, B, C])
        assert clock.now - began == TURN_S, "each has its whole turn, however long others have waited"
        turns.end()
        turns.note([A, B, C])
    assert had == [A, B, C] * 2
