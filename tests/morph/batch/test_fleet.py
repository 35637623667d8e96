"""Which device of several a line goes to, with devices that end their lines when the test says so."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from qwen3_tts_morph.morph.batch.batch import BatchStatus
from qwen3_tts_morph.morph.batch.fleet import Fleet
from qwen3_tts_morph.morph.batch.scheduler import Busy
from qwen3_tts_morph.morph.batch.speech import Delivery, Outcome, Speech
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line

ROWS = 4
CHOICE = SimpleNamespace(engine="graph", batch_codec=False)


class Device:
    """Stands for a ``Batch``: ``rows`` lines are spoken at a time, all equally long."""

    rows, name, rate, languages = ROWS, "voice", 24000, ()
    most_waiting = ROWS

    def __init__(self) -> None:
        model = SimpleNamespace(
            name="voice",
            fingerprint="",
            dtype=torch.float32,
            weights="full",
            attention="sdpa",
            device="cuda:0",
        )
        self.synthesizer: Any = SimpleNamespace(model=model, engine=SimpleNamespace(choose=lambda _: CHOICE))
        self.lines: list[Speech] = []
        self.is_full = False

    def check(self, line: Line, options: GenerateOptions) -> None:
        """Every line is right."""

    def take(self, *speeches: Speech) -> None:
        if self.is_full:
            raise Busy("4 lines wait already: try again later")
        self.lines += speeches

    def end_wave(self) -> bool:
        """End the lines that have rows; return whether there were any."""
        wave, self.lines = self.lines[:ROWS], self.lines[ROWS:]
        for speech in wave:
            speech.finish(Outcome())
        return bool(wave)

    @property
    def status(self) -> BatchStatus:
        """All lines but those that have rows wait."""
        speaking = min(ROWS, len(self.lines))
        return BatchStatus(ROWS, speaking, len(self.lines) - speaking, 0, 0.0)

    def close(self) -> None:
        """Nothing runs."""


LINE = Line("Hello there.", None)  # type: ignore[arg-type]
COMPLETE = Delivery(live=False)


def speak_each(fleet: Fleet, count: int, delivery: Delivery) -> list[Speech]:
    """Speak lines that come one by one, as requests do."""
    return [fleet.speak(LINE, GenerateOptions(), delivery) for _ in range(count)]


@pytest.mark.parametrize("waves", [1, 2, 4, 7])
def test_two_devices_end_together(waves: int) -> None:
    """Lines that waited at one device while another had free rows took a wave more: 1.56 times one, not 1.9."""
    devices: list[Any] = [Device(), Device()]
    lines = [LINE] * (2 * ROWS * waves)
    fleet = Fleet(devices)
    speeches = fleet.speak_all(lines, GenerateOptions(), [Delivery() for _ in lines])
    taken = [0, 0]
    while not all(speech.ended for speech in speeches):
        for number, device in enumerate(devices):
            taken[number] += device.end_wave()
    assert taken == [waves, waves]


def test_lines_wait_at_a_device_while_there_are_many() -> None:
    """A row that is free takes the next line before the fleet hears that it is."""
    devices: list[Any] = [Device(), Device()]
    lines = [LINE] * (8 * ROWS)
    Fleet(devices).speak_all(lines, GenerateOptions(), [Delivery() for _ in lines])
    assert [len(device.lines) for device in devices] == [ROWS + 1, ROWS + 1]


def test_complete_lines_of_requests_wait_for_whichever_device_is_free() -> None:
    """They had waited at the one with fewest: of 512 one got 263, so a wave more; a slow one got half of them."""
    devices: list[Any] = [Device(), Device()]
    fleet = Fleet(devices, queues=True)
    speeches = speak_each(fleet, 4 * ROWS, COMPLETE)
    assert [len(device.lines) for device in devices] == [ROWS, ROWS] and fleet.status.waiting == 2 * ROWS
    while devices[0].end_wave():
        pass
    assert len(devices[1].lines) == ROWS and sum(speech.ended for speech in speeches) == 3 * ROWS


def test_lines_of_requests_that_are_heard_go_to_a_device_at_once() -> None:
    devices: list[Any] = [Device(), Device()]
    fleet = Fleet(devices, queues=True)
    speak_each(fleet, 3 * ROWS, Delivery())
    assert [len(device.lines) for device in devices] == [6, 6]
    speak_each(fleet, 2, COMPLETE)  # beside them a complete line gets its turn at its device only
    assert [len(device.lines) for device in devices] == [7, 7]


def test_a_complete_line_that_is_to_be_heard_goes_to_a_device_at_once() -> None:
    devices: list[Any] = [Device(), Device()]
    speeches = speak_each(Fleet(devices, queues=True), 3 * ROWS, COMPLETE)
    speeches[-1].hear()
    assert speeches[-1] in devices[0].lines


def test_requests_wait_in_their_order() -> None:
    """Longest first is for lists: where more lines come, a short one would wait for ever."""
    devices: list[Any] = [Device()]
    fleet = Fleet(devices, queues=True)
    speak_each(fleet, ROWS + 1, COMPLETE)
    texts = ("Short.", "A line that is longer than the other one.")
    for text in texts:
        fleet.speak(Line(text, None), GenerateOptions(), COMPLETE)  # type: ignore[arg-type]
    devices[0].end_wave()
    assert [speech.line.text for speech in devices[0].lines[-2:]] == list(texts)


def test_too_many_requests_are_refused_and_those_that_leave_make_room() -> None:
    devices: list[Any] = [Device(), Device()]
    fleet = Fleet(devices, queues=True)
    speeches = speak_each(fleet, 4 * ROWS, COMPLETE)
    with pytest.raises(Busy, match="8 lines wait already"):
        fleet.speak(LINE, GenerateOptions(), COMPLETE)
    speeches[-1].cancel()
    fleet.speak(LINE, GenerateOptions(), COMPLETE)
    assert speeches[-1].ended and speeches[-1].report.ended == "cancelled"
    assert fleet.status.waiting == 2 * ROWS


def test_a_line_that_was_accepted_is_not_refused_by_a_device_later() -> None:
    devices: list[Any] = [Device(), Device()]
    fleet = Fleet(devices, queues=True)
    speeches = speak_each(fleet, 3 * ROWS, COMPLETE)
    devices[0].is_full = True
    devices[0].end_wave()
    assert [len(device.lines) for device in devices] == [0, ROWS] and fleet.status.waiting == ROWS
    devices[0].is_full = False
    while devices[1].end_wave() or devices[0].end_wave():
        pass
    assert all(speech.ended and not speech.failed for speech in speeches)
