"""The rules by which lines end, whatever the engine: with rows that give frames as they are written here."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.decode.loop import decode_lines
from qwen3_tts_morph.morph.decode.request import Guard, LineRequest
from qwen3_tts_morph.morph.decode.rows import Decoded, Frame
from qwen3_tts_morph.morph.graph.rows import RowTable
from qwen3_tts_morph.morph.voice.prompt import Prompt

EOS, BROKEN = -1, -2  # as they are written in frames


class WrittenRows:
    """Rows whose frames are written down, a code for each row; the device is ``ahead`` of the host."""

    late, began = False, ()

    def __init__(self, eos: int, frames: Sequence[Sequence[int]], ahead: int = 0):
        self.count = len(frames[0])
        self._table, self._reports = RowTable(self.count), [written(eos, *codes) for codes in frames]
        self._ahead, self._sent = ahead, 0
        self.room, self.release = self._table.room, self._table.release
        self.taken: list[int] = []

    def admit(self, lines: Sequence[LineRequest]) -> list[int]:
        rows = self._table.take([line.prompt.length for line in lines])
        self.taken += rows
        return rows

    def step(self, stopped: Sequence[int], group: object = None) -> bool:
        self._table.send(stopped)
        self._sent += 1
        return True

    def read(self) -> Frame | None:
        if self._sent <= self._ahead or not self._table.running:
            return None
        self._sent -= 1
        return self._table.receive(self._reports.pop(0))


def written(eos: int, *codes: int) -> np.ndarray:
    return np.array([[eos if code == EOS else code] * 16 + [code == BROKEN] + [0] * 3 for code in codes])


def lines_of(*frames: int) -> list[LineRequest]:
    prompt = Prompt(torch.zeros(3, 1), torch.zeros(0, 1), torch.zeros(1, 1), 1)
    return [LineRequest(prompt, Guard(most, False)) for most in frames]


@pytest.fixture
def decode(load):
    """Decode lines in rows that give these frames; return what comes of them, and the rows that they got."""
    model = load("tiny", "custom_voice")
    eos = int(model.config.talker_config.codec_eos_token_id)

    def run(lines, frames, ahead: int = 0, on_frame=None) -> tuple[list[Decoded], list[int]]:
        rows = WrittenRows(eos, frames, ahead)
        return decode_lines(model, rows, lines, on_frame), rows.taken

    return run


def told(decoded: Sequence[Decoded]) -> list[tuple[list[int], str]]:
    """Return each line's codes of group 0 and its end."""
    assert all(one.codes.shape[1] == 16 and one.codes.dtype == torch.int64 for one in decoded)
    return [(one.codes[:, 0].tolist(), one.ended) for one in decoded]


def test_lines_get_rows_in_order_and_end_by_eos_and_by_their_guards(decode):
    counted: list[int] = []
    made, rows = decode(lines_of(9, 2, 9, 9), [(5, 1), (EOS, 2), (3, EOS), (EOS, 7)], on_frame=counted.append)
    assert told(made) == [([5], "eos"), ([1, 2], "cap"), ([3], "eos"), ([], "eos")]
    assert rows == [0, 1, 0, 1] and counted == [2, 1, 1]


def test_frames_that_the_device_is_ahead_are_never_passed(decode):
    made, _ = decode(lines_of(2, 2), [(5, 7), (EOS, 8), (6, 9), (6, 9)], ahead=2)
    assert told(made) == [([5], "eos"), ([7, 8], "cap")]


def test_numbers_that_are_not_finite_end_all_lines(decode):
    with pytest.raises(ValueError, match="not finite"):
        decode(lines_of(9, 9), [(4, 4), (4, BROKEN)])
