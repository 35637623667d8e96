"""Words of lines from the traces of their pieces."""

import numpy as np
import pytest
from qwen3_tts_morph.morph.text.pronunciation import Reading
from qwen3_tts_morph.morph.words.trace import SCALE, Trace
from qwen3_tts_morph.morph.words.traced import TracedLine, TracedPiece

TEXT = "Nguyen said: 早上好, \U0001f600 and left."


def trace(*tokens: int) -> Trace:
    """Return what an engine reports of frames that look at these tokens, with weights of all digits."""
    rng = np.random.default_rng(0)
    numbers = np.stack([np.array(tokens) + 1, *rng.integers(1, SCALE, (2, len(tokens)))], 1)
    made = Trace.from_numbers(numbers)
    assert made is not None
    return made


def line(speed: float = 1.0, *tokens: int) -> TracedLine:
    """Return a line of two pieces; the first one's tokens are its words."""
    first, second = "win said: 早上好,", "and left."
    words = ((0, 3), (3, 8), (8, 9), (9, 13), (13, 14))
    pieces = (
        TracedPiece(first, words, trace(*(tokens or (0, 0, 1, 1, 2, 3, 3, 4))), -0.01, ((0.3, 0.5),)),
        TracedPiece(second, ((0, 3), (3, 8), (8, 9)), trace(0, -1, 1, 1, 2), 0.64),
    )
    return TracedLine(TEXT, pieces, 1.04, 0.02, (Reading(0, 6, "Nguyen", "win"),), speed)


@pytest.mark.parametrize("speed", [1.0, 1.25])
def test_words_have_their_times_at_any_speed(speed: float) -> None:
    words = line(speed).words()
    assert [word.text for word in words][:3] == ["Nguyen", "said:", "早"]
    assert words[-1].end_s == pytest.approx(0.98 / speed)


def test_a_trace_of_another_text_is_an_error() -> None:
    with pytest.raises(ValueError, match="token 7 is looked at in a text of 5"):
        line(1.0, 0, 7).words()
