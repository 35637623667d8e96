"""The path of a line through its text tokens."""

from collections.abc import Sequence

import numpy as np
import pytest
from qwen3_tts_morph.morph.words.alignment import Path, Trace, token_path


def trace(tokens: Sequence[int], weights: Sequence[float] = ()) -> Trace:
    shares = np.array(weights or [1.0] * len(tokens), np.float32)
    return Trace(np.array(tokens, np.int32), shares, shares)


def sure(*tokens: int) -> list[int]:
    return token_path(trace(tokens), 20)


def test_a_line_that_is_said_in_order_is_its_own_path() -> None:
    assert sure(0, 0, 1, 2, 2, 4, 5, 5) == [0, 0, 1, 2, 2, 4, 5, 5]


@pytest.mark.parametrize("other", [0, 9])
def test_a_frame_that_looks_elsewhere_does_not_move_the_path(other: int) -> None:
    assert sure(0, 1, 2, 3, other, 4, 5, 6) in ([0, 1, 2, 3, 3, 4, 5, 6], [0, 1, 2, 3, 4, 4, 5, 6])


def test_a_path_never_goes_back_where_words_are_said_twice() -> None:
    path = sure(0, 1, 2, 3, 4, 2, 3, 4, 5)
    assert path == sorted(path) and path[0] == 0 and path[-1] == 5


def test_words_that_are_left_out_have_no_frame() -> None:
    assert sure(0, 0, 1, 12, 12, 13, 14) == [0, 0, 1, 12, 12, 13, 14]


def test_weights_decide_where_frames_disagree() -> None:
    assert token_path(trace([0, 1, 9, 1, 2], [1, 1, 0.2, 0.9, 1]), 10) == [0, 1, 1, 1, 2]


def test_frames_that_see_no_token_stay() -> None:
    assert token_path(trace([-1, 0, 1, -1, 2]), 3)[1:] == [0, 1, 1, 2]


def test_the_path_is_known_while_more_text_comes() -> None:
    path = Path()
    for count, token in enumerate([0, 1, 2, 3], 1):
        path.take(trace([token]))
        assert path.tokens() == list(range(count))


@pytest.mark.parametrize("portion", [1, 3])
def test_it_does_not_matter_how_many_frames_come_at_a_time(portion: int) -> None:
    tokens = [0, 1, 2, -1, 9, 3, 4, 12, 12, 12, 13, 5, 14, 20]
    weights = [0.9, 0.5, 0.7, 0.0, 0.2, 0.5, 1.0, 0.8, 1.0, 1.0, 0.4, 0.3, 0.6, 0.2]
    path, whole = Path(), Path()
    for begin in range(0, len(tokens), portion):
        path.take(trace(tokens[begin : begin + portion], weights[begin : begin + portion]))
    whole.take(trace(tokens, weights))
    assert path.tokens() == whole.tokens()
    assert path.tokens()[8:10] == [12, 12]


def test_a_line_without_frames_has_no_path() -> None:
    assert token_path(trace([]), 3) == []
