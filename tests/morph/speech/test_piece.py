"""Frames of a piece: in its row while it is decoded, and by themselves once it has ended."""

import numpy as np
import torch
from qwen3_tts_morph.morph.decode.buffers import FIRST_ROOM, LineFrames, RowBuffers
from qwen3_tts_morph.morph.decode.rows import Frame, Guard


def report(number: int) -> np.ndarray:
    return np.append(np.arange(16) + 16 * number, (0, number, 0, 0))


def test_frames_come_back_in_their_order_in_the_row_and_after_it() -> None:
    count, buffers, frames = 2 * FIRST_ROOM + 3, RowBuffers(2, eos=-1), LineFrames()
    buffers.begin(1, Guard(count + 1, False))
    frames.enter(buffers, 1)
    for number in range(count):
        assert buffers.append(Frame(np.array([1]), report(number)[None])) == []
    wanted = np.stack([report(number)[:16] for number in range(count)])
    for _ in range(2):
        assert len(frames) == count and np.array_equal(frames.codes(), wanted)
        assert frames.codes().dtype == torch.int64
        codes, numbers = frames.copied(1, 3)
        assert np.array_equal(codes, wanted[1:3]) and numbers[:, 0].tolist() == [1, 2]
        assert frames.copied(0, 1)[1] is None
        if frames._place is not None:
            frames.leave(buffers.release(1))
    buffers.begin(1, Guard(9, False))
    buffers.append(Frame(np.array([1]), report(7)[None]))
    assert np.array_equal(frames.codes(), wanted), "the row's next line changes nothing"
    frames.cut(2)
    assert np.array_equal(frames.codes(), wanted[:2])
    frames.cut(0)
    assert frames.codes().shape == (0, 16)
