"""Numbers of other languages than English: which are written out, and what is said without the library."""

import sys
from types import ModuleType

import pytest
from qwen3_tts_morph.morph.text.normalize import Normalizer
from qwen3_tts_morph.morph.text.other_numbers import LANGUAGES, MISSING, PERCENT, write_numbers


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand for num2words: a number in brackets."""
    module = ModuleType("num2words")
    module.num2words = lambda number, lang: f"({number} {lang})"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "num2words", module)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Es sind 12 Äpfel, 3.", "Es sind (12 de) Äpfel, (3 de)."),
        ("1.000 und 2 000 000 oder 3'500", "(1000 de) und (2000000 de) oder (3500 de)"),
        ("3,14 von 50 %, 7%", "(3.14 de) von (50 de) Prozent, (7 de) Prozent"),
        ("-5 Grad", "(-5 de) Grad"),
        ("um 10:30 am 3.4.2026, 2026-11-28", "um 10:30 am 3.4.2026, 2026-11-28"),
        ("H100, 5km, 007, 1234567890123456", "H100, 5km, 007, 1234567890123456"),
    ],
)
def test_numbers_are_written_out_and_other_figures_stay(said: None, text: str, wanted: str) -> None:
    assert write_numbers(text, "de") == (wanted, [])


def test_lines_in_the_checkpoints_language_are_written_out(said: None) -> None:
    normalizer = Normalizer("fr")
    assert normalizer.write_out("3 amis").text == normalizer.write_out("3 amis", "French").text == "(3 fr) amis"
    assert normalizer.write_out("3 friends", "english").text == "3 friends"
    assert normalizer.is_quick("3 amis") and set(PERCENT) == set(LANGUAGES)


def test_without_the_library_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "num2words", None)
    out = Normalizer("de").write_out("12 und 13")
    assert out.text == "12 und 13" and out.notes == (MISSING,)
    assert Normalizer("de").write_out("zwölf").notes == ()
    assert "pip install num2words" in MISSING


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_library_knows_the_languages(language: str) -> None:
    num2words = pytest.importorskip("num2words", reason="not run: num2words is not installed").num2words
    assert num2words(21, lang=language).isascii() == (language != "ru") and not num2words(3.5, lang=language).isdigit()
