"""When lines end without an EOS: at their caps and in loops, in several rows at once."""

import random

import numpy as np
import pytest
from qwen3_tts_morph.morph.decode.buffers import LONGEST_PERIOD, LOOP_WINDOW, RowBuffers
from qwen3_tts_morph.morph.decode.rows import REPORT_WIDTH, Frame, Guard
from qwen3_tts_morph.morph.text.duration import longest_frames

NEEDED = LOOP_WINDOW + LONGEST_PERIOD


def speech(frames: int, seed: int = 0) -> list[int]:
    """Return codes that change as speech does, sometimes repeated for two frames."""
    rng = random.Random(seed)
    codes = [rng.randrange(2048) for _ in range(frames)]
    return [codes[place - (rng.random() < 0.3)] for place in range(frames)]


def first_end(codes: list[int], max_frames: int = 10_000, detect_loops: bool = True) -> tuple[int, str] | None:
    """Return the frame (from 1) at which a line ends, and why; other rows have other lines."""
    buffers, row = RowBuffers(3, eos=-1), 1
    buffers.begin(row, Guard(max_frames, detect_loops))
    for other in (0, 2):
        buffers.begin(other, Guard(10_000))
    for frame, code in enumerate(codes):
        report = np.zeros((3, REPORT_WIDTH), dtype=np.int64)
        report[:, 0] = (code, 10_000 + frame, 20_000 + frame)
        if ended := dict(buffers.append(Frame(np.array([row, 0, 2]), report))):
            assert list(ended) == [row] and len(buffers.release(row)) == frame + 1
            return frame + 1, ended[row]
    return None


@pytest.mark.parametrize("period", [1, 2, 3, 7, 16])
def test_a_loop_ends_the_line(period):
    pattern = speech(period, seed=4)
    assert first_end(pattern * 200) == (NEEDED, "loop")


@pytest.mark.parametrize("period", [1, 2, 16])
def test_a_loop_after_speech_is_found_about_five_seconds_after_it_began(period):
    start = 150
    loop = [5000 + place for place in range(period)] * 200
    # The window tolerates one different code, so it is full one frame early.
    assert first_end([*range(start), *loop]) == (start + period + LOOP_WINDOW - 1, "loop")


@pytest.mark.parametrize("seed", range(20))
def test_speech_is_not_a_loop(seed):
    assert first_end(speech(600, seed)) is None


@pytest.mark.parametrize(
    "codes",
    [
        speech(100) + [7] * 50 + speech(100, 1),
        speech(100) + [7] * 61 + speech(100, 1),
        ([7] * 30 + speech(20)) * 5,
        speech(17, seed=2) * 20,
        [code for lap in range(40) for code in (*speech(7, seed=2), lap)],
    ],
    ids=[
        "silence of 4 s",
        "held almost five seconds",
        "held notes",
        "period of 17",
        "one code in eight changes",
    ],
)
def test_near_loops_are_not_loops(codes):
    assert first_end(codes) is None


def test_one_disagreement_in_the_window_is_still_a_loop():
    """The window tolerates one different code of 64 (97 %)."""
    loop = [5] * NEEDED
    loop[-LOOP_WINDOW - 1] = 6  # one disagreement: before the window's first code
    assert first_end(loop) == (NEEDED, "loop")
    loop[-1] = 6  # two
    assert first_end(loop) is None


def test_the_cap_ends_the_line_at_that_frame():
    assert first_end(speech(100), max_frames=40) == (40, "cap")
    assert first_end([3] * 100, max_frames=40) == (40, "cap"), "too short to be called a loop"


def test_loop_detection_can_be_turned_off():
    assert first_end([3] * 600, 500, detect_loops=False) == (500, "cap")


def test_the_cap_is_six_seconds_and_about_one_more_per_token():
    assert longest_frames(0) / 12.5 == 6.0
    assert longest_frames(11) - longest_frames(10) == 12
