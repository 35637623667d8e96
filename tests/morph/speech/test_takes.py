"""What can be wrong with a take: silence, or an end before the text can have been spoken."""

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.decode.rows import Decoded
from qwen3_tts_morph.morph.speech.lines import ENDS
from qwen3_tts_morph.morph.speech.takes import RetryPolicy, Take, judge_end
from qwen3_tts_morph.morph.text.duration import minimum_frames, shortest_frames

RATE = 24000
TEXT = "Please close the door behind you."


def decoded(frames: int, ended: str = "eos") -> Decoded:
    return Decoded(torch.zeros(frames, 16, dtype=torch.int64), ended)


def sound(seconds: float, level: float = 0.1) -> np.ndarray:
    time = np.arange(round(seconds * RATE)) / RATE
    return (level * np.sin(2 * np.pi * 200 * time)).astype(np.float32)


@pytest.mark.parametrize(
    ("frames", "ended", "level", "wanted"),
    [
        (40, "eos", 0.1, "eos"),
        (4, "eos", 0.1, "early"),
        (4, "eos", 0.0, "silent"),
        (4, "cap", 0.1, "cap"),
        (40, "loop", 0.1, "loop"),
        (40, "eos", 0.0, "silent"),
    ],
)
def test_a_take_is_judged_by_its_length_and_its_level(frames, ended, level, wanted) -> None:
    assert judge_end(TEXT, decoded(frames, ended), sound(frames * 0.08, level), RATE) == wanted


@pytest.mark.parametrize(
    ("text", "spoken_frames"),
    [
        ("Yes.", 12),  # frames of the demo voice's right lines, and of ordinary speech for the others
        ("Good morning!", 16),
        (TEXT, 31),
        ("The quick brown fox jumps over the lazy dog.", 45),
        ("1998", 12),
        ("\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002", 18),
        ("\uc548\ub155\ud558\uc138\uc694.", 13),
    ],
)
def test_ordinary_speech_is_never_too_early(text, spoken_frames) -> None:
    assert shortest_frames(text) < 0.6 * spoken_frames
    assert minimum_frames(text, after_reference=False) <= spoken_frames


def test_two_to_four_frames_are_too_early_for_a_sentence() -> None:
    assert shortest_frames("I will see you tomorrow.") > 4


def test_the_better_take_is_kept_and_the_first_of_equal_ones() -> None:
    takes = {end: Take(decoded(1), sound(0.1), end) for end in ENDS}
    assert takes["eos"].better_than(takes["cap"]) and takes["early"].better_than(takes["silent"])
    assert not takes["loop"].better_than(takes["loop"]) and not takes["silent"].better_than(takes["early"])


@pytest.mark.parametrize(
    ("ended", "limit", "wrong"),
    [("cap", None, True), ("cap", 10, False), ("cap", 11, True), ("loop", 10, True), ("eos", 10, False)],
)
def test_a_take_that_reaches_the_users_own_limit_is_not_retried(ended: str, limit: int, wrong: bool) -> None:
    assert RetryPolicy(1, limit).is_wrong(ended, 10) is wrong
