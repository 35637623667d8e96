"""Lines on several devices; several models on the CPU stand for several GPUs."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.kept.line_cache import LineCache
from qwen3_tts_morph.morph.kept.line_renderer import LineRenderer
from qwen3_tts_morph.morph.kept.shared_renderer import SharedRenderer, deal_out
from qwen3_tts_morph.morph.kept.word_check import WordCheck
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.speech import lines as rendering
from qwen3_tts_morph.morph.speech.lines import Line, Rendering, Spoken
from qwen3_tts_morph.morph.speech.listener import Listener
from qwen3_tts_morph.morph.speech.report import describe
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice

from tests.patience import PATIENCE

OPTIONS = GenerateOptions(sampling=Sampling(max_new_tokens=7), batch_size=2, retries=0)
DEVICES = ["cpu", "cpu (2)"]


@pytest.fixture(autouse=True)
def free_judge(monkeypatch):
    """A random model's speech has any length: here every take is good."""
    monkeypatch.setattr(rendering, "judge_end", lambda *_: "eos")


@pytest.fixture(scope="module")
def models(checkpoint):
    """Two models of one checkpoint, as two GPUs would have them."""
    return [load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa")) for _ in range(2)]


@pytest.fixture
def synthesizers(models) -> list[Synthesizer]:
    return [Synthesizer(model) for model in models]


@pytest.fixture
def shared(synthesizers) -> SharedRenderer:
    return share(synthesizers)


def share(synthesizers, options=OPTIONS, cache=None, check=None) -> SharedRenderer:
    return SharedRenderer(tuple(LineRenderer(one, options, cache, check) for one in synthesizers))


def numbered(models, count: int = 9) -> list[Line]:
    """Lines of different lengths."""
    voice = preset_voice(models[0], "ryan")
    return [Line("Word " * (1 + number * 5 % 7), voice, seed=number) for number in range(count)]


def bits(spoken: list[Spoken]) -> list[bytes]:
    return [one.waveform.tobytes() for one in spoken]


def break_engine(monkeypatch, synthesizer: Synthesizer, error: BaseException, seeds=None) -> None:
    """Let a model fail at every line, or at the lines with these seeds."""
    decode = synthesizer.engine.decode

    def fail(model, lines, *more):
        if seeds is None or any(line.seed in seeds for line in lines):
            raise error
        return decode(model, lines, *more)

    monkeypatch.setattr(synthesizer.engine, "decode", fail)


def test_lines_are_those_of_one_device(shared, synthesizers, models) -> None:
    lines = numbered(models)
    alone = LineRenderer(synthesizers[0], OPTIONS).render(lines)
    together = shared.render(lines)
    assert bits(together) == bits(alone)
    assert [one.report.text for one in together] == [line.text for line in lines]
    assert {one.report.device for one in together} == set(DEVICES)
    said = describe(models[0], together, OPTIONS, 1.0)
    assert said.count(", on cpu\n") + said.count(", on cpu (2)\n") == len(lines)
    assert "devices: " in said and " lines on cpu, " in said


def test_devices_build_their_prompts_one_after_another_and_decode_at_the_same_time(
    shared, synthesizers, models, monkeypatch
) -> None:
    building, met = threading.Lock(), threading.Barrier(2, timeout=PATIENCE)
    build = Rendering.prepare.__func__

    def prepare(cls, *given):
        assert building.acquire(blocking=False), "two threads build prompts"
        try:
            return build(cls, *given)
        finally:
            building.release()

    for one in synthesizers:
        decode = one.engine.decode
        monkeypatch.setattr(one.engine, "decode", lambda *given, own=decode: (met.wait(), own(*given))[1])
    monkeypatch.setattr(Rendering, "prepare", classmethod(prepare))
    assert {one.report.device for one in shared.render(numbered(models))} == set(DEVICES)


def test_one_device_is_not_named(synthesizers, models) -> None:
    spoken = share(synthesizers[:1]).render(numbered(models, 3))
    assert {one.report.device for one in spoken} == {""}
    assert "devices: " not in describe(models[0], spoken, OPTIONS, 1.0)


def test_the_longest_lines_come_first_and_each_has_as_much_to_do() -> None:
    lengths = {0: 5, 1: 9, 2: 4, 3: 4, 4: 3, 5: 1}
    shares = deal_out(lengths, lambda _: [0, 1])
    assert shares == {0: (1, 3), 1: (0, 2, 4, 5)}
    assert deal_out(lengths, lambda index: [index % 2]) == {0: (0, 2, 4), 1: (1, 3, 5)}
    assert deal_out({}, lambda _: [0]) == {}


def test_a_line_that_fails_on_one_device_is_made_on_another(
    shared, synthesizers, models, monkeypatch
) -> None:
    lines = numbered(models)
    alone = LineRenderer(synthesizers[0], OPTIONS).render(lines)
    break_engine(monkeypatch, synthesizers[0], RuntimeError("this device is broken"))
    together = shared.render(lines)
    assert bits(together) == bits(alone)
    assert {one.report.device for one in together} == {"cpu (2)"}
    notes = [note for one in together for note in one.report.notes]
    assert notes and set(notes) == {
        "A line could not be made on cpu (RuntimeError: this device is broken): cpu (2) made it."
    }


def test_a_device_that_fails_altogether_leaves_its_lines_to_the_others(
    shared, synthesizers, models, monkeypatch
) -> None:
    lines = numbered(models)
    alone = LineRenderer(synthesizers[0], OPTIONS).render(lines)

    def fail(*_):
        raise RuntimeError("no such device any more")

    monkeypatch.setattr(synthesizers[1].engine, "prompt_builder", fail)
    together = shared.render(lines)
    assert bits(together) == bits(alone)
    assert {one.report.device for one in together} == {"cpu"}


def test_a_line_that_no_device_can_make_ends_no_others(shared, synthesizers, models, monkeypatch) -> None:
    lines = numbered(models)
    for one in synthesizers:
        break_engine(monkeypatch, one, RuntimeError("too odd"), seeds=[4])
    made: dict[int, Spoken] = {}
    together = shared.render(lines, Listener(on_line=made.__setitem__))
    assert [one.report.ended == "error" for one in together] == [number == 4 for number in range(len(lines))]
    assert "too odd" in together[4].report.error
    assert sorted(made) == list(range(len(lines)))


def test_the_error_is_raised_if_no_line_can_be_made(shared, synthesizers, models, monkeypatch) -> None:
    for one in synthesizers:
        break_engine(monkeypatch, one, RuntimeError("nothing works"))
    with pytest.raises(RuntimeError, match="nothing works"):
        shared.render(numbered(models))


def test_no_memory_ends_all(shared, synthesizers, models, monkeypatch) -> None:
    break_engine(monkeypatch, synthesizers[1], torch.cuda.OutOfMemoryError("full"))
    with pytest.raises(torch.cuda.OutOfMemoryError, match="full"):
        shared.render(numbered(models))


class Cancelled(Exception):
    """What ComfyUI raises when the user cancels."""


@pytest.mark.parametrize("in_order", [False, True])
def test_a_user_who_cancels_ends_all_devices(shared, models, in_order) -> None:
    called = []

    def cancel(done: int, _: int) -> None:
        called.append((threading.current_thread(), done))
        if done > 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        shared.render(numbered(models), Listener(on_frame=cancel), in_order)
    engines = [renderer.synthesizer.engine for renderer in shared.renderers]
    assert not any(
        engine.threads.working for engine in engines
    )  # a stream's thread may wait for another stream
    assert "lines" not in {thread.name for thread in threading.enumerate()}
    assert {thread for thread, _ in called} == {threading.current_thread()}
    assert bits(shared.render(numbered(models, 2)))  # both are free for the next run


def test_frames_of_all_devices_are_counted(shared, models) -> None:
    seen: list[tuple[int, int]] = []
    spoken = shared.render(numbered(models), Listener(on_frame=lambda *counts: seen.append(counts)))
    done = [done for done, expected in seen if expected > 1]
    assert done == sorted(done) and done[-1] == sum(one.report.frames for one in spoken)
    assert all(done <= expected for done, expected in seen)


def test_lines_are_kept_for_one_device_and_for_several(synthesizers, models, tmp_path) -> None:
    cache, lines = LineCache(tmp_path / "lines", 10**8), numbered(models)
    shared = share(synthesizers, cache=cache)
    first = shared.render(lines)
    again = shared.render(lines)
    alone = LineRenderer(synthesizers[1], OPTIONS, cache).render(lines)
    assert bits(first) == bits(again) == bits(alone)
    for spoken in (again, alone):
        assert all(one.report.from_before and not one.report.device for one in spoken)
    changed = [*lines[:3], replace(lines[3], seed=99), *lines[4:]]
    assert [one.report.from_before for one in shared.render(changed)] == [n != 3 for n in range(len(lines))]


def test_what_was_made_before_a_cancel_is_kept(synthesizers, models, tmp_path) -> None:
    cache, lines = LineCache(tmp_path / "lines", 10**8), numbered(models, 20)
    made: list[int] = []

    def cancel(index: int, _: Spoken) -> None:
        made.append(index)
        raise Cancelled

    with pytest.raises(Cancelled):
        share(synthesizers, cache=cache).render(lines, Listener(on_line=cancel))
    again = share(synthesizers, cache=cache).render(lines)
    assert again[made[0]].report.from_before


def test_lines_that_are_heard_come_in_order_with_the_first_as_it_is_made(
    shared, synthesizers, models
) -> None:
    lines = numbered(models)
    sound: list[tuple[int, np.ndarray]] = []
    made: list[int] = []
    together = shared.render(
        lines,
        Listener(on_sound=lambda *one: sound.append(one), on_line=lambda index, _: made.append(index)),
        in_order=True,
    )
    assert {index for index, _ in sound} == {0} and len(sound) > 1
    first = np.concatenate([samples for _, samples in sound])
    np.testing.assert_allclose(first, together[0].waveform, atol=1e-4)
    assert sorted(made) == list(range(len(lines)))
    assert bits(together)[1:] == bits(LineRenderer(synthesizers[0], OPTIONS).render(lines))[1:]


def test_a_line_that_fails_while_it_is_heard_is_made_complete(
    shared, synthesizers, models, monkeypatch
) -> None:
    lines = numbered(models, 4)
    from qwen3_tts_morph.morph.kept import shared_renderer

    def fail(*_):
        raise RuntimeError("streams do not work")

    monkeypatch.setattr(shared_renderer, "stream_line", fail)
    together = shared.render(lines, in_order=True)
    assert bits(together) == bits(LineRenderer(synthesizers[0], OPTIONS).render(lines))


def test_pieces_that_went_wrong_are_spoken_again(synthesizers, models, monkeypatch) -> None:
    monkeypatch.setattr(
        rendering, "judge_end", lambda text, decoded, *_: "silent" if len(text) > 20 else "eos"
    )
    options, lines = replace(OPTIONS, retries=1), numbered(models)
    together = share(synthesizers, options).render(lines)
    alone = LineRenderer(synthesizers[0], options).render(lines)
    assert [one.report.takes for one in together] == [one.report.takes for one in alone]
    assert {one.report.takes for one in together} == {1, 2}
    assert bits(together) == bits(alone)


class DeafEar:
    """Hears the right words in none of the first takes."""

    name = "deaf ear"

    def hear(self, waveform, sample_rate, language) -> str:
        return "nothing"


def test_lines_that_are_heard_wrong_get_the_takes_that_one_device_gives_them(synthesizers, models) -> None:
    check, lines = WordCheck(DeafEar(), 0.2, 1), numbered(models, 5)
    together = share(synthesizers, check=check).render(lines)
    alone = LineRenderer(synthesizers[0], OPTIONS, None, check).render(lines)
    assert bits(together) == bits(alone)
    assert [one.report.heard for one in together] == [one.report.heard for one in alone]
    assert {one.report.heard.takes for one in together} == {2}


def test_torch_keeps_its_number_of_threads(shared, models) -> None:
    torch.set_num_threads(2)
    try:
        shared.render(numbered(models, 4))
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert torch.get_num_threads() == 2 and later == [2]
    finally:
        torch.set_num_threads(1)


def test_models_that_would_not_speak_alike_are_refused(synthesizers, models, load) -> None:
    other = Synthesizer(load("tiny", "base"))
    with pytest.raises(
        ValueError, match=r"the models on cpu and cpu \(2\) cannot share lines: checkpoint is"
    ):
        share([synthesizers[0], other])
    half = Synthesizer(load("tiny", "custom_voice", "bf16"))
    with pytest.raises(ValueError, match="precision is float32 and bfloat16"):
        share([synthesizers[0], half])
    with pytest.raises(ValueError, match="there is no model"):
        share([])


def test_lines_that_cannot_be_spoken_are_refused_before_a_frame(shared, models) -> None:
    lines = [*numbered(models), replace(numbered(models)[0], language="Elvish")]
    with pytest.raises(ValueError, match="Elvish"):
        shared.render(lines, Listener(on_line=lambda *_: pytest.fail("a line was made")))
