"""Lines on several devices; several models on the CPU stand for several GPUs."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.batch import Batch, Fleet
from qwen3_tts_morph.morph.batch.codec.line_chunks import Output
from qwen3_tts_morph.morph.batch.scheduler import BROKEN_AFTER
from qwen3_tts_morph.morph.batch.speech import Delivery
from qwen3_tts_morph.morph.batch.utterance import Shared, Utterance
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.kept.render import speak_lines
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from tests.patience import wait_until

OPTIONS = GenerateOptions(sampling=Sampling(max_new_tokens=7), batch_size=2, retries=0)
DEVICES = ["cpu", "cpu (2)"]


@pytest.fixture(scope="module")
def models(checkpoint):
    """Two models of one checkpoint, as two GPUs would have them."""
    return [load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa")) for _ in range(2)]


@pytest.fixture
def batches(models) -> list[Batch]:
    return [Batch(Synthesizer(model), rows=OPTIONS.batch_size) for model in models]


@pytest.fixture
def fleet(batches) -> Iterator[Fleet]:
    with Fleet(batches) as opened:
        yield opened


@pytest.fixture
def alone(models) -> Iterator[Batch]:
    with Batch(Synthesizer(models[0]), rows=OPTIONS.batch_size) as batch:
        yield batch


def numbered(models, count: int = 9) -> list[Line]:
    voice = preset_voice(models[0], "ryan")
    return [Line("Word " * (1 + number * 5 % 7), voice, seed=number) for number in range(count)]


def assert_same(some: list[Spoken], others: list[Spoken]) -> None:
    for one, other in zip(some, others, strict=True):
        np.testing.assert_allclose(one.waveform, other.waveform, atol=1e-4)
        assert replace(one.report, device="", notes=()) == other.report


def break_device(patch: pytest.MonkeyPatch, device: int, error: Exception) -> None:
    """Let a device fail at every line."""
    opened = Utterance.open

    def fail(one: Utterance, shared: Shared) -> None:
        if one.device == device:
            raise error
        opened(one, shared)

    patch.setattr(Utterance, "open", fail)


def test_lines_are_those_of_one_device_and_say_which_made_them(fleet, alone, models) -> None:
    lines = numbered(models)
    together = speak_lines(fleet, lines, OPTIONS)
    assert_same(together, speak_lines(alone, lines, OPTIONS))
    assert {one.report.device for one in together} == set(DEVICES)
    said = fleet.describe(together, OPTIONS, 1.0)
    assert said.count(", on cpu\n") + said.count(", on cpu (2)\n") == len(lines)
    assert "devices: " in said and "on cpu, " in said


def test_a_line_that_fails_on_one_device_is_made_on_another(fleet, alone, models, monkeypatch) -> None:
    lines = numbered(models)
    with monkeypatch.context() as patch:
        break_device(patch, 0, RuntimeError("this device is broken"))
        together = speak_lines(fleet, lines, OPTIONS)
    assert_same(together, speak_lines(alone, lines, OPTIONS))
    assert {one.report.device for one in together} == {"cpu (2)"}
    notes = {note for one in together for note in one.report.notes}
    assert notes == {"A line could not be made on cpu (RuntimeError: this device is broken): cpu (2) made it."}


def test_a_device_whose_lines_break_off_gets_no_more(fleet, models, monkeypatch) -> None:
    """Audio was delivered, so they are not retried elsewhere."""
    deliver, lines = Utterance.deliver, numbered(models, 4)

    def break_off(one: Utterance, output: Output) -> None:
        deliver(one, output)
        if one.device == 0:
            one.fail(RuntimeError("this device is broken"))

    def count_failures() -> int:
        speeches = fleet.speak_all(lines, OPTIONS, [Delivery(keep=False)] * len(lines))
        wait_until(lambda: all(one.ended for one in speeches))
        return sum(one.outcome.error is not None for one in speeches)

    monkeypatch.setattr(Utterance, "deliver", break_off)
    failures = 0
    while failures < BROKEN_AFTER:
        failures += count_failures()
    assert count_failures() == 0


def test_no_memory_on_one_device_ends_all(fleet, models, monkeypatch) -> None:
    break_device(monkeypatch, 1, torch.cuda.OutOfMemoryError("full"))
    with pytest.raises(torch.cuda.OutOfMemoryError, match="full"):
        speak_lines(fleet, numbered(models), OPTIONS)


def test_torch_keeps_its_number_of_threads(models) -> None:
    torch.set_num_threads(2)
    try:
        with Fleet([Batch(Synthesizer(model), rows=2) for model in models]) as fleet:
            speak_lines(fleet, numbered(models, 4), OPTIONS)
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert torch.get_num_threads() == 2 and later == [2]
    finally:
        torch.set_num_threads(1)


def test_models_that_would_not_speak_alike_are_refused(models, load) -> None:
    def share(*some) -> None:
        batches = [Batch(Synthesizer(model)) for model in some]
        try:
            Fleet(batches)
        finally:
            for batch in batches:
                batch.close()

    with pytest.raises(ValueError, match=r"the models on cpu and cpu \(2\) cannot share lines: checkpoint is"):
        share(models[0], load("tiny", "base"))
    with pytest.raises(ValueError, match="precision is float32 and bfloat16"):
        share(models[0], load("tiny", "custom_voice", "bf16"))
    with pytest.raises(ValueError, match="there is no model"):
        share()
