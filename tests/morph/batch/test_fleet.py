"""Which device of several a line goes to, with devices that end their lines when the test says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from qwen3_tts_morph.morph.batch.fleet import Fleet
from qwen3_tts_morph.morph.batch.speech import Delivery, Outcome, Speech
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line

ROWS = 4
CHOICE = SimpleNamespace(engine="graph", codec="torch")


class Device:
    """Stands for a ``Batch``: ``rows`` lines are spoken at a time, all equally long."""

    rows, name, rate, languages = ROWS, "voice", 24000, ()

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

    def check(self, line: Line, options: GenerateOptions) -> None:
        """Every line is right."""

    def take(self, *speeches: Speech) -> None:
        self.lines += speeches

    def end_wave(self) -> bool:
        """End the lines that have rows; return whether there were any."""
        wave, self.lines = self.lines[:ROWS], self.lines[ROWS:]
        for speech in wave:
            speech.finish(Outcome())
        return bool(wave)

    def close(self) -> None:
        """Nothing runs."""


@pytest.mark.parametrize("waves", [1, 2, 4, 7])
def test_two_devices_end_together(waves: int) -> None:
    """Lines that waited at one device while another had free rows took a wave more: 1.56 times one, not 1.9."""
    devices: list[Any] = [Device(), Device()]
    lines = [Line("Hello there.", None) for _ in range(2 * ROWS * waves)]  # type: ignore[arg-type]
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
    lines = [Line("Hello there.", None) for _ in range(8 * ROWS)]  # type: ignore[arg-type]
    Fleet(devices).speak_all(lines, GenerateOptions(), [Delivery() for _ in lines])
    assert [len(device.lines) for device in devices] == [ROWS + 1, ROWS + 1]


def test_a_line_whose_samples_are_made_leaves_its_row_to_another() -> None:
    """A device's rows were empty while its codec worked."""
    devices: list[Any] = [Device(), Device()]
    lines = [Line("Hello there.", None) for _ in range(8 * ROWS)]  # type: ignore[arg-type]
    speeches = Fleet(devices).speak_all(lines, GenerateOptions(), [Delivery() for _ in lines])
    for speech in devices[0].lines[:ROWS]:
        speech.note_coded(True)
    assert [len(device.lines) for device in devices] == [2 * ROWS + 1, ROWS + 1]
    assert not any(speech.ended for speech in speeches)
