"""Late text in a service: a line without text holds no row, and one caller's text is nobody else's trouble."""

import threading
from collections.abc import Iterable, Iterator

import pytest
import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.codec.pacing import Speed
from qwen3_tts_morph.morph.batch.scheduler import Busy
from qwen3_tts_morph.morph.batch.speech import Delivery, Inbox, Signal, Speech
from qwen3_tts_morph.morph.batch.utterance import Shared, Utterance
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.runtime.threads import WakeUpEvent
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.text_feed import PIECES_AHEAD
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.text.pieces import MOST_UNREAD
from qwen3_tts_morph.morph.text.reader import TextReader
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from tests.patience import PATIENCE, wait_until

OPTIONS = GenerateOptions(5, Sampling(max_new_tokens=17), retries=0)  # at most 16 frames


@pytest.fixture
def synthesizer(load) -> Synthesizer:
    return Synthesizer(load("tiny", "base"), Engine("graph"))


@pytest.fixture
def voice(synthesizer, recording) -> Voice:
    return clone_voice(synthesizer.model, recording, 24000, CloneOptions("x_vector"))


class Parts:
    """Gives the next part when it may: ``go`` says so. ``asked`` counts the questions."""

    def __init__(self, *parts: str):
        self.parts, self.go, self.asked, self.closed = iter(parts), threading.Semaphore(0), 0, False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.asked += 1
        assert self.go.acquire(timeout=PATIENCE)
        return next(self.parts)

    def close(self) -> None:
        self.closed = True


def codes_of(utterance: Speech) -> torch.Tensor:
    return torch.cat([chunk.codes for chunk in utterance])


def late(text: Iterable[str], voice: Voice, layout: str) -> Line:
    return Line(text, voice, seed=3, layout=layout)


LAYOUTS = [("sentence", "Hello ", "there. Bye."), ("token", " ", "Hello there.")]


@pytest.mark.parametrize(("layout", "first", "rest"), LAYOUTS)
def test_a_line_that_has_nothing_to_speak_yet_holds_no_row(synthesizer, voice, layout, first, rest) -> None:
    with Batch(synthesizer, 1) as service:
        whole = codes_of(service.speak(late([first + rest], voice, layout), OPTIONS))
        parts = Parts(first, rest)
        silent = service.speak(late(parts, voice, layout), OPTIONS)
        parts.go.release()
        wait_until(lambda: parts.asked == 2)
        assert len(codes_of(service.speak(Line("Another.", voice), OPTIONS)))
        assert (service.status.silent, service.status.waiting, service.status.speaking) == (1, 0, 0)
        parts.go.release(2)
        assert torch.equal(codes_of(silent), whole)


def test_a_line_that_runs_out_of_text_leaves_its_row(synthesizer, voice) -> None:
    """And goes on with the codes that it would have had."""
    texts = ["The first. The ", "second. The", " third one."]
    with Batch(synthesizer, 1) as service:
        whole = codes_of(service.speak(late(["".join(texts)], voice, "sentence"), OPTIONS))
        parts, made = Parts(*texts), []
        speaking = service.speak(late(parts, voice, "sentence"), OPTIONS)
        for _ in texts:
            parts.go.release()
            made.append(speaking.take())
            wait_until(lambda: service.status.parked == 1 and service.status.speaking == 0)
            assert len(codes_of(service.speak(Line("Another.", voice), OPTIONS)))
        parts.go.release()
        made += list(speaking)
    assert torch.equal(torch.cat([chunk.codes for chunk in made]), whole)
    assert speaking.report.pieces == 3


@pytest.mark.parametrize("live", [True, False])
def test_a_line_by_tokens_without_text_gives_its_row_to_others(synthesizer, voice, live) -> None:
    """And goes on with the codes that it would have had."""
    with Batch(synthesizer, 1) as service:
        whole = codes_of(service.speak(late(["One two three four."], voice, "token"), OPTIONS))
        parts = Parts("One two three ", "four.")
        speaking = service.speak(late(parts, voice, "token"), OPTIONS)
        parts.go.release()
        made = [speaking.take()]
        wait_until(lambda: parts.asked == 2)
        for _ in range(2):
            assert service.speak(Line("Another.", voice), OPTIONS, Delivery(live=live)).result()
        parts.go.release(2)
        made += list(speaking)
    assert torch.equal(torch.cat([chunk.codes for chunk in made]), whole)


