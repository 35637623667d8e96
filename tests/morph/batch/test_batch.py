"""Lines of many callers in one running batch: they join, leave, wait and fail by themselves."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import kitten_text_processing
import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch import speech as speech_module
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.codec import steps as codec_steps
from qwen3_tts_morph.morph.batch.loop import Loop
from qwen3_tts_morph.morph.batch.scheduler import Busy
from qwen3_tts_morph.morph.batch.speech import Delivery, Speech
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.text.profile import TextProfile
from qwen3_tts_morph.morph.waveform.incremental import WavesInFlight
from qwen3_tts_morph.morph.waveform.stream import SingleLines

from lab.streams import stream_line
from tests.morph.endless import pin_ends
from tests.patience import PATIENCE, wait_until

SHORT = GenerateOptions(5, Sampling(max_new_tokens=17), retries=0)  # at most 16 frames
LONG = GenerateOptions(5, Sampling(max_new_tokens=2000), retries=0, guard=False)


EAGER = pytest.param("eager", marks=pytest.mark.slow)


# By default on the graph engine alone: test_stream.py and test_late_text.py have the eager engine too.
@pytest.fixture(params=[EAGER, "graph"])
def synthesizer(model, request):
    return Synthesizer(model, Engine(request.param))


@pytest.fixture
def endless(voice, monkeypatch) -> Line:
    """A line that takes all the frames it may have."""
    pin_ends(monkeypatch, 5000)
    return Line("word " * 60, voice, seed=1)


def heard(utterance: Speech) -> tuple[torch.Tensor, np.ndarray]:
    chunks = list(utterance)
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    return torch.cat([one.codes for one in chunks]), np.concatenate([one.samples for one in chunks])


@pytest.fixture
def slow_figures(model, monkeypatch) -> threading.Event:
    """The checkpoint's texts are written out, and each sentence with figures takes until this is set."""
    go_on = threading.Event()
    go_on.written = []

    def write_out(text: str) -> str:
        go_on.written.append(text)
        assert go_on.wait(PATIENCE)
        return text.replace("7", "seven")

    monkeypatch.setattr(kitten_text_processing, "normalize_text", write_out)
    monkeypatch.setattr(model, "profile", replace(model.profile, normalize="en"))
    return go_on


@pytest.mark.parametrize("late", [False, True], ids=["whole", "late"])
def test_a_text_full_of_figures_holds_up_no_other_line(synthesizer, voice, slow_figures, late) -> None:
    figures = Line("There are 7 of them. [pause 0.2] And 7 more. The end.", voice, seed=2)
    with Batch(synthesizer, 2) as service:
        slow = service.speak(replace(figures, text=iter(figures.text.partition("them. "))) if late else figures, SHORT)
        other = service.speak(Line("Hello there.", voice, seed=1), SHORT)
        heard(other)
        assert not slow_figures.is_set()
        slow_figures.set()
        codes, samples = heard(slow)
    assert slow.report.spoken == "There are seven of them. And seven more. The end."
    if late:  # the same sentences, but each is a piece
        assert slow.report.pieces == 3
        return
    with stream_line(synthesizer, figures, SHORT) as stream:
        chunks = list(stream)
    assert torch.equal(codes, torch.cat([chunk.codes for chunk in chunks]))
    assert len(samples) == sum(len(chunk.samples) for chunk in chunks)


@pytest.mark.parametrize("is_beside", [False, True])
def test_an_offline_text_full_of_figures_holds_up_no_other_line(
    synthesizer, voice, slow_figures, is_beside: bool
) -> None:
    """Other lines are decoded while it is cut; without any, the batch may release the model."""
    figures = Line("There are 7 of them. [pause 0.2] And 7 more. " * 8 + "The end.", voice, seed=2)
    with Batch(synthesizer, 2, linger_s=PATIENCE if is_beside else 0.0) as service:
        slow = service.speak(figures, SHORT, Delivery(live=False))
        wait_until(lambda: slow_figures.written)
        if is_beside:
            heard(service.speak(Line("Hello there.", voice, seed=1), SHORT))
            assert service.speak(Line("Hello.", voice), SHORT, Delivery(live=False)).result().report.frames
        assert len(slow_figures.written) == 1
        slow_figures.set()
        spoken = slow.result()
    assert spoken.report.spoken.count("And seven more.") == 8
    with Batch(synthesizer, 2, linger_s=None) as batch:  # cuts it before the first frame
        again = batch.speak(figures, SHORT, Delivery(live=False)).result()
    assert replace(spoken.report, device="") == replace(again.report, device="")
    assert [one.text for one in spoken.spans] == [one.text for one in again.spans]
    assert np.allclose(spoken.waveform, again.waveform, atol=1e-4)


@pytest.mark.parametrize("how", ["whole", "late", "offline"])
def test_a_reader_who_leaves_ends_the_writing_out(synthesizer, voice, slow_figures, how) -> None:
    with Batch(synthesizer, 1) as service:
        text = "7 of them. " * 50
        delivery = Delivery(live=how != "offline")
        utterance = service.speak(Line(iter([text]) if how == "late" else text, voice), SHORT, delivery)
        wait_until(lambda: slow_figures.written)
        utterance.close()
        heard(service.speak(Line("Hello there.", voice), SHORT))  # its row is free
        slow_figures.set()
        heard(service.speak(Line("There are 7.", voice), SHORT))
    assert len(slow_figures.written) < 10, "not all of its fifty sentences"


