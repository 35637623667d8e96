"""Lines of a service that cannot share a batch: their groups take turns, and none starves."""

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch import queue as queue_module
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.queue import group_of
from qwen3_tts_morph.morph.batch.running import Running
from qwen3_tts_morph.morph.batch.speech import Delivery, Speech
from qwen3_tts_morph.morph.batch.turns import TURN_S, Group, Turns
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.voice.create import preset_voice

from lab.streams import render_lines
from tests.morph.endless import pin_ends
from tests.patience import PATIENCE, wait_until

PIECE = 12  # frames
PIECES = 3
OPTIONS = GenerateOptions(5, Sampling(max_new_tokens=PIECE + 1), guard=False, retries=0, split_chars=60)


@pytest.fixture
def line(synthesizer, monkeypatch) -> Line:
    """A line of PIECES pieces, each of PIECE frames."""
    pin_ends(monkeypatch, 5000, "")
    text = " ".join(["word " * 7 + "ends here."] * PIECES)
    return Line(text, preset_voice(synthesizer.model, "ryan"), seed=3)


@pytest.fixture
def begun(monkeypatch) -> list[Group]:
    groups, begin = [], Turns.begin
    monkeypatch.setattr(Turns, "begin", lambda turns, group: (groups.append(group), begin(turns, group)))
    return groups


class Clock:
    def __init__(self) -> None:
        self.read: Callable[[], float] = lambda: 0.0


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(queue_module, "Turns", lambda: Turns(lambda: made.read()))
    return made


@pytest.fixture
def serve(synthesizer, clock) -> Callable[[int], Batch]:
    """``serve(rows)``: a service whose turns are counted in frames: TURN_S of them are less than a piece."""

    def begin(rows: int) -> Batch:
        assert TURN_S < PIECE
        service = Batch(synthesizer, rows)
        clock.read = lambda: float(service.status.frames)
        return service

    return begin


def codes_of(utterance: Speech) -> torch.Tensor:
    return torch.cat([chunk.codes for chunk in utterance])


def read_all(utterances: list[Speech]) -> list[torch.Tensor]:
    """Read side by side: nobody is slow."""
    read: dict[int, torch.Tensor] = {}

    def read_one(index: int) -> None:
        read[index] = codes_of(utterances[index])

    threads = [threading.Thread(target=read_one, args=(index,)) for index in range(len(utterances))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return [read[index] for index in range(len(utterances))]


def test_long_lines_of_three_groups_take_turns_piece_by_piece(serve, synthesizer, line, begun) -> None:
    """Each has the codes that it has alone."""
    settings = [replace(OPTIONS, seq_groups=groups) for groups in (5, 1, 15)]
    with serve(1) as service:
        alone = [codes_of(service.speak(line, options)) for options in settings]
        begun.clear()
        with synthesizer.session():  # the first one does not run away
            utterances = [service.speak(line, options) for options in settings]
        together = read_all(utterances)
    assert all(torch.equal(*pair) for pair in zip(together, alone, strict=True))
    assert [len(codes) for codes in alone] == [PIECES * PIECE] * 3
    assert begun == [group_of(options) for options in settings] * PIECES
    assert [one.report.pieces for one in utterances] == [PIECES] * 3


def test_a_made_line_needs_no_turn_of_its_group(synthesizer, line, begun) -> None:
    """Its reader is slow; when it wants more, a batch of another group makes its samples."""
    slow_options = replace(OPTIONS, seq_groups=1, sampling=Sampling(max_new_tokens=61))
    with Batch(synthesizer, 2) as service:
        slow = service.speak(line, slow_options)
        wait_until(lambda: service.status.parked == 1)
        running = service.speak(line, replace(OPTIONS, sampling=Sampling(max_new_tokens=2000)))
        assert running.take() is not None
        assert len(codes_of(slow)) == PIECES * 60
        assert len(begun) == 2 and not running.ended
        running.close()


def test_pieces_that_wait_for_a_row_when_a_turn_is_over_are_spoken_once(serve, synthesizer, line) -> None:
    """Of a line that nobody hears: its longest piece has the row, the others are taken back."""
    words = " ".join(f"{'word ' * count}ends here." for count in (3, 7, 5))
    complete = replace(line, text=words)
    [whole] = render_lines(synthesizer, [complete], replace(OPTIONS, batch_size=1))
    with serve(1) as batch:
        with synthesizer.session():  # both are there when the first one begins
            first = batch.speak(complete, OPTIONS, Delivery(live=False))
            other = batch.speak(replace(line, text="Hello."), replace(OPTIONS, seq_groups=1))
        assert len(codes_of(other)) == PIECE
        spoken = first.result()
    assert spoken.report == whole.report and spoken.report.pieces == 3
    assert np.array_equal(spoken.waveform, whole.waveform)


@pytest.mark.parametrize("caller", ("", "another"))
def test_a_long_line_gives_up_its_row_to_a_new_one_after_a_piece(synthesizer, line, caller: str) -> None:
    """It is ahead of its player. Its codes do not change."""
    long, made, progress = replace(line, text=" ".join([line.text] * 3)), list[Speech](), list[int]()
    with Batch(synthesizer, 1) as service:
        alone = codes_of(service.speak(long, OPTIONS))

        def begin_another() -> None:
            if not made:
                other = Delivery(caller=caller, on_change=lambda: progress.append(first.progress.done))
                made.append(service.speak(line, OPTIONS, other))

        with synthesizer.session():
            first = service.speak(long, OPTIONS, Delivery(on_change=begin_another))
        wait_until(lambda: made)
        codes, _ = read_all([first, *made])
    assert torch.equal(codes, alone) and len(alone) == 3 * PIECES * PIECE
    assert progress[0] <= 2 * PIECE


@pytest.mark.parametrize("rows", (1, 2))
def test_an_offline_line_gets_a_row_in_four_beside_streams_that_want_all(
    synthesizer, line, rows: int
) -> None:
    long, progress = replace(line, text=" ".join([line.text] * 5)), list[int]()
    with Batch(synthesizer, rows) as service:
        with synthesizer.session():
            streams = [service.speak(replace(long, seed=seed), OPTIONS) for seed in range(2 * rows)]
            ended = Delivery(live=False, on_change=lambda: progress.append(streams[0].progress.done))
            offline = service.speak(replace(line, text="word ends here."), OPTIONS, ended)
        read_all(streams)
        assert offline.result().report.ended != "cancelled"
    assert progress[0] <= 3 * PIECES * PIECE


def test_offline_lines_leave_a_row_to_a_stream_once_there_was_one(synthesizer, line, monkeypatch) -> None:
    in_frames, note = list[int](), Running._on_frame
    monkeypatch.setattr(
        Running, "_on_frame", lambda self, lines: (in_frames.append(lines), note(self, lines))
    )
    with Batch(synthesizer, 2) as service:
        most = []
        for kind in (Delivery(live=False), Delivery(), Delivery(live=False)):
            in_frames.clear()
            service.speak(line, OPTIONS, kind).result()
            most.append(max(in_frames))
    assert most == [2, 1, 1]
