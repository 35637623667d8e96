"""Wrong words by the letters of a line: a table in which each code sounds like one letter, spoken one a frame."""

import numpy as np
import pytest
from qwen3_tts_morph.morph.words.alignment import Trace
from qwen3_tts_morph.morph.words.guard import LETTERS, LetterTable, find_by_letters, spell

TEXT = "Nobody had told them that the old bridge was closed."
SPANS = [(place, place + 1) for place in range(len(TEXT))]  # each character is a token
SURE = np.float32(3)


@pytest.fixture
def table() -> LetterTable:
    weights = np.zeros((3, LETTERS + 1, 3, LETTERS), dtype=np.float32)
    weights[1, :LETTERS, 1] = SURE * np.eye(LETTERS, dtype=np.float32)
    prior = np.full((3, LETTERS), -np.log(LETTERS), dtype=np.float32)
    return LetterTable(weights, prior, np.log(np.array([0.1, 0.8, 0.1], dtype=np.float32)))


def find(table: LetterTable, spoken: str, text: str = TEXT) -> tuple[str, str] | None:
    letters, tokens = spell(text, SPANS[: len(text)])
    codes, _ = spell(spoken, [(0, len(spoken))])
    nothing = np.zeros(len(codes), dtype=np.float32)
    trace = Trace(np.full(len(codes), -1, dtype=np.int32), nothing, nothing)
    fault = find_by_letters(table, codes, letters, tokens, trace)
    return None if fault is None else (fault.kind, text[fault.first : fault.end])


def test_a_single_wrong_word_is_found_and_named(table) -> None:
    assert find(table, TEXT) is None
    assert find(table, TEXT.replace("bridge ", "")) == ("skipped", "bridge")
    assert find(table, TEXT.replace("told", "told told")) == ("repeated", "told")
    assert find(table, TEXT.replace("that", "that fuzzy")) == ("invented", "that")


def test_a_repetition_of_the_text_itself_is_none(table) -> None:
    assert find(table, "He had had a long day.", "He had had a long day.") is None


@pytest.mark.parametrize("text", ["Она уже ушла домой.", "Die Tür ist offen.", "Route 66.", "...", ""])
def test_texts_with_other_letters_are_left_to_the_guard(table, text) -> None:
    letters, _ = spell(text, SPANS[: len(text)])
    assert not len(letters)


@pytest.mark.parametrize("text", ["I.", "Oh", "Yes!"])
def test_short_texts_have_no_fault(table, text) -> None:
    assert find(table, text, text) is None
