"""The rules by which lines end, whatever the engine: with rows that give frames as they are written here."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.decode.decoded import Decoded
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.loop import Loop
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.decode.rows import Frame
from qwen3_tts_morph.morph.decode.source import GivenLines
from qwen3_tts_morph.morph.graph.rows import RowTable
from qwen3_tts_morph.morph.voice.prompt import Prompt

EOS, BROKEN = -1, -2  # as they are written in frames


class WrittenRows:
    """Rows whose frames are written down, a code for each row; the device is ``ahead`` of the host."""

    def __init__(self, eos: int, frames: Sequence[Sequence[int]], ahead: int = 0):
        self._table, self._reports = RowTable(len(frames[0])), [written(eos, *codes) for codes in frames]
        self._ahead, self._sent = ahead, 0
        self.room, self.release = self._table.room, self._table.release
        self.began: list[int] = []

    def admit(self, lines: dict[int, LineRequest]) -> None:
        self.began += self._table.take(list(lines), [line.prompt.length for line in lines.values()])

    def step(self, stopped: Sequence[int]) -> bool:
        self._table.send([self._table.row(line) for line in stopped])
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
        return Loop(model, GivenLines(lines), rows).run(on_frame), rows.began

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
    heard: list[list] = [[], []]
    lines = [
        replace(one, on_codes=lambda codes, own=own: own.append(int(codes[0])), on_end=own.append)
        for one, own in zip(lines_of(2, 2), heard, strict=True)
    ]
    frames = [(5, 7), (EOS, 8), (6, 9), (6, 9)]
    made, _ = decode(lines, frames, ahead=2)
    assert heard == [[5, "eos"], [7, 8, "cap"]]
    assert told(made) == [([5], "eos"), ([7, 8], "cap")]


def test_numbers_that_are_not_finite_end_their_own_line_and_count_only_while_it_runs(decode):
    errors: list[ValueError] = []
    lines = [lines_of(9)[0], *(replace(one, on_broken=errors.append) for one in lines_of(9, 9))]
    frames = [(EOS, 4, 6), (BROKEN, 4, BROKEN), (BROKEN, EOS, BROKEN)]
    made, _ = decode(lines, frames, ahead=1)
    assert told(made) == [([], "eos"), ([4, 4], "eos"), ([6], "broken")]
    assert len(errors) == 1


def test_numbers_that_are_not_finite_end_all_where_the_line_has_no_listener(decode):
    with pytest.raises(ValueError, match="not finite"):
        decode(lines_of(9, 9), [(4, 4), (4, BROKEN)])


def test_frames_of_a_cancelled_line_that_are_in_flight_are_not_kept(decode):
    asked: list[int] = []
    lines = lines_of(9, 3)
    lines[0] = replace(lines[0], cancelled=lambda: asked.append(1) or len(asked) > 2)
    made, _ = decode(lines, [(5, 1), (6, 2), (7, 3)], ahead=1)
    assert told(made) == [([5], "cancelled"), ([1, 2, 3], "cap")]
