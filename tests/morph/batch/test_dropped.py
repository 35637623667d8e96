"""Streams and services that are dropped: the garbage collector may find them in any thread, in any moment."""

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from qwen3_tts_morph.morph.batch import loop
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.loop import Loop
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.runtime.threads import WakeUpEvent
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.voice.create import preset_voice

from lab.streams import stream_line
from tests.morph.batch.test_stream import wait_until_free
from tests.patience import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def only_when_asked() -> Iterator[None]:
    """The collector runs where a test says it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def in_a_cycle(one: object) -> None:
    one.__dict__["itself"] = one


def test_a_service_is_collected_in_its_own_thread_while_that_holds_a_lock(synthesizer, monkeypatch) -> None:
    service = Batch(synthesizer, 1)
    in_a_cycle(service)
    thread, scheduler, inbox = service._thread, service.loop.scheduler, service.loop.inbox
    handle, ran = Loop._handle, threading.Event()

    def collect_and_handle(one: Loop, has_model: bool = True) -> None:
        with scheduler.lock:
            gc.collect()
        ran.set()
        handle(one, has_model)

    monkeypatch.setattr(Loop, "_handle", collect_and_handle)
    del service
    inbox.post(lambda: None)
    thread.join()
    assert ran.is_set() and inbox.is_closed


def test_a_stream_is_collected_by_a_thread_that_its_own_waits_for(synthesizer, monkeypatch) -> None:
    monkeypatch.setattr(loop, "frozen_objects", nullcontext)  # what was there before is looked at too
    line = Line("Hello there.", preset_voice(synthesizer.model, "ryan"))
    stream = stream_line(synthesizer, line, GenerateOptions(1, Sampling(max_new_tokens=9)))
    in_a_cycle(stream)
    assert len(next(stream).samples)
    speech, collected = stream._speeches[0], threading.Event()
    del stream

    def collect() -> None:
        with speech._changed:  # the batch takes it for each chunk, and at the line's end
            gc.collect()
        collected.set()

    threading.Thread(target=collect, daemon=True).start()
    assert collected.wait(PATIENCE)
    wait_until_free(synthesizer)


def test_a_closed_batch_is_forgotten_although_its_thread_is_kept(synthesizer) -> None:
    """Without the collector, which may free the model while ComfyUI reads its list of loaded models."""
    line = Line("Hello there.", preset_voice(synthesizer.model, "ryan"))
    with Batch(synthesizer, 1) as batch:
        batch.speak(line, GenerateOptions(1, Sampling(max_new_tokens=9), retries=0)).result()
    left = weakref.ref(batch.loop)
    del batch
    wait_until(lambda: left() is None)


def test_a_wake_up_may_be_set_while_it_is_being_set() -> None:
    wake_up = WakeUpEvent()

    class Ringing:
        def __del__(self) -> None:
            wake_up.set()

    ringing = Ringing()
    in_a_cycle(ringing)
    del ringing
    wake_up.set()
    gc.collect()
    assert wake_up.wait(0) and not wake_up.wait(0)
