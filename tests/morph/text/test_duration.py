"""The three estimates of a line's frames from its tokens have one pace, and are in order."""

from qwen3_tts_morph.morph.text.duration import (
    PACE,
    expected_frames,
    likely_frames,
    longest_frames,
    reserved_frames,
)


def test_each_estimate_rises_with_the_pace():
    for estimate, times in ((expected_frames, 1), (reserved_frames, 1.5), (longest_frames, 3)):
        assert estimate(11) - estimate(10) == times * PACE


def test_more_is_reserved_than_expected_and_more_allowed_than_reserved():
    for tokens in (0, 1, 10, 500):
        assert expected_frames(tokens) < reserved_frames(tokens) < longest_frames(tokens)


def test_what_a_text_is_likely_to_take_rises_with_its_letters():
    assert likely_frames("") < likely_frames("Yes.") < likely_frames("Yes, and then he left the house.")
    assert likely_frames("The train leaves at nine.") == 8 + round(24 / 1.15)  # 20 letters, 4 spaces
