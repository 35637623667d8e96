"""The pieces of a text that is cut as it is written out are those of the text that is written out first."""

import random
import re
import sys
from types import SimpleNamespace
from typing import Any

import kitten_text_processing
import pytest
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech import pieces
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.piece import Piece
from qwen3_tts_morph.morph.speech.pieces import LinePieces, cut_line, piece_limit
from qwen3_tts_morph.morph.speech.texts import whole_text
from qwen3_tts_morph.morph.text import english
from qwen3_tts_morph.morph.text.normalize import FIGURES, LONGEST_INPUT, Normalizer
from qwen3_tts_morph.morph.text.pieces import split_arriving
from qwen3_tts_morph.morph.text.profile import TextProfile
from qwen3_tts_morph.morph.text.signs import plain
from qwen3_tts_morph.morph.text.split import split_sentences, split_text
from qwen3_tts_morph.morph.voice.voice import Voice

MODEL: Any = SimpleNamespace(profile=TextProfile(longest_piece=100, normalize="en"), sampling=None)
VOICE = Voice("preset", "", speaker="ryan")
LIMIT = piece_limit(MODEL, GenerateOptions())
VERSE = """\
The woods are lovely dark and deep
But I have promises to keep
And miles to go before I sleep
And miles to go before I sleep"""
BULLETS = "Buy:\n" + "\n".join(
    f"- {what}, and some of plan B" for what in ["apples", "pears", "nuts", "bread"] * 5
)
TEXTS = [
    VERSE,
    f"{VERSE} [pause 0.5]\n{VERSE}",
    BULLETS,
    "One line\nHe met Dr.\nSmith and the others of the U.S.\n»Quoted« was all\n» it was, and no word more\n***\nEnd",
    "It costs $45\nand is here at 5:30\n1. Eggs\n2. Milk",
]
WORDS = [
    "one",
    "three,",
    "Dr.",
    "e.g.",
    "B",
    "B.",
    "no",
    "five;",
    '"Six"',
    "(seven)",
    "»eight«",
    "-",
    "'",
    "it's",
]
ENDS = [". ", "! ", "?", "... ", "\n", "\n\n", ".\n", ",\n", ':\n"', " ", '." ', " - ", "\r\n", "\n» "]


@pytest.fixture(autouse=True)
def no_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "build_piece", lambda *_: None)


def pieces_one_by_one(text: str) -> tuple[list[Any], str]:
    """Return the pieces that ``WholeLine`` gives, and the text as it is spoken."""
    builder: Any = SimpleNamespace(model=MODEL)
    parts = LinePieces(Line(text, VOICE), GenerateOptions(), builder, Normalizer("en"))
    line = whole_text.WholeLine(parts)
    while not line.done:
        line.poll()
    assert line.error is None
    return [facts_of(piece) for piece in parts.pieces], parts.said.text


def facts_of(piece: Piece) -> tuple[Any, ...]:
    return piece.text, piece.seed, piece.stride, piece.pause_s, piece.after_s


def pieces_at_once(text: str) -> tuple[list[Any], str]:
    said, pieces = cut_line(Line(text, VOICE), Normalizer("en"), LIMIT)
    return [facts_of(piece) for piece in pieces], said.text


@pytest.mark.parametrize("text", TEXTS)
def test_lines_without_stops_are_cut_alike(text: str) -> None:
    assert pieces_one_by_one(text) == pieces_at_once(text)


def test_random_texts_are_cut_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library, which takes long on such texts: where they are cut is ours."""
    monkeypatch.setitem(sys.modules, "kitten_text_processing", None)
    draws = random.Random(5)
    for _ in range(20):
        made = "".join(
            " ".join(draws.choices(WORDS, k=draws.randint(1, 12))) + draws.choice(ENDS)
            for _ in range(draws.randint(1, 12))
        )
        text = f"Word {made}"
        assert pieces_one_by_one(text) == pieces_at_once(text), text


def test_a_line_of_verse_is_a_sentence_in_its_piece() -> None:
    pieces, said = pieces_at_once(VERSE)
    assert [piece[0] for piece in pieces] == [
        "The woods are lovely dark and deep. But I have promises to keep. And miles to go before I sleep.",
        "And miles to go before I sleep.",
    ]
    assert said.startswith("The woods are lovely dark and deep. But I")


def read_figures(text: str) -> str:
    """Stand in for the library, which takes long on such texts."""
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
        if FIGURES.search(one):
            one = " ".join(read_figures(part) for part in split_text(one, LONGEST_INPUT))
        one = english.after(one)
        is_heard = any(char.isalnum() for char in one)
        said.append(Normalizer("en").close(one) if number < len(sentences) and is_heard else one)
    return " ".join(one for one in said if one)


def test_texts_that_are_written_out_part_by_part_are_those_that_are_written_out_at_once(monkeypatch) -> None:
    """Long sentences with figures too; only of words in capitals, none of these sentences has more than others."""
    monkeypatch.setattr(kitten_text_processing, "normalize_text", read_figures)
    draws = random.Random(6)
    figures = [*WORDS, "3,", "$5", "1999", "50%", "the BBC", "7/8/2009;", "iPhone", "No. 4", "12", "she:"]
    for _ in range(25):
        longest = draws.choice([12, 120])
        made = "".join(
            " ".join(draws.choices(figures, k=draws.randint(1, longest))) + draws.choice(ENDS)
            for _ in range(draws.randint(1, 6))
        )
        text = f"Word {made}"
        whole = written_at_once(text)
        pieces, said = pieces_one_by_one(text)
        assert Normalizer("en").write_out(text).text == whole, text
        assert said.split() == whole.split(), text
        closed = [Normalizer("en").close(one) for one in split_text(whole, LIMIT)]
        assert [piece[0] for piece in pieces] == [one for one in closed if any(map(str.isalnum, one))], text


@pytest.mark.parametrize("row", ["1/2/2003 and ", "1/2/2003, ", "It was $5. ", "25. "])
def test_the_first_piece_of_a_text_of_figures_does_not_wait_for_the_others(monkeypatch, row: str) -> None:
    calls: list[str] = []
    monkeypatch.setattr(
        kitten_text_processing, "normalize_text", lambda text: calls.append(text) or read_figures(text)
    )
    text = (row * 20_000)[:20_000]
    pieces = split_arriving(Normalizer("en").parts(text), LIMIT)
    next(pieces)
    assert len(calls) <= 10 and max(map(len, calls)) <= LONGEST_INPUT
    next(pieces)
    assert len(calls) <= 20