def test_lines_without_text_take_no_place_from_others(synthesizer, voice) -> None:
    with Batch(synthesizer, 1, waiting=1) as service:
        silent = service.speak(late(Parts(), voice, "sentence"), OPTIONS)
        refused = Parts("One.")
        with pytest.raises(Busy, match="wait for their texts"):
            service.speak(late(refused, voice, "sentence"), OPTIONS)
        assert refused.asked == 0, "it can be tried again"
        assert len(codes_of(service.speak(Line("Another.", voice), OPTIONS)))
        silent.close()
        wait_until(lambda: service.status.silent == 0)


# One caller's text


def endless(part: str) -> Iterator[str]:
    while True:
        yield part


def raising() -> Iterator[str]:
    yield "One. Two"
    raise LookupError("the text is gone")


class Blocking(Parts):
    """Its ``close`` never returns, as long as the test runs."""

    def __init__(self, *parts: str):
        super().__init__(*parts)
        self.go.release(len(parts) + 1)
        self.closing, self.may_close = threading.Event(), threading.Event()

    def close(self) -> None:
        self.closing.set()
        self.may_close.wait(PATIENCE)


@pytest.mark.parametrize(
    ("layout", "text", "error"),
    [
        ("sentence", raising, LookupError),
        ("sentence", lambda: endless("word " * 100), ValueError),
        ("sentence", lambda: endless(" " * 999), ValueError),
        ("token", lambda: endless("word" * 100), ValueError),
        ("token", lambda: endless(" " * 999), ValueError),
    ],
    ids=["raises", "no sentence ends", "blanks", "one word", "blanks by tokens"],
)
def test_a_text_that_goes_wrong_ends_its_own_line_only(synthesizer, voice, layout, text, error) -> None:
    with Batch(synthesizer, 2) as service:
        wrong = service.speak(late(text(), voice, layout), OPTIONS)
        other = service.speak(late(["One. ", "Two."], voice, "sentence"), OPTIONS)
        with pytest.raises(error):
            list(wrong)
        assert len(codes_of(other)) and other.report.pieces == 2


def test_an_iterator_whose_close_blocks_holds_up_nobody(synthesizer, voice) -> None:
    parts = Blocking("One. ", "Two.")
    with Batch(synthesizer, 1) as service:
        assert len(codes_of(service.speak(late(parts, voice, "sentence"), OPTIONS)))
        assert parts.closing.wait(PATIENCE)
        assert len(codes_of(service.speak(Line("Another.", voice), OPTIONS)))
    parts.may_close.set()


def test_the_pieces_of_much_text_are_not_made_at_once(synthesizer, voice) -> None:
    """A prompt takes some milliseconds, and all lines wait for it."""
    signal = Signal([Inbox()])
    speech = Speech(late(["One. " * 500], voice, "sentence"), OPTIONS, Delivery(), signal)
    line, counts = Utterance(speech, signal, 24000), []
    line.read()
    wait_until(lambda: line.text._ended)
    with synthesizer.session():
        builder = synthesizer.engine.prompt_builder(synthesizer.model)
        shared = Shared(builder, Speed(0.08), str, synthesizer.engine.texts)
        line.open(shared)
        for _ in range(PIECES_AHEAD + 2):
            counts.append(len(line.parts.pieces))
            line.follow()
    assert counts == [*range(1, PIECES_AHEAD + 1)] + [PIECES_AHEAD] * 2
    line.close_text()


def test_a_part_of_any_length_is_read_as_far_as_its_speech_needs() -> None:
    reader, taken = TextReader(["One. " * MOST_UNREAD], WakeUpEvent().set), 0
    reader.start()
    while not reader.is_over:
        wait_until(lambda: reader.has_news)
        assert len(reader.text) <= 5 * taken + 3 * MOST_UNREAD
        taken += reader.take() == "One."
    assert taken == MOST_UNREAD
