"""Figures, dates, prices and capitals as English words, and texts that stay as they are."""

import sys

import pytest
from qwen3_tts_morph.morph.text.normalize import LONGEST_INPUT, Normalizer

from tests.morph.examples import read_examples
from tests.morph.pairwise import thinned

ENGLISH = Normalizer("en")
SPECIAL = [
    ("Buy:\n1. Eggs\n2. Milk", "Buy. One. Eggs. Two. Milk"),
    ("one\rline\fof\vfive\x85words\u2028here", "One line of five words here"),
]


@pytest.mark.parametrize(("text", "spoken"), [*read_examples("english_written.txt"), *SPECIAL])
def test_it_is_written_out_as_people_read_it(text, spoken) -> None:
    assert ENGLISH.write_out(text).text == spoken


@pytest.mark.parametrize(
    "text",
    [
        "This is the part I love most.", "The book I read.", "Type i error.", "In the Chapter I wrote.",
        "James I think so.", "Don't, won't, it's I'm.", '"Stop!" he said.', "Well... I don't know.",
        "Was anybody listening?", "I am. So is A.",
    ],
)  # fmt: skip
def test_plain_words_stay_as_they_are(text) -> None:
    assert ENGLISH.write_out(text).text == text


def test_sentences_are_written_out_one_by_one_and_kept_in_order() -> None:
    written = ENGLISH.write_out("We came at 5:15. Nobody was there!\nIt was 1 p.m. when he came.")
    assert written.text == "We came at five fifteen. Nobody was there! It was one pee em when he came."


@pytest.mark.parametrize(
    ("piece", "closed"),
    [
        ("When I asked her why,", "When I asked her why."),
        ("like a letter:", "like a letter."),
        ("and then", "and then."),
        ("Really?", "Really?"),
        ('He said "no."', 'He said "no."'),
        ("(yes)", "(yes)."),
    ],
)
def test_a_piece_ends_as_a_sentence(piece, closed) -> None:
    assert ENGLISH.close(piece) == closed and Normalizer("").close(piece) == piece


def test_a_text_in_another_language_or_for_another_checkpoint_stays() -> None:
    assert ENGLISH.write_out("Es kostet 45 Euro.", "german").text == "Es kostet 45 Euro."
    assert Normalizer("").write_out("It costs $45 \U0001f642.").text == "It costs $45 \U0001f642."


def test_letters_that_are_not_latin_are_reported() -> None:
    [note] = ENGLISH.write_out("Hello \u4f60\u597d there.").notes
    assert note.startswith("2 letters are not Latin")
    assert ENGLISH.write_out("Caf\u00e9 Zo\u00eb.").notes == ()


def test_without_the_library_figures_are_read_digit_by_digit_with_a_note(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "kitten_text_processing", None)
    written = ENGLISH.write_out("Room 42.")
    assert written.text == "Room four two ." and "kitten-text-processing is not installed" in written.notes[0]


def test_what_the_library_cannot_read_is_spoken_as_it_is_with_a_note(monkeypatch) -> None:
    import kitten_text_processing

    def fail(text: str) -> str:
        raise ValueError("no path")

    monkeypatch.setattr(kitten_text_processing, "normalize_text", fail)
    written = ENGLISH.write_out("Room 42.")
    assert "'Room 42.' could not be written out" in written.notes[0] and "four two" in written.text


def test_it_can_be_cancelled_between_two_sentences() -> None:
    seen = []

    def cancel() -> None:
        seen.append(1)
        if len(seen) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        Normalizer("en", cancel).write_out("One. Two. Three.")


def test_it_can_be_cancelled_within_a_long_sentence(monkeypatch) -> None:
    import kitten_text_processing

    seen = []
    monkeypatch.setattr(kitten_text_processing, "normalize_text", lambda text: text)
    Normalizer("en", lambda: seen.append(1)).write_out("It is 7 and " * 100)
    assert len(seen) > 1200 / LONGEST_INPUT


ROWS = [
    "A", "9' ", "IV ", "555-", "(555", "1.", "Mon.", "$", "won 1-", "a1", "\u2014", "BBC ", "'",
    "the part ", "A&", "1.1.1", "\xa0111", "1\xbd", "x\xb2", "$1", "DON'T ", "a'1' ", "'a 1' ", "A.",
    "1/4-", "p. 1 ", '"1', ' "a1', '"1" ', "-$1", ".[1]", ".000", "$1-1 ", "$1,1-", "a1.", "a1.1 ",
    "50/50 ", "9/11 ", "a II ", "Super Bowl XX ", "Peter V. ", "1.000,5", "10000 ", "pin 10000 ", "12345 a",
    "[1]", "\u22121", "1-1 ", "1-", "1:1 ", "a/b", "a.a", "/a.", "C:\\a", "a_a", "1 x 1=", "1x", "\u221a1",
    "IV, ", "I-", "a St. ", "5 lb. ", "5 ft 5 ", "code ", "call 911 ", "+1 1", "on 1/1 ", "1/10 ", "H2O",
    "AB ", "AB-", "a $1 ", "a 1 m ", "US$1 ", "1 CHF", "#1", "MCM", "1990s ", "1-1-", "at 1.11 ",
    "Main 1 A ", "w/",
]  # fmt: skip


@pytest.mark.parametrize("row", thinned(ROWS, 4))
def test_our_rules_are_fast_on_long_texts(row, monkeypatch) -> None:
    """In quadratic time this test would take minutes; the library itself, which takes longer, is left out."""
    monkeypatch.setitem(sys.modules, "kitten_text_processing", None)
    assert ENGLISH.write_out(row * (10_000 // len(row))).text
