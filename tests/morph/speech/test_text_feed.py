"""The pieces of a text do not depend on how it comes, and are those of its text as it is spoken."""

import random
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import kitten_text_processing
import pytest
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.runtime import threads
from qwen3_tts_morph.morph.runtime.threads import Pace, WakeUpEvent
from qwen3_tts_morph.morph.speech import pieces
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.pieces import LinePieces, Piece, piece_limit
from qwen3_tts_morph.morph.speech.text_feed import TextFeed
from qwen3_tts_morph.morph.text import english
from qwen3_tts_morph.morph.text.normalize import FIGURES as FIGURE
from qwen3_tts_morph.morph.text.normalize import LONGEST_INPUT, NormalizedText, Normalizer, plain
from qwen3_tts_morph.morph.text.pieces import split_text
from qwen3_tts_morph.morph.text.profile import TextProfile
from qwen3_tts_morph.morph.text.pronunciation import PronunciationList
from qwen3_tts_morph.morph.text.reader import TextReader
from qwen3_tts_morph.morph.text.split import split_sentences
from qwen3_tts_morph.morph.voice.voice import Voice

from tests.patience import PATIENCE

MODEL: Any = SimpleNamespace(profile=TextProfile(longest_piece=100, normalize="en"), sampling=Sampling())
BUILDER: Any = SimpleNamespace(model=MODEL)
VOICE = Voice("preset", "", speaker="ryan")
LIMIT = piece_limit(MODEL, GenerateOptions())
VERSE = """\
The woods are lovely dark and deep
But I have promises to keep
And miles to go before I sleep
And miles to go before I sleep"""
BULLETS = "Buy:\n" + "\n".join(f"- {what}, and some of plan B" for what in ["apples", "pears", "nuts", "bread"] * 5)
TEXTS = [
    VERSE,
    f"{VERSE} [pause 0.5]\n{VERSE}",
    BULLETS,
    "One line\nHe met Dr.\nSmith and the others of the U.S.\n»Quoted« was all\n» it was, and no word more\n***\nEnd",
    "It costs $45\nand is here at 5:30\n1. Eggs\n2. Milk",
]
WORDS = [
    "one", "three,", "Dr.", "e.g.", "B", "B.", "no", "five;", '"Six"', "(seven)", "»eight«", "-", "'", "it's",
]  # fmt: skip
FIGURES = ["3,", "$5", "1999", "50%", "the BBC", "7/8/2009;", "iPhone", "No. 4", "12", "she:"]
ENDS = [". ", "! ", "?", "... ", "\n", "\n\n", ".\n", ",\n", ':\n"', " ", '." ', " - ", "\r\n", "\n» "]


@pytest.fixture(autouse=True)
def no_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "build_piece", lambda *_: None)


def fed(given: str | Iterable[str], voice: Voice = VOICE) -> tuple[Any, ...]:
    """Return the facts of a streamed line that its text decides."""
    parts = LinePieces(Line(given, voice), GenerateOptions(), BUILDER)
    wake_up = WakeUpEvent()
    reader = TextReader(given, wake_up.set)
    with ThreadPoolExecutor(1) as executor:
        feed = TextFeed(parts, executor, wake_up.set, reader)
        reader.start()
        while not feed.done:
            feed.poll()
            assert feed.done or feed.has_news or wake_up.wait(PATIENCE)
    return facts_of(parts.pieces), parts.normalized, parts.readings, parts.line.text, str(feed.error)


def cut(text: str) -> tuple[NormalizedText, list[Piece]]:
    parts = LinePieces(Line(text, VOICE), GenerateOptions(), BUILDER)
    parts.cut()
    return parts.normalized, parts.pieces


def facts_of(pieces: Iterable[Piece]) -> list[tuple[Any, ...]]:
    return [(piece.text, piece.seed, piece.stride, piece.pause_s, piece.after_s) for piece in pieces]


def random_text(draws: random.Random, words: list[str], longest: int = 12) -> str:
    sentences = (
        " ".join(draws.choices(words, k=draws.randint(1, longest))) + draws.choice(ENDS)
        for _ in range(draws.randint(1, 12))
    )
    return f"Word {''.join(sentences)}"


