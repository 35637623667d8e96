"""Lines whose text comes in parts, and lines that are cancelled: the others, and the codes, do not notice."""

import random
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import cycle

import pytest
import torch
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech import pieces
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.report import outcome
from qwen3_tts_morph.morph.speech.takes import Take
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.text.profile import TextProfile
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice

from lab.streams import render_lines, stream_line
from tests.morph.batch.test_stream import of_line, wait_until_free
from tests.morph.codec_lines import FLOAT32_DB, signal_to_noise
from tests.patience import PATIENCE

THREE = "This is the first sentence of them. And this is the second sentence. The third comes last"
TEXTS = [
    "It's 3.14, isn't it? Yes: she'll pay $5",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4eca\u5929\u662f2026\u5e74\u3002",
    "  Well... \U0001f600\U0001f468\u200d\U0001f469 yes!\n \n  caf e\u0301 <|im_end|> <think> \n ",
    "Yes",  # its only word is known at its end
]
SHORT = Sampling(max_new_tokens=17)  # at most 16 frames
OPTIONS = GenerateOptions(5, SHORT, split_chars=40, retries=0, normalize="off")


@pytest.fixture
def model(load):
    return load("tiny", "base")


# The eager engine runs what it does in another way by default: test_stream.py has both engines too.
@pytest.fixture(params=[pytest.param("eager", marks=pytest.mark.slow), "graph"])
def synthesizer(model, request):
    return Synthesizer(model, Engine(request.param))


@pytest.fixture
def voice(model, recording):
    return clone_voice(model, recording, 24000, CloneOptions("x_vector"))


def in_parts(text: str, seed: int) -> list[str]:
    draws = random.Random(seed)
    cuts = sorted(draws.choices(range(len(text) + 1), k=draws.randint(0, len(text))))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def in_halves(text: str) -> list[str]:
    """As a source that counts in UTF-16 cuts it: half an emoji at a time."""
    whole = text.encode("utf-16-le")
    return [whole[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(whole), 2)]


def spoken(synthesizer: Synthesizer, line: Line, options: GenerateOptions = OPTIONS) -> tuple:
    with stream_line(synthesizer, line, options) as stream:
        codes, samples = of_line(list(stream))
        [one] = stream.spoken
    assert one.waveform.tobytes() == samples.tobytes()
    return codes, samples, one.report


def check_same(ours: tuple, theirs: tuple) -> None:
    assert torch.equal(ours[0], theirs[0])
    assert signal_to_noise(theirs[1], ours[1]) > FLOAT32_DB
    assert ours[2] == theirs[2]


class Starved:
    """Gives the next part when everything that can be made of those before has been made: ``go`` says so."""

    def __init__(self, parts: Iterable[str]):
        self.parts, self.asked, self.go = iter(parts), threading.Semaphore(0), threading.Semaphore(0)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.asked.release()
        assert self.go.acquire(timeout=PATIENCE)
        return next(self.parts)


# Layout sentence


@pytest.mark.parametrize(
    ("synthesizer", "text"),
    [
        *(("graph", text) for text in (THREE, *TEXTS[:2])),
        ("eager", THREE),
        *(pytest.param("eager", text, marks=pytest.mark.slow) for text in TEXTS[:2]),
    ],
    indirect=["synthesizer"],
)
def test_sentences_are_the_same_however_the_text_comes(synthesizer, voice, text) -> None:
    whole = spoken(synthesizer, Line([text], voice, seed=5))
    for parts in (list(text), in_parts(text, 1)):
        check_same(spoken(synthesizer, Line(iter(parts), voice, seed=5)), whole)
    assert whole[2].text == text and whole[2].frames


