"""Figures, dates, prices and capitals as English words, and texts that stay as they are."""

from __future__ import annotations

import sys

import pytest
from qwen3_tts_morph.morph.text.normalize import Normalizer

ENGLISH = Normalizer("en")


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Meet me at 10:30.", "Meet me at ten thirty."),
        ("It costs $45.", "It costs forty five dollars."),
        ("In 1998 we moved to Boston.", "In nineteen ninety eight we moved to Boston."),
        ("The 2nd of May is a holiday.", "The second of May is a holiday."),
        ("About 3.5 percent of them agree.", "About three point five percent of them agree."),
        ("NASA launched it on 05/12/2023.", "Nasa launched it on May twelfth twenty twenty three."),
        ("Call 555-1234 now.", "Call five five five, one two three four now."),
        ("We are open 24/7.", "We are open twenty four seven."),
        ("He is 6'2\" tall.", "He is six foot two tall."),
        ("He's 5' tall.", "He's five feet tall."),
        ("He ran 100 m in 9.58 s.", "He ran one hundred meters in nine point five eight seconds."),
        ("The 1990s were loud.", "The nineteen nineties were loud."),
        ("It is 21 mm long and 1 m wide.", "It is twenty one millimeters long and one meter wide."),
        ("At 1.1 m/s or 100 km/h.", "At one point one meters per second or one hundred kilometers per hour."),
        ("It has 16GB and needs 12 V.", "It has sixteen gigabytes and needs twelve volts."),
        ("King Henry VIII had six wives.", "King Henry the eighth had six wives."),
        ("Chapter IV begins here.", "Chapter four begins here."),
        ("The score was 3-2.", "The score was three to two."),
        ("We met on Jan. 5th.", "We met on January fifth."),
        ("See you on Mon., at 9 a.m.", "See you on Monday, at nine ay em."),
        ("THIS IS VERY IMPORTANT.", "This is very important."),
        ("I do NOT agree.", "I do not agree."),
        ("The BBC said so.", "The bee bee see said so."),
        ("HELLO WORLD, THE BBC IS ON AIR.", "Hello world, the bee bee see is on air."),
        ("Dr. Smith came.", "Doctor Smith came."),
        ("It is -5\u00b0C here.", "It is minus five degrees Celsius here."),
        ("It\u2019s 50% off\u2014really \U0001f642!", "It's fifty percent off, really !"),
    ],
)
def test_it_is_written_out_as_people_read_it(text, spoken) -> None:
    assert ENGLISH.write_out(text).text == spoken


@pytest.mark.parametrize(
    "text",
    [
        "Don't, won't, it's I'm.",
        '"Stop!" he said.',
        "Well... I don't know.",
        "Was anybody listening?",
        "I am. So is A.",
    ],
)
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


ROWS = ["A", "9' ", "IV ", "555-", "(555", "1.", "Mon.", "$", "won 1-", "a1", "\u2014", "BBC "]


@pytest.mark.parametrize("row", ROWS)
def test_our_rules_are_fast_on_a_hundred_thousand_characters(row, monkeypatch) -> None:
    """In quadratic time this test would take minutes; the library itself, which takes longer, is left out."""
    monkeypatch.setitem(sys.modules, "kitten_text_processing", None)
    assert ENGLISH.write_out(row * (100_000 // len(row))).text