@pytest.fixture
def stub_library(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for the library, which takes long on such texts; return what it is asked."""
    calls: list[str] = []
    monkeypatch.setattr(kitten_text_processing, "normalize_text", lambda text: calls.append(text) or read_figures(text))
    return calls


@pytest.mark.usefixtures("stub_library")
def test_a_text_that_comes_in_any_parts_has_the_pieces_of_the_complete_text() -> None:
    """Of a complete text they are those of its key; of one that comes in parts no piece crosses a sentence."""
    draws = random.Random(5)
    for text in (*TEXTS, *(random_text(draws, WORDS + FIGURES) for _ in range(40))):
        said, pieces = cut(text)
        assert fed(text)[:2] == (facts_of(pieces), said), text
        cuts = sorted(draws.choices(range(len(text) + 1), k=draws.randint(1, 30)))
        parts = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        whole = fed([text])
        assert fed(iter(parts)) == fed(iter(text)) == whole, parts
        if len(split_sentences(text)) == 1:
            assert whole[:2] == (facts_of(pieces), said), text


def test_a_late_text_may_be_longer_as_it_is_read_than_a_complete_one() -> None:
    """Each sentence is short enough. What is said of all of them must not raise in the batch's thread."""
    voice = replace(VOICE, pronunciation=(PronunciationList((("zed", "word " * 39),)),))
    pieces, said, readings, _, error = fed(["Zed zed zed. "] * 50, voice)
    assert error == "None" and len(pieces) == 50 * len(fed(["Zed zed zed."], voice)[0])
    assert len(readings) == 150 and said.text.lower().count("word") == 150 * 39


def test_a_late_text_is_reported_with_its_own_spaces() -> None:
    """With others, Chinese sentences would be reported as spoken in another way."""
    assert fed(["Stop!\nGo", " on."])[1].text == "Stop!\nGo on."


def test_a_line_of_verse_is_a_sentence_in_its_piece() -> None:
    said, pieces = cut(VERSE)
    assert [piece.text for piece in pieces] == [
        "The woods are lovely dark and deep. But I have promises to keep. And miles to go before I sleep.",
        "And miles to go before I sleep.",
    ]
    assert said.text.startswith("The woods are lovely dark and deep. But I")


def read_figures(text: str) -> str:
    return re.sub(
        r"\d+",
        lambda match: " ".join(["nought", "one", "two", "three", "four", "five"][: len(match[0])]),
        text.replace("$5", "five dollars"),  # as it is read in a list, without the library
    )


def written_at_once(text: str) -> str:
    """Write a text out sentence by sentence, each as a whole."""
    said = []
    sentences = split_sentences(plain(text))
    for number, sentence in enumerate(sentences, start=1):
        one = english.before(sentence)
        if FIGURE.search(one):
            one = " ".join(read_figures(part) for part in split_text(one, LONGEST_INPUT))
        one = english.after(one)
        is_heard = any(char.isalnum() for char in one)
        said.append(Normalizer("en").close(one) if number < len(sentences) and is_heard else one)
    return " ".join(one for one in said if one)


@pytest.mark.usefixtures("stub_library")
def test_texts_that_are_written_out_part_by_part_are_those_that_are_written_out_at_once() -> None:
    """Long sentences with figures too; only of words in capitals, none of these sentences has more than others."""
    draws = random.Random(6)
    for _ in range(25):
        text = random_text(draws, WORDS + FIGURES, draws.choice([12, 120]))
        whole = written_at_once(text)
        said, pieces = cut(text)
        assert Normalizer("en").write_out(text).text == whole, text
        assert said.text.split() == whole.split(), text
        closed = [Normalizer("en").close(one) for one in split_text(whole, LIMIT)]
        assert [piece.text for piece in pieces] == [one for one in closed if any(map(str.isalnum, one))], text


@pytest.mark.parametrize("row", ["1/2/2003 and ", "1/2/2003, ", "It was $5. ", "25. "])
def test_the_first_piece_of_a_text_of_figures_does_not_wait_for_the_others(stub_library, row: str) -> None:
    parts = LinePieces(Line("", VOICE), GenerateOptions(), BUILDER)
    pieces = parts.split((row * 20_000)[:20_000], parts.normalizer)
    next(pieces)
    assert len(stub_library) <= 10 and max(map(len, stub_library)) <= LONGEST_INPUT
    next(pieces)
    assert len(stub_library) <= 20


def test_figures_pause_for_as_long_as_they_worked_only_if_others_waited(monkeypatch) -> None:
    now, pauses = {"monotonic": 0.0, "thread_time": 0.0}, []
    clocks = SimpleNamespace(monotonic=lambda: now["monotonic"], thread_time=lambda: now["thread_time"])
    monkeypatch.setattr(threads, "time", clocks)
    stopped: Any = SimpleNamespace(wait=lambda seconds: pauses.append(seconds) or len(pauses) == 4)
    pace = Pace(stopped)

    def work() -> Iterator[Any]:
        for worked, waited in ((2.0, 0.0), (3.0, 5.0), (4.0, 1.0), (6.0, 0.0)):
            now["thread_time"] += worked
            now["monotonic"] += worked + waited
            pace.keep()
        yield

    with pytest.raises(InterruptedError):
        pace.run(partial(next, work(), None))
    assert pauses == [0.0, 3.0, 1.0, 0.0]