def test_pauses_of_sentences_are_silence_however_the_text_comes(synthesizer, voice) -> None:
    first, second, third = THREE.split(". ")
    text = f"[pause 0.1] {first}. [pause 0.25] {second}. [pause 0.05]\n [pause 0.2] {third} [pause 0.5]"
    whole = spoken(synthesizer, Line([text], voice, seed=5))
    for parts in (list(text), in_parts(text, 2)):
        check_same(spoken(synthesizer, Line(iter(parts), voice, seed=5)), whole)
    check_same(spoken(synthesizer, Line(text, voice, seed=5)), whole)
    silences = [round(seconds * 24000) for seconds in (0.1, 0.25, 0.25, 0.5)]
    assert len(whole[1]) == 1920 * whole[2].frames + sum(silences) and whole[2].spoken == ""
    assert not whole[1][: silences[0]].any() and not whole[1][-silences[-1] :].any()


def test_a_wrong_pause_fails_its_line(model, voice) -> None:
    line = Line(iter(["One [pau", "se x] two."]), voice)
    with (
        pytest.raises(ValueError, match=r"\[pause x\] is not a pause"),
        stream_line(Synthesizer(model), line, OPTIONS) as stream,
    ):
        list(stream)


def test_a_sentence_is_heard_before_the_next_one_is_there(synthesizer, voice) -> None:
    parts = Starved(["Hello there. ", "And", " this is more."])
    with stream_line(synthesizer, Line(parts, voice), OPTIONS) as stream:
        parts.go.release(2)  # "And" is needed: it shows that the sentence has ended
        assert len(next(stream).samples)
        parts.go.release(2)
        chunks = list(stream)
    assert chunks[-1].last and stream.spoken[0].report.pieces == 2


def test_figures_are_written_out_sentence_by_sentence(model, voice) -> None:
    synthesizer = Synthesizer(model)
    before, model.profile = model.profile, TextProfile(normalize="en")
    try:
        report = spoken(
            synthesizer,
            Line(iter(["It is 3", ".5 now", ". Take 2", "."]), voice),
            replace(OPTIONS, normalize="auto"),
        )[2]
    finally:
        model.profile = before
    assert report.spoken == "It is three point five now. Take two." and report.pieces == 2


# Layout token


def as_tokens(parts: Iterable[str], voice, seed: int = 5) -> Line:
    return Line(parts, voice, seed=seed, layout="token")


