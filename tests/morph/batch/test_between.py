"""Work that is done between lines: in the thread that speaks, one after another; what fails is the asker's."""

import threading
from functools import partial

import pytest
from qwen3_tts_morph.morph.batch import loop
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.speech import Delivery, Inbox
from qwen3_tts_morph.morph.decode.rows import Ahead
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from tests.patience import PATIENCE, wait_until


def test_work_is_done_in_its_order_and_an_error_is_the_asker_s() -> None:
    inbox, done = Inbox(), []
    first, failing = inbox.ask(lambda: done.append(1)), inbox.ask(lambda: 1 / 0)
    withdrawn, last = inbox.ask(lambda: done.append(2)), inbox.ask(lambda: done.append(3))
    assert inbox.wait(0) and inbox.work and withdrawn.cancel()
    assert inbox.do_work() and done == [1], "one at a time: lines come before the next"
    assert inbox.do_work() and inbox.do_work() and not inbox.do_work()
    assert done == [1, 3] and not inbox.work and first.result() is last.result() is None
    with pytest.raises(ZeroDivisionError):
        failing.result()
    late = inbox.ask(lambda: done.append(4))
    inbox.refuse_work(ValueError("closed"))
    with pytest.raises(ValueError, match="closed"):
        late.result()
    assert done == [1, 3]


def test_a_service_does_it_before_its_first_line_and_while_a_batch_waits_for_lines(load) -> None:
    model = load("tiny", "custom_voice")
    line = Line("Hello there.", preset_voice(model, "ryan"))
    with Batch(Synthesizer(model), rows=1, linger_s=PATIENCE) as service:
        threads = [service.between_lines(threading.current_thread).result(PATIENCE)]
        assert b"".join(chunk.samples.tobytes() for chunk in service.speak(line))
        threads.append(service.between_lines(threading.current_thread).result(PATIENCE))
        assert {one.name for one in threads} == {"speech batch"}
        assert b"".join(chunk.samples.tobytes() for chunk in service.speak(line)), "it speaks on"


@pytest.mark.parametrize("begun", (False, True))
def test_a_line_that_waits_comes_before_the_next_work(load, begun: bool) -> None:
    model = load("tiny", "custom_voice")
    line, order = Line("Hello there.", preset_voice(model, "ryan")), list[str]()
    running, go_on = threading.Event(), threading.Event()
    with Batch(Synthesizer(model), rows=1, linger_s=PATIENCE) as service:
        if begun:  # then the model is held for the next line
            assert list(service.speak(line))
        service.between_lines(lambda: running.set() or go_on.wait(PATIENCE))
        assert running.wait(PATIENCE)
        works = [service.between_lines(lambda: order.append("work")) for _ in range(3)]
        speech = service.speak(line, delivery=Delivery(on_change=lambda: order.append("line")))
        go_on.set()
        assert list(speech)
        works[-1].result(PATIENCE)
    assert order[0] == "line" and order[-3:] == ["work"] * 3


@pytest.mark.parametrize("has_time", (False, True))
def test_captures_are_made_beside_a_stream_that_plays_if_there_is_time(load, monkeypatch, has_time: bool) -> None:
    class Graphs:
        def lacks(self, key: str) -> bool:
            return key not in done

    model, graphs, done, plays = load("tiny", "custom_voice"), Graphs(), list[str](), list[bool]()
    monkeypatch.setattr(loop, "PLANNED_S", -1.0 if has_time else 1e9)
    monkeypatch.setattr(loop, "PLANNED_SHARE", 1.0)
    synthesizer = Synthesizer(model)
    first = synthesizer.engine.warm_ups

    def capture(key: str) -> None:
        done.append(key)
        plays.append(speech.progress.chunks > 0 and not speech.ended)

    with Batch(synthesizer, rows=2, ahead=Ahead(2, 256)) as service:
        options = GenerateOptions(5, Sampling(max_seconds=16.0))
        for is_ready in (False, True):
            speech = service.speak(Line("Hello there.", preset_voice(model, "ryan"), seed=3), options)
            for key in ("a", "b"):
                first.plan(0, graphs, key, partial(capture, key))
            wait_until(partial(getattr, speech.progress, "chunks"))  # it does not end before it is read
            first.is_settled = is_ready
            assert list(speech) and (is_ready or not done)
    assert plays == [True, True] if has_time else True not in plays
