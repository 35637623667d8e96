"""Each line is spoken once: kept lines are found, one that fails ends no others, and sound comes in order."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.speech import OutOfService
from qwen3_tts_morph.morph.kept.cache import LineCache
from qwen3_tts_morph.morph.kept.render import Listener, RenderOptions, speak_lines
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.report import outcome
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.voice import Voice

from tests.morph.kept.speaking import Scripted, Watched, end, end_with, put

OPTIONS = GenerateOptions(sampling=Sampling(max_new_tokens=7), batch_size=2, retries=0)
VOICE = Voice("preset", "0b6", speaker="ryan")


class Cancelled(Exception):
    """What ComfyUI raises when the user cancels."""


@pytest.fixture
def cache(tmp_path: Path) -> LineCache:
    return LineCache(tmp_path / "lines", 10**8)


@pytest.fixture
def speaks(model) -> Iterator[Watched]:
    with Batch(Synthesizer(model), rows=OPTIONS.batch_size) as batch:
        yield Watched(batch)


def numbered(voice: Voice, count: int = 4) -> list[Line]:
    return [Line(f"This is line {number}.", voice, seed=number) for number in range(count)]


def test_a_damaged_line_is_made_again_and_said(speaks, voice, cache) -> None:
    lines = numbered(voice, 2)
    first = speak_lines(speaks, lines, OPTIONS, RenderOptions(cache))
    speaks.made()
    file = sorted(cache.folder.iterdir())[0]
    file.write_bytes(file.read_bytes()[:-10])
    again = speak_lines(speaks, lines, OPTIONS, RenderOptions(cache))
    assert len(speaks.made()) == 1 and sum(one.report.from_before for one in again) == 1
    said = outcome(again, 1.0).splitlines()
    assert "The line kept from an earlier run is damaged: it was made again." in said
    assert "1 of 2 lines reused from an earlier run." in said
    for one, other in zip(first, again, strict=True):
        np.testing.assert_allclose(one.waveform, other.waveform, atol=1e-4)
    third = speak_lines(speaks, lines, OPTIONS, RenderOptions(cache))
    assert [one.report.notes for one in third] == [(), ()] and speaks.made() == []


def test_a_disk_that_is_full_loses_no_line(speaks, voice, cache, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LineCache, "keep", full)
    made = speak_lines(speaks, numbered(voice, 2), OPTIONS, RenderOptions(cache))
    assert len(made) == 2
    assert "Lines could not be kept for later: No space left on device." in outcome(made, 1.0).splitlines()


@pytest.mark.parametrize("heard", [False, True])
def test_a_line_that_fails_ends_no_others(speaks, voice, cache, caplog, heard) -> None:
    lines, sound, ready = numbered(voice, 3), [], []
    listener = Listener(on_line=lambda index, _: ready.append(index))
    if heard:
        listener = replace(listener, on_sound=lambda index, _: sound.append(index))
    speaks.failing[1] = RuntimeError("the codes are not\nfinite.")
    with caplog.at_level(logging.WARNING):
        made = speak_lines(speaks, lines, OPTIONS, RenderOptions(cache), listener)
    assert [one.report.ended for one in made][1] == "error" and not made[1].waveform.any()
    assert len(made[1].waveform) == 12000 and all(one.waveform.any() for one in (made[0], made[2]))
    assert "could not be made" in caplog.text and sorted(ready) == [0, 1, 2]
    said = outcome(made, 1.0)
    assert "COULD NOT BE MADE: RuntimeError: the codes are not finite." in said
    assert cache.size().lines == 2 and list(dict.fromkeys(sound)) == ([0, 1, 2] if heard else [])
    speaks.made()
    speaks.failing.clear()
    assert speak_lines(speaks, lines, OPTIONS, RenderOptions(cache))[1].report.ended != "error"
    assert speaks.made() == [1]


def test_where_no_line_can_be_made_the_first_error_is_raised(speaks, voice, cache) -> None:
    speaks.failing = {seed: RuntimeError(f"broken {seed}") for seed in range(3)}
    with pytest.raises(RuntimeError, match="broken 0"):
        speak_lines(speaks, numbered(voice, 3), OPTIONS, RenderOptions(cache))


@pytest.mark.parametrize(
    "error", [torch.cuda.OutOfMemoryError("full"), OutOfService("the server is gone"), KeyboardInterrupt()]
)
def test_no_memory_no_server_and_the_users_wish_end_all_lines(error) -> None:
    speaks = Scripted()

    def fail(*_: object) -> None:
        end_with(speaks.speeches[1], error)

    with pytest.raises(type(error)):
        speak_lines(speaks, numbered(VOICE, 3), OPTIONS, None, Listener(on_phase=fail))
    assert [one.is_cancelled for one in (speaks.speeches[0], speaks.speeches[2])] == [True, True]


@pytest.mark.parametrize("call", ["on_frame", "on_phase", "on_line", "on_sound"])
def test_what_a_callback_raises_ends_all_and_what_was_made_is_kept(speaks, voice, cache, call) -> None:
    def cancel(*_: object) -> None:
        if cache.size().lines:
            raise Cancelled

    calls = {"on_sound": lambda *_: None, call: cancel}
    lines = numbered(voice, 5)
    with pytest.raises(Cancelled):
        speak_lines(speaks, lines, OPTIONS, RenderOptions(cache), Listener(**calls))
    kept = cache.size().lines
    assert 1 <= kept < 5
    again = speak_lines(speaks, lines, OPTIONS, RenderOptions(cache))
    assert sum(one.report.from_before for one in again) >= kept


def test_callbacks_are_called_in_the_callers_thread_and_frames_are_counted(speaks, voice) -> None:
    seen, threads, phases = [], set(), []

    def on_frame(done: int, expected: int) -> None:
        seen.append((done, expected))
        threads.add(threading.current_thread())

    spoken = speak_lines(speaks, numbered(voice), OPTIONS, None, Listener(on_frame, phases.append))
    done = [done for done, _ in seen]
    assert done == sorted(done) and done[-1] == sum(one.report.frames for one in spoken)
    assert all(done <= expected for done, expected in seen) and threads == {threading.current_thread()}
    assert phases[0] == "speaking 4 lines" and phases[-1] == "line 4 of 4"


def test_a_line_that_went_wrong_is_made_again_only_with_another_number_of_retries(cache) -> None:
    line = [Line("Hi.", VOICE, seed=5)]
    for retries, again in [(1, 1), (1, 0), (2, 1)]:
        speaks = Scripted()
        listener = Listener(on_phase=lambda _, own=speaks: [end(one, [1], "silent") for one in own.speeches])
        [made] = speak_lines(speaks, line, replace(OPTIONS, retries=retries), RenderOptions(cache), listener)
        assert made.report.ended == "silent" and len(speaks.speeches) == again


def test_bad_lines_are_refused_before_any_is_made(speaks, voice, cache) -> None:
    with pytest.raises(ValueError, match="language 'klingon' is unknown"):
        speak_lines(
            speaks,
            [*numbered(voice), replace(numbered(voice)[0], language="klingon")],
            OPTIONS,
            RenderOptions(cache),
        )
    with pytest.raises(ValueError, match="text is list_iterator, not a string"):
        speak_lines(speaks, [Line(iter(["Hello."]), voice)], OPTIONS)
    with pytest.raises(ValueError, match="no line to speak"):
        speak_lines(speaks, [], OPTIONS)
    assert speaks.made() == []


class Heard:
    """A listener that notes all that it hears, and does the next of a test's steps whenever it is asked to wait."""

    def __init__(self, *steps):
        self.events: list[tuple[str, int, list[float]]] = []
        self._steps = list(steps)
        self.listener = Listener(
            on_frame=self._step,
            on_sound=lambda index, samples: self.events.append(("sound", index, samples.tolist())),
            on_line=lambda index, spoken: self.events.append(("line", index, spoken.waveform.tolist())),
        )

    def _step(self, *_: object) -> None:
        if self._steps:
            self._steps.pop(0)()


