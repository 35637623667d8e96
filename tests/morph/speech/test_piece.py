"""Frames of codes in one buffer."""

import gc

import numpy as np
import torch
from qwen3_tts_morph.morph.decode.decoded import REPORT_WIDTH
from qwen3_tts_morph.morph.speech.piece import FIRST_ROOM, CodeFrames


def frame(number: int) -> np.ndarray:
    return np.arange(16) + 16 * number


def test_frames_come_back_in_their_order_also_beyond_the_first_room():
    count = 2 * FIRST_ROOM + 3
    codes, report = CodeFrames(), np.zeros(REPORT_WIDTH, dtype=np.int64)
    for number in range(count):
        report[:16] = frame(number)
        codes.append(report)  # whose memory is used again
    assert len(codes) == count
    assert np.array_equal(codes.part(), [frame(number) for number in range(count)])
    assert np.array_equal(codes.part(3, 5), [frame(3), frame(4)])
    assert codes.part(count - 1, count + 9).shape == (1, 16)


def test_a_part_is_a_copy_and_what_is_cut_is_gone():
    codes = CodeFrames()
    for number in range(4):
        codes.append(np.pad(frame(number), (0, REPORT_WIDTH - 16)))
    part = codes.part()
    codes.cut(1)
    codes.append(np.pad(frame(9), (0, REPORT_WIDTH - 16)))
    assert np.array_equal(part[1], frame(1))
    assert np.array_equal(codes.part(), [frame(0), frame(9)])
    codes.cut(0)
    assert codes.part().shape == (0, 16) and codes.part().dtype == torch.int64


def objects_in(codes: CodeFrames) -> int:
    return len(gc.get_referents(*vars(codes).values()))


def test_a_frame_is_no_object_for_the_garbage_collector():
    codes, report = CodeFrames(), np.zeros(REPORT_WIDTH, dtype=np.int64)
    codes.append(report)
    before = objects_in(codes)
    for _ in range(2 * FIRST_ROOM):
        codes.append(report)
    assert objects_in(codes) == before
