"""The judges' arithmetic: error counts, interval coverage, and strict reading of texts files."""

from functools import partial

import numpy as np
import pytest
from qwen3_tts_morph.morph.text.normalize import Normalizer

from lab.judges.asr import closest, compare, edit_distance, in_digits, in_words
from lab.judges.stats import mean, ratio


def test_words_and_letters_are_counted_separately() -> None:
    heard = compare("the birch canoe slid", "the birch can you slid")
    assert (heard.word_errors, heard.words) == (2, 4)
    assert (heard.letter_errors, heard.letters) == (edit_distance("canoe", "canyou"), 17)
    assert compare("yes", "").word_errors == 1
    with pytest.raises(ValueError, match="without words"):
        compare("", "yes")


def test_figures_count_as_they_are_said_however_they_are_written() -> None:
    said = Normalizer("en")
    forms = (partial(in_words, write_out=lambda text: said.write_out(text).text), in_digits)

    def errors(text: str, transcript: str) -> int:
        return closest((text,), transcript, forms).word_errors

    assert errors("It was sold for £15,495.95.", "It was sold for 15,400 and 95 pounds, 95 pence") == 0
    assert errors("They sold 380,190 horses.", "They sold 380,100 and 90 horses.") == 0
    assert errors("We close at 6:00 am today.", "We close at 6 am today.") == 0
    assert errors("Call 834-510-0015.", "Call 834-5100015.") == 0
    assert errors("Call 834-510-0015.", "Call 834-510-0051.") == 2
    assert errors("They sold 925 books.", "They sold 900 in 25 books.") == 1


def test_an_error_rate_weights_lines_by_their_words() -> None:
    figure = ratio([1, 0], [1, 9])
    assert figure.value == pytest.approx(0.1)
    assert figure.lines == 2
    with pytest.raises(ValueError, match="sum above 0"):
        ratio([], [])


def test_intervals_cover_the_true_value_as_often_as_stated() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for trial in range(200):
        figure = mean(rng.random(100).tolist(), seed=trial)
        held += figure.low <= 0.5 <= figure.high
    assert 180 <= held <= 199
    assert mean([0.0, 1.0] * 50) == mean([0.0, 1.0] * 50)