def test_sound_comes_in_the_order_of_the_lines_and_the_next_one_is_heard_while_it_is_made() -> None:
    speaks, live = Scripted(), []
    one, two, three = range(3)

    def note() -> None:
        live.append([speech.is_streamed for speech in speaks.speeches])

    heard = Heard(
        *[lambda: None] * 3,  # the keys
        note,
        lambda: put(speaks.speeches[one], [1]),
        lambda: end(speaks.speeches[three], [5, 6]),  # complete before its turn
        lambda: put(speaks.speeches[one], [2], last=True),
        note,
        lambda: put(speaks.speeches[two], [3]),
        lambda: end(speaks.speeches[one], [7, 8], takes=2),  # another take of what was heard
        lambda: put(speaks.speeches[two], [4], last=True),
        lambda: end(speaks.speeches[two], [3, 4]),
    )
    spoken = speak_lines(speaks, numbered(VOICE, 3), OPTIONS, None, heard.listener)
    assert live == [[True, False, False], [True, True, False]]
    assert [one for one in heard.events if one[0] == "sound"] == [
        ("sound", 0, [1]),
        ("sound", 0, [2]),
        ("sound", 1, [3]),
        ("sound", 1, [4]),
        ("sound", 2, [5, 6]),
    ]
    assert [one for one in heard.events if one[0] == "line"] == [
        ("line", 2, [5, 6]),
        ("line", 0, [7, 8]),
        ("line", 1, [3, 4]),
    ]
    assert [one.waveform.tolist() for one in spoken] == [[7, 8], [3, 4], [5, 6]]
    assert [speech.delivery.order for speech in speaks.speeches] == [0, 1, 2]


@pytest.mark.parametrize("works", [True, False])
def test_a_line_that_fails_while_it_is_heard_is_made_again_and_nothing_follows_where_it_broke_off(
    works,
) -> None:
    speaks = Scripted()
    heard = Heard(
        *[lambda: None] * 2,
        lambda: put(speaks.speeches[0], [1]),
        lambda: end_with(speaks.speeches[0], RuntimeError("broken")),
        lambda: end(speaks.speeches[1], [2]),
        lambda: end(speaks.speeches[2], [1, 3]) if works else end_with(speaks.speeches[2], RuntimeError("again")),
    )
    spoken = speak_lines(speaks, numbered(VOICE, 2), OPTIONS, None, heard.listener)
    assert [one for one in heard.events if one[0] == "sound"] == [("sound", 0, [1]), ("sound", 1, [2])]
    assert (spoken[0].waveform.tolist() == [1, 3]) == works and len(speaks.speeches) == 3
    assert spoken[0].report.error == ("" if works else "RuntimeError: again")


def test_lines_that_nobody_hears_are_made_complete_the_longest_first() -> None:
    speaks = Scripted()
    lines = [Line("Word " * count, VOICE, seed=count) for count in (1, 9, 4)]
    listener = Listener(on_phase=lambda _: [end(one, [1]) for one in speaks.speeches])
    speak_lines(speaks, lines, OPTIONS, None, listener)
    assert not any(speech.is_streamed for speech in speaks.speeches)
    order = sorted(speaks.speeches, key=lambda speech: speech.delivery.order)
    assert [speech.line.seed for speech in order] == [9, 4, 1]
