"""The pieces of a text that is cut as it is written out are those of the text that is written out first."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.render import whole_text
from qwen3_tts_morph.morph.render.lines import Line, cut_line
from qwen3_tts_morph.morph.text.normalize import Normalizer
from qwen3_tts_morph.morph.text.profile import TextProfile

PROFILE = TextProfile(longest_piece=100, normalize="en")
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
    monkeypatch.setattr(whole_text, "build_piece", lambda builder, line, text: None)


def pieces_one_by_one(text: str) -> tuple[list[Any], str]:
    """Return the pieces that ``WholeLine`` gives, and the text as it is spoken."""
    rendering: Any = SimpleNamespace(
        lines=[None],
        pieces=[],
        prompts=[],
        texts=[None],
        builder=None,
        normalizer=Normalizer("en"),
        options=GenerateOptions(),
        synthesizer=SimpleNamespace(model=SimpleNamespace(profile=PROFILE)),
    )
    line = whole_text.WholeLine(rendering, Line(text, None))  # type: ignore[arg-type]
    while not line.done:
        line.poll()
    assert line.error is None
    return rendering.pieces, rendering.texts[0].text


def pieces_at_once(text: str) -> tuple[list[Any], str]:
    said, pieces = cut_line(0, Line(text, None), Normalizer("en"), PROFILE.longest_piece)  # type: ignore[arg-type]
    return pieces, said.text


@pytest.mark.parametrize("text", TEXTS)
def test_lines_without_stops_are_cut_alike(text: str) -> None:
    assert pieces_one_by_one(text) == pieces_at_once(text)


def test_random_texts_are_cut_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library, which takes long on such texts: where they are cut is ours."""
    monkeypatch.setitem(sys.modules, "kitten_text_processing", None)
    draws = random.Random(5)
    for _ in range(800):
        made = "".join(
            " ".join(draws.choices(WORDS, k=draws.randint(1, 12))) + draws.choice(ENDS)
            for _ in range(draws.randint(1, 12))
        )
        text = f"Word {made}"
        assert pieces_one_by_one(text) == pieces_at_once(text), text


def test_a_line_of_verse_is_a_sentence_in_its_piece() -> None:
    pieces, said = pieces_at_once(VERSE)
    assert [piece.text for piece in pieces] == [
        "The woods are lovely dark and deep. But I have promises to keep. And miles to go before I sleep.",
        "And miles to go before I sleep.",
    ]
    assert said.startswith("The woods are lovely dark and deep. But I")
