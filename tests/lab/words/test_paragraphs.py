"""The sentences that judge voices, and the paragraphs that are made of them."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from lab.words.lines import read_part
from lab.words.paragraphs import paragraphs


def test_held_out_sentences_are_long_enough_to_tell_a_voice() -> None:
    found = read_part("held_out")
    assert len(set(found)) == 200
    assert [text for text in found if not 7 <= len(text.split()) <= 14 or text[-1] not in ".?"] == []
    assert [text for text in found if not text.isascii() or any(letter.isdigit() for letter in text)] == []


def test_paragraphs_have_the_words_asked_for_and_every_sentence_in_turn() -> None:
    sentences = [f"Sentence {number} has {'very ' * (number % 5)}few words." for number in range(40)]
    found = paragraphs(sentences, 30, (20, 60), 0)
    sizes = [len(one.split()) for one in found]
    assert min(sizes) >= 20 and max(sizes) <= 60 and max(sizes) - min(sizes) > 20
    used = Counter(number for one in found for number in re.findall(r"Sentence (\d+) has", one))
    assert len(used) == 40 and max(used.values()) - min(used.values()) <= 1
    with pytest.raises(ValueError, match="at most 5 words, not 9"):
        paragraphs(sentences, 1, (20, 24), 0)