def test_samples_that_are_not_finite_end_their_own_line_only(model, voice, monkeypatch) -> None:
    launch, seen = SingleLines.launch, set[int]()

    def spoil(codec: SingleLines, codes):
        waves = launch(codec, codes).wait()
        seen.update(waves)
        return WavesInFlight({n: wave * np.nan if n == min(seen) else wave for n, wave in waves.items()})

    monkeypatch.setattr(SingleLines, "launch", spoil)
    synthesizer = Synthesizer(model, Engine("eager"))
    with Batch(synthesizer, 2) as service:
        with synthesizer.session():  # both begin together
            first, second = (service.speak(Line(f"Number {n}.", voice, seed=n), SHORT) for n in range(2))
        with pytest.raises(ValueError, match="voice ryan: the model's numbers are not finite"):
            list(first)
        assert len(heard(second)[0]) == second.report.frames > 0
        assert service.status.speaking == 0


@pytest.mark.parametrize("delivery", [Delivery(), Delivery(live=False), Delivery(keep=False)])
def test_a_reader_that_leaves_before_a_first_frame_ends_its_own_line_only(
    synthesizer, voice, monkeypatch, caplog, delivery
) -> None:
    """After the batch has looked who has left, and before the frame."""
    enter, leaving = Loop._enter, list[Speech]()

    def leave(loop: Loop, entering) -> None:
        enter(loop, entering)
        if leaving and entering:
            leaving.pop().cancel()

    monkeypatch.setattr(Loop, "_enter", leave)
    with Batch(synthesizer, 2) as service:
        with synthesizer.session():  # both begin together
            gone = service.speak(Line("Hello.", voice), SHORT, delivery)
            other = service.speak(Line("Hello there.", voice, seed=1), SHORT)
            leaving.append(gone)
        assert len(heard(other)[0]) == other.report.frames
        wait_until(lambda: gone.ended)
        gone.check()
        assert (gone.report.ended, gone.report.frames) == ("cancelled", 0) and "failed" not in caplog.text


@pytest.mark.parametrize("text", ["It was 7. Then", ["It was 7", ". Then"]])
def test_a_text_that_cannot_be_written_out_ends_its_own_line_only(model, voice, monkeypatch, text) -> None:
    def fail(_: str) -> str:
        raise KeyError("of the library")

    monkeypatch.setattr(kitten_text_processing, "normalize_text", fail)
    monkeypatch.setattr(model, "profile", TextProfile(normalize="en"))
    synthesizer = Synthesizer(model, Engine("eager"))
    with Batch(synthesizer, 2) as service:
        with synthesizer.session():  # both begin together
            failing = service.speak(Line(text, voice), SHORT)
            other = service.speak(Line("Hello there.", voice, seed=1), SHORT)
        with pytest.raises(KeyError):
            list(failing)
        assert len(heard(other)[0]) == other.report.frames


def test_a_callback_that_raises_ends_its_own_line_only(synthesizer, voice, caplog) -> None:
    def fail() -> None:
        raise LookupError("the caller's own")

    with Batch(synthesizer, 2) as service:
        with synthesizer.session():  # both begin together
            failing = service.speak(Line("Hello.", voice), SHORT, Delivery(on_change=fail))
            other = service.speak(Line("Hello there.", voice, seed=1), SHORT)
        with pytest.raises(LookupError):
            list(failing)
        assert len(heard(other)[0]) == other.report.frames and "on_change" in caplog.text
        assert heard(service.speak(Line("Hello.", voice), SHORT))


def test_a_reader_that_leaves_before_its_line_has_a_row_gets_a_report(synthesizer, voice, endless) -> None:
    told = threading.Event()
    with Batch(synthesizer, 1) as service:
        first = service.speak(endless, LONG)
        first.take()
        waiting = service.speak(Line("Hello.", voice, name="Ann"), SHORT, Delivery(on_change=told.set))
        waiting.close()
        assert told.wait(PATIENCE)
        assert (waiting.report.ended, waiting.report.frames, waiting.report.name) == ("cancelled", 0, "Ann")
        told.clear()
        another = service.speak(Line("Hello.", voice), SHORT, Delivery(on_change=lambda: service.status and told.set()))
        another.close()
        service.speak(Line("Hello.", voice), SHORT).close()
        assert told.wait(PATIENCE), "who is told may ask the service"
        first.close()


def test_too_many_lines_are_refused(synthesizer, voice, endless) -> None:
    with Batch(synthesizer, 1, waiting=2) as service:
        running = service.speak(endless, LONG)
        running.take()
        waiting = [service.speak(Line("Hello.", voice), SHORT) for _ in range(2)]
        with pytest.raises(Busy, match="2 lines wait"):
            service.speak(Line("Hello.", voice), SHORT)
        waiting.pop().close()
        waiting.append(service.speak(Line("Hello.", voice), SHORT))
        running.close()
        assert all(len(heard(one)[1]) for one in waiting)


