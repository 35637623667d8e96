"""Lines of a service that cannot share a frame: their groups alternate, and none starves."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.speech import Delivery, Speech
from qwen3_tts_morph.morph.batch.utterance import Utterance
from qwen3_tts_morph.morph.decode.loop import Decoding
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.voice.create import preset_voice

from tests.morph.codec_lines import FLOAT32_DB, signal_to_noise
from tests.morph.endless import pin_ends
from tests.patience import PATIENCE, wait_until

PIECE = 12  # frames
PIECES = 3
OFFLINE = Delivery(live=False)
OPTIONS = GenerateOptions(5, Sampling(max_new_tokens=PIECE + 1), guard=False, retries=0, split_chars=60)


@pytest.fixture
def line(synthesizer, monkeypatch) -> Line:
    """A line of PIECES pieces, each of PIECE frames."""
    pin_ends(monkeypatch, 5000, "")
    text = " ".join(["word " * 7 + "ends here."] * PIECES)
    return Line(text, preset_voice(synthesizer.model, "ryan"), seed=3)


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


def test_lines_of_three_groups_share_the_rows_frame_by_frame(synthesizer, line, monkeypatch) -> None:
    """Each has the codes that it has alone."""
    settings = [replace(OPTIONS, seq_groups=groups) for groups in (5, 1, 15)]
    stepped, step = list[int](), Decoding.step
    monkeypatch.setattr(
        Decoding,
        "step",
        lambda self, group: (stepped.append(group and group.seq_groups), step(self, group))[1],
    )
    with Batch(synthesizer, 3) as service:
        alone = [codes_of(service.speak(line, options)) for options in settings]
        with synthesizer.session():  # the first one does not run away
            utterances = [service.speak(line, options) for options in settings]
        stepped.clear()
        together = read_all(utterances)
    assert all(torch.equal(*pair) for pair in zip(together, alone, strict=True))
    assert [len(codes) for codes in alone] == [PIECES * PIECE] * 3
    assert all(sorted(stepped[at : at + 3]) == [1, 5, 15] for at in range(0, 3 * PIECE, 3))
    assert [one.report.pieces for one in utterances] == [PIECES] * 3


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


@pytest.mark.parametrize("groups", [5, 1])
def test_a_line_far_ahead_gives_up_its_row_within_a_piece(synthesizer, line, groups: int) -> None:
    """It goes on with the codes that it has alone, also in another row."""
    options = replace(OPTIONS, split_chars=0, sampling=Sampling(max_new_tokens=200))
    with Batch(synthesizer, 1) as service:
        alone = service.speak(line, options).result()
        first = service.speak(line, options)
        wait_until(lambda: first.progress.done > 60)
        for seed in range(2):
            other = service.speak(replace(line, text="Hello.", seed=seed), replace(OPTIONS, seq_groups=groups))
            assert len(codes_of(other)) and not first.ended
        spoken = first.result()
    assert np.array_equal(spoken.waveform, alone.waveform) and spoken.report == alone.report


@pytest.mark.parametrize("rows", (1, 2))
def test_an_offline_line_gets_a_row_in_four_beside_streams_that_want_all(synthesizer, line, rows: int) -> None:
    long, progress = replace(line, text=" ".join([line.text] * 5)), list[int]()
    with Batch(synthesizer, rows) as service:
        with synthesizer.session():
            streams = [service.speak(replace(long, seed=seed), OPTIONS) for seed in range(2 * rows)]
            ended = Delivery(live=False, on_change=lambda: progress.append(streams[0].progress.done))
            offline = service.speak(replace(line, text="word ends here."), OPTIONS, ended)
        read_all(streams)
        assert offline.result().report.ended != "cancelled"
    assert progress[0] <= 3 * PIECES * PIECE


def test_a_list_gives_up_rows_within_its_pieces_to_new_streams(synthesizer, line, monkeypatch) -> None:
    """Its lines go on with the sound that they have alone, also in other rows."""
    rows, options = 4, replace(OPTIONS, sampling=Sampling(max_new_tokens=121))
    streams, short, suspend = list[Speech](), replace(line, text="Hello."), Utterance.suspend
    suspended = list[bool]()  # whether each that gave up its row was of the list

    def note(one: Utterance, *given) -> None:
        suspended.append(not one.speech.is_streamed)
        suspend(one, *given)

    monkeypatch.setattr(Utterance, "suspend", note)
    with Batch(synthesizer, rows) as service:
        alone = service.speak(line, options, OFFLINE).result()

        def begin_others() -> None:
            if not streams:
                streams.extend([service.speak(replace(short, seed=seed), OPTIONS) for seed in range(1, rows)])

        with synthesizer.session():
            listed = [service.speak(line, options, OFFLINE) for _ in range(2)]
            first = service.speak(short, OPTIONS, Delivery(on_change=begin_others))
        wait_until(lambda: streams)
        assert all(len(codes) for codes in read_all([first, *streams])) and suspended == [True] * 2
        spoken = [one.result() for one in listed]
    for one in spoken:
        assert one.report == alone.report and signal_to_noise(alone.waveform, one.waveform) > FLOAT32_DB