@pytest.mark.parametrize(
    "seq_groups", [5, pytest.param(1, marks=pytest.mark.slow), pytest.param(15, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("text", TEXTS)
def test_tokens_give_the_codes_of_the_whole_text(synthesizer, voice, text, seq_groups) -> None:
    options = replace(OPTIONS, seq_groups=seq_groups, split_chars=0)
    whole = spoken(synthesizer, as_tokens([text], voice), options)
    for parts in (in_halves(text), in_parts(text, 2)):
        check_same(spoken(synthesizer, as_tokens(parts, voice), options), whole)
    check_same(spoken(synthesizer, Line(text, voice, seed=5), options), whole)


def test_a_line_that_starves_makes_the_same_codes(synthesizer, voice) -> None:
    """Each word comes when the stream has said all it can: no pad is fed, and no random number is drawn."""
    words = ["One ", "two ", "three ", "four"]
    whole = spoken(synthesizer, as_tokens(words, voice), replace(OPTIONS, split_chars=0))
    parts = Starved(words)
    heard: list = []
    with stream_line(synthesizer, as_tokens(parts, voice), OPTIONS) as stream:
        reader = threading.Thread(target=lambda: heard.extend(stream))
        reader.start()
        for _ in range(len(words) + 1):
            assert parts.asked.acquire(timeout=PATIENCE)
            settle(heard)
            parts.go.release()
        reader.join(PATIENCE)
        assert torch.equal(of_line(heard)[0], whole[0])
        assert stream.spoken[0].report == whole[2]


def settle(heard: list) -> None:
    """Wait until nothing has come for a moment; the result of the test does not depend on it."""
    before = -1
    while before != len(heard):
        before = len(heard)
        time.sleep(0.02)


def test_the_end_that_is_held_back_does_not_depend_on_when_the_text_comes(synthesizer, voice) -> None:
    """EOS may not come before a share of the whole text's time, which is known only when the text is."""
    model = synthesizer.model
    before, model.profile = model.profile, TextProfile(hold_end=True)
    text = "!? .. - ... 1, 2; ? ! Yes -- well, a word"
    try:
        options = replace(OPTIONS, split_chars=0)
        whole = spoken(synthesizer, Line(text, voice, seed=9), options)
        check_same(spoken(synthesizer, as_tokens(list(text), voice, 9), options), whole)
    finally:
        model.profile = before


# Errors


class Broken(RuntimeError):
    pass


def breaking(text: str) -> Iterator[str]:
    yield text
    raise Broken("the model is gone")


@pytest.mark.parametrize("layout", ["sentence", "token"])
def test_what_the_iterator_raises_comes_after_the_chunks_before_it(synthesizer, voice, layout) -> None:
    text, chunks = "One two three. Four five six. Seven", []
    stream = stream_line(synthesizer, Line(breaking(text), voice, layout=layout), OPTIONS)
    with pytest.raises(Broken, match="gone"):
        for chunk in stream:
            chunks.append(chunk)
    made = of_line(chunks)[1]
    [one] = stream.spoken
    assert one.report.ended == "failed" and one.report.text == text
    assert one.waveform.tobytes() == made.tobytes()
    assert "LOST ITS TEXT" in outcome(stream.spoken, 1.0)
    assert layout == "token" or one.report.pieces == 2
    wait_until_free(synthesizer)


def test_another_take_of_a_line_by_tokens_has_all_its_text(synthesizer, voice, monkeypatch) -> None:
    """As the same text given at once: its prompt had only the first token, the request got the others."""
    text = "Three small birds sat on the wall and sang until the sun went down behind it."
    ends = cycle(["early", "eos"])  # of the first take and of the second
    monkeypatch.setattr(pieces, "judge_end", lambda *_: next(ends))
    monkeypatch.setattr(Take, "better_than", lambda *_: True)
    options = replace(OPTIONS, retries=1, split_chars=0)
    made = []
    for line in (as_tokens(in_parts(text, 3), voice), Line(text, voice, seed=5)):
        with stream_line(synthesizer, line, options) as stream:
            list(stream)
            made += stream.spoken
    assert [one.report.takes for one in made] == [2, 2]
    assert made[0].waveform.tobytes() == made[1].waveform.tobytes()


@pytest.mark.parametrize("layout", ["sentence", "token"])
@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([], "text is empty"),
        (["", " \n"], "text is empty"),
        (["...", "!"], "no letter and no digit"),
        (["One two ", "\ud83d", " three"], "half a character"),
        (["One two ", "\ud83d"], "half a character"),
        (["One", 2], "gave int, not a string"),
    ],
)
def test_texts_that_cannot_be_spoken(model, voice, layout, parts, sentence) -> None:
    stream = stream_line(Synthesizer(model), Line(iter(parts), voice, layout=layout), OPTIONS)
    with pytest.raises((ValueError, TypeError), match=sentence):
        list(stream)
    assert [one.report.ended for one in stream.spoken] == ["failed"]
    assert outcome(stream.spoken, 1.0)


def test_lines_that_cannot_take_their_text_in_parts_are_refused_at_once(model, voice, recording) -> None:
    synthesizer = Synthesizer(model)
    icl = clone_voice(model, recording, 24000, CloneOptions("icl", transcript="a tone"))
    with pytest.raises(ValueError, match="choose layout sentence"):
        stream_line(synthesizer, as_tokens(["Hello."], icl))
    with pytest.raises(ValueError, match="choose sentence or token"):
        stream_line(synthesizer, Line(["Hello."], voice, layout="word"))
    with pytest.raises(ValueError, match="join it, or speak it alone"):
        render_lines(synthesizer, [Line(iter(["Hello."]), voice)])


# Closing


def closing(ended: threading.Event, parts: Iterable[str]) -> Iterator[str]:
    try:
        yield from parts
    finally:
        ended.set()


def endless() -> Iterator[str]:
    while True:
        yield "Word after word. "


def test_the_iterator_is_closed_when_the_speech_is_over(synthesizer, voice) -> None:
    ended = threading.Event()
    report = spoken(synthesizer, as_tokens(closing(ended, endless()), voice))[2]
    assert ended.wait(PATIENCE) and 0 < report.frames <= 30 and report.ended != "failed"