def test_a_text_is_closed_although_its_line_never_had_a_row(synthesizer, voice, endless) -> None:
    closed = []

    def parts() -> Iterator[str]:
        try:
            yield "One. "
            yield "Two. "
        finally:
            closed.append(1)

    with Batch(synthesizer, 1) as service:
        service.speak(endless, LONG)
        wait_until(lambda: service.status.speaking == 1)
        text = parts()
        next(text)
        service.speak(Line(text, voice), LONG).close()
        wait_until(lambda: closed == [1])
        text = parts()
        next(text)
        service.speak(Line(text, voice), LONG)
    wait_until(lambda: closed == [1, 1])  # the batch was closed


def test_a_text_that_cannot_be_closed_is_nobody_else_s_trouble(model, voice) -> None:
    def parts() -> Iterator[str]:
        try:
            yield "One. "
            yield "Two. "
        finally:
            raise ConnectionError("gone")

    def begun() -> Iterator[str]:
        text = parts()
        next(text)
        return text

    with Batch(Synthesizer(model, Engine("eager")), 1) as service:
        for _ in range(3):  # the service is idle, or speaks
            service.speak(Line(begun(), voice), SHORT).close()
            assert len(heard(service.speak(Line("Hello there.", voice), SHORT))[1])


def test_a_batch_that_cannot_begin_ends_its_line(model, voice, monkeypatch) -> None:
    synthesizer = Synthesizer(model, Engine("eager"))

    def fail() -> None:
        raise RuntimeError("no such device")

    with Batch(synthesizer, 1) as service:
        with monkeypatch.context() as broken:
            broken.setattr(Synthesizer, "session", lambda _: fail())
            with pytest.raises(RuntimeError, match="no such device"):
                list(service.speak(Line("Hello there.", voice), SHORT))
        assert len(heard(service.speak(Line("Hello there.", voice), SHORT))[1]), "the next one is spoken"
    with pytest.raises(ValueError, match="choose 1 to 512 rows"):
        Batch(synthesizer, 513)


def test_a_text_that_is_too_long_for_the_model_ends_its_line_only(synthesizer, voice) -> None:
    with Batch(synthesizer, 2) as service:
        options = GenerateOptions(5, SHORT.sampling, split_chars=0, retries=0)
        broken, whole = (
            service.speak(Line("word " * 40_000, voice), options),
            service.speak(Line("Hello.", voice), SHORT),
        )
        with pytest.raises(ValueError, match="split it into shorter lines"):
            list(broken)
        assert len(heard(whole)[1])


def test_an_error_of_the_engine_ends_the_batch_and_the_next_one_runs(synthesizer, voice, monkeypatch) -> None:
    with Batch(synthesizer, 2) as service:
        with monkeypatch.context() as patch:
            patch.setattr(codec_steps, "check_samples", fail)
            with pytest.raises(RuntimeError, match="out of memory"):
                list(service.speak(Line("Hello.", voice), SHORT))
        with monkeypatch.context() as patch:
            patch.setattr(synthesizer.engine, "open_codec", fail)
            with pytest.raises(RuntimeError, match="out of memory"):
                list(service.speak(Line("Hello.", voice), SHORT))
        assert len(heard(service.speak(Line("Hello.", voice), SHORT))[1])


def fail(*_: object) -> None:
    raise RuntimeError("out of memory")


def test_the_model_is_free_when_no_line_comes(synthesizer, voice) -> None:
    with Batch(synthesizer, 1) as service:
        heard(service.speak(Line("Hello.", voice), SHORT))
        taken = threading.Event()

        def take() -> None:
            with synthesizer.session():
                taken.set()

        threading.Thread(target=take, daemon=True).start()
        assert taken.wait(PATIENCE)
        heard(service.speak(Line("Hello.", voice), SHORT))


PIECES = 3
FULL, OF_PIECE = 10, 12  # frames that a reader may have waiting, and those of a piece


@pytest.fixture
def little_room(monkeypatch) -> None:
    """A reader may have few frames waiting."""
    monkeypatch.setattr(speech_module, "QUEUED_FRAMES", FULL)


@pytest.fixture
def parked(endless, little_room) -> Line:
    """A line of several pieces, each longer than what a reader may have waiting."""
    return replace(endless, text=" ".join(["word " * 7 + "ends here."] * PIECES))


PARKING = GenerateOptions(5, Sampling(max_new_tokens=OF_PIECE + 1), guard=False, retries=0, split_chars=60)


def test_no_reader_waits_for_ever(synthesizer, parked) -> None:
    """However many others read nothing: an idle line needs no room to go on."""
    with Batch(synthesizer, 1, waiting=1) as service:
        slow = []
        for seed, groups in enumerate((1, 5)):
            slow.append(service.speak(replace(parked, seed=seed), replace(PARKING, seq_groups=groups)))
            wait_until(lambda: service.status.parked == len(slow))
        with pytest.raises(Busy):
            service.speak(parked, PARKING)
        for one in slow:
            assert len(heard(one)[0]) == PIECES * OF_PIECE
