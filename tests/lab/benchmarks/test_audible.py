"""When a player plays the first audible sample."""

import numpy as np
import pytest

from lab.benchmarks.audible import WINDOW, Listener, first_audible

RATE = 24000
SILENT = WINDOW * 5  # samples: 50 ms
SOUND = np.concatenate([np.zeros(SILENT), 0.5 * np.sin(np.arange(4800))])
PCM = (32767 * SOUND).astype(np.int16).tobytes()


def test_the_first_loud_ten_milliseconds_are_found() -> None:
    assert first_audible(SOUND) == SILENT
    assert first_audible(SOUND[:SILENT]) is None and first_audible(np.full(4800, 0.5)) is None


@pytest.mark.parametrize("size", [1, 333, 2 * WINDOW, 7777, len(PCM)])
def test_parts_of_any_size_are_heard_as_one(size: int) -> None:
    listener = Listener(RATE)
    for start in range(0, len(PCM), size):
        listener.add(PCM[start : start + size], 3.0 + start / 2 / RATE)
    assert listener.at == pytest.approx(3.0 + SILENT / RATE, abs=1 / RATE)


def test_a_part_that_comes_late_is_heard_late_and_silence_never() -> None:
    listener, half = Listener(RATE), SILENT  # bytes: half of the silence
    listener.add(PCM[:half], 1.0)
    assert listener.at is None
    listener.add(PCM[half:], 2.0)
    assert listener.at == pytest.approx(2.0 + SILENT / 2 / RATE)
