"""Wrong words: counted after Whisper's normalisation, letter by letter where a language has no spaces."""

import pytest
from qwen3_tts_morph.morph.hearing.whisper import Transcript, count_errors


@pytest.mark.parametrize(
    ("asked", "heard", "language", "errors"),
    [
        ("Hello there, Anna!", "hello there anna", "english", (0, 3)),
        ("It's forty-five dollars.", "It is $45.", "auto", (0, 3)),
        ("Not a minute.", "Not the minute", "english", (1, 3)),
        ("Not a minute.", "", "english", (3, 3)),
        ("Yes.", "Yes, yes, yes.", "english", (2, 1)),
        ("Guten Morgen, Jörg.", "guten morgen jörg", "german", (0, 3)),
        ("Guten Morgen, Jörg.", "guten abend jörg", "auto", (1, 3)),
        ("早上好！你睡着了吗？", "早上好你睡着了吗", "chinese", (0, 8)),
        ("早上好！", "晚上好", "auto", (1, 3)),
        ("おはよう。", "おはよお", "japanese", (1, 4)),
        ("...", "anything", "auto", (1, 0)),
        ("Not [pause 0.5] a minute.", "not a minute", "english", (0, 3)),
        ("The garden was under water.", "the garden was underwater", "english", (0, 5)),
        ("Anyone in the bookshop?", "any one in the book shop", "english", (0, 4)),
        ("Under water, cold.", "underwater code", "english", (1, 3)),
        ("Cold and under water.", "called an underwater", "english", (2, 4)),
        ("Nicht [pause 0.5] jetzt.", "nicht jetzt", "german", (0, 2)),
    ],
)
def test_errors_are_those_that_a_reader_would_count(asked, heard, language, errors) -> None:
    assert count_errors(asked, heard, language) == errors


def test_the_rate_is_errors_per_word() -> None:
    assert Transcript("x", 3, 4).rate == 0.75
