"""The thread that writes texts out rests between its steps where others want to work."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from qwen3_tts_morph.morph.speech.texts import ahead
from qwen3_tts_morph.morph.speech.texts.ahead import Ahead, rested

from tests.patience import wait_until


class Clocks:
    """Time as a test sets it, and the rests."""

    def __init__(self) -> None:
        self.now = self.worked = 0.0
        self.rests: list[float] = []

    def work(self, worked: float, waited: float) -> None:
        self.worked += worked
        self.now += worked + waited

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(
        ahead, "time", SimpleNamespace(monotonic=lambda: made.now, thread_time=lambda: made.worked)
    )
    monkeypatch.setattr(ahead._Rests, "take", lambda rests, seconds: (made.rest(seconds), rests._begin()))
    return made


def test_it_rests_between_two_steps_only_where_others_have_worked(clocks: Clocks) -> None:
    ask = rested(lambda: False)

    def values() -> Iterator[str]:
        for worked, waited in ((2.0, 0.0), (3.0, 5.0), (4.0, 1.0)):
            clocks.work(worked, waited)
            assert not ask()
        clocks.work(6.0, 0.0)
        yield "a value"

    bell = threading.Event()
    running = Ahead(values(), bell.set)
    wait_until(lambda: len(clocks.rests) == 4)
    assert clocks.rests == [0.0, 3.0, 1.0, 6.0], "behind a value it rests in any case"
    given = running.take()
    assert given is not None and given.value == "a value"


def test_elsewhere_nobody_rests(clocks: Clocks) -> None:
    clocks.work(5.0, 5.0)
    assert rested(lambda: True)() and not clocks.rests
