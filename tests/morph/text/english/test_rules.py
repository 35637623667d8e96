"""The rules before and after the library, with examples. The library takes long, and is not asked here."""

import pytest
from qwen3_tts_morph.morph.text import english
from qwen3_tts_morph.morph.text.english.numerals import in_pairs, ordinal, plural, small_number

from tests.morph.examples import read_examples


@pytest.mark.parametrize(("text", "said"), read_examples("english_rules.txt"))
def test_what_the_library_reads_wrongly_is_written_out_before_it(text: str, said: str) -> None:
    assert " ".join(english.before(text).split()) == said


@pytest.mark.parametrize(("text", "said"), read_examples("english_capitals.txt"))
def test_words_in_capitals_are_names_or_stressed_by_their_neighbours(text: str, said: str) -> None:
    assert english.after(text) == said


def test_numbers_in_words() -> None:
    assert [small_number(number) for number in (0, 7, 13, 20, 42, 99)] == [
        *("zero", "seven", "thirteen", "twenty", "forty two", "ninety nine")
    ]
    assert [in_pairs(year) for year in ("12", "105", "747", "1900", "1905", "2000", "2005", "2019")] == [
        *(
            "twelve",
            "one oh five",
            "seven forty seven",
            "nineteen hundred",
            "nineteen oh five",
            "two thousand",
        ),
        *("two thousand five", "twenty nineteen"),
    ]
    assert [ordinal(number) for number in (3, 8, 11, 12, 13, 20, 21, 44)] == [
        *("third", "eighth", "eleventh", "twelfth", "thirteenth", "twentieth", "twenty first", "forty fourth")
    ]
    assert [plural(word) for word in ("sixty", "oh", "ess", "why")] == ["sixties", "ohs", "esses", "whys"]
