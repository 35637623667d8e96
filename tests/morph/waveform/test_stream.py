"""The codecs of streams: lines in turns, more lines than indices in a row, and the states of ICL voices."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph import synthesizer as engine_module
from qwen3_tts_morph.morph.codec.forward import TorchOps
from qwen3_tts_morph.morph.codec.packing import PART_FRAMES
from qwen3_tts_morph.morph.codec.stream import decode_waveform
from qwen3_tts_morph.morph.runtime.lru_cache import LruCache
from qwen3_tts_morph.morph.synthesizer import Choice, Engine
from qwen3_tts_morph.morph.waveform import stream as stream_module
from qwen3_tts_morph.morph.waveform.engine import BatchCodec
from qwen3_tts_morph.morph.waveform.incremental import RowStream
from qwen3_tts_morph.morph.waveform.stream import LineCodec, References, SharedRow, SingleLines

from tests.morph.codec_lines import (
    FLOAT32_DB,
    FRAME,
    RAMP,
    note_references,
    random_codes,
    signal_to_noise,
    steps,
)

SINGLE, BATCH = Choice("eager", False, "test"), Choice("graph", True, "test")
BOTH = pytest.mark.parametrize("choice", [SINGLE, BATCH], ids=["single", "batch"])


def slow(*values) -> list:
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.fixture
def model(load):
    return load("tiny", "base")


def stream(model, choice, codes, sizes=RAMP, reference=None) -> np.ndarray:
    codec = Engine("eager").open_codec(model, choice, 1)
    codec.begin(0, reference)
    while codec.missing(0):
        codec.feed(0)
    waves = [codec.launch({0: part}).wait()[0] for part in steps(sizes, codes)]
    assert [len(wave) for wave in waves] == [len(part) * FRAME for part in steps(sizes, codes)]
    return np.concatenate([np.zeros(0, np.float32), *waves])


# Around what a sample depends on, the window of the transformer, and the restart after 300 frames.
@BOTH
@pytest.mark.parametrize("frames", [0, 11, 301, *slow(1, 2, 9, 10, 71, 72, 73, 299, 300, 325, 601)])
def test_a_line_of_any_length_has_the_samples_of_the_whole_line(model, choice, frames):
    codes = random_codes(model, frames)
    whole, ours = decode_waveform(model, codes), stream(model, choice, codes)
    assert ours.shape == whole.shape and ours.dtype == np.float32
    assert not frames or signal_to_noise(whole, ours) > FLOAT32_DB


@BOTH
@pytest.mark.parametrize("sizes", [(12,), (330,), *slow((1,), (2,), (3, 1), (7,), (25,), (73,))], ids=str)
def test_the_sizes_of_the_steps_do_not_matter(model, choice, sizes):
    codes = random_codes(model, 330)
    assert signal_to_noise(decode_waveform(model, codes), stream(model, choice, codes, sizes)) > FLOAT32_DB


@BOTH
@pytest.mark.parametrize("length", [1, 301, *slow(11, 25, 125, 300, 375)])
def test_a_line_after_a_reference(model, choice, length):
    codes, reference = random_codes(model, 40), random_codes(model, length, 7)
    whole = decode_waveform(model, codes, reference)
    assert signal_to_noise(whole, stream(model, choice, codes, RAMP, reference)) > FLOAT32_DB


@BOTH
def test_bf16_is_no_further_from_float32_than_the_whole_line(load, choice):
    exact, rounded = load("tiny", "base"), load("tiny", "base", "bf16")
    codes = random_codes(exact, 60)
    whole = decode_waveform(exact, codes)
    ours = signal_to_noise(whole, stream(rounded, choice, codes))
    assert ours > signal_to_noise(whole, decode_waveform(rounded, codes)) - 1, "random weights round loudly"


@pytest.mark.parametrize(("choice", "kind"), [(SINGLE, SingleLines), (BATCH, SharedRow)])
def test_more_lines_than_rows_take_turns(model, choice, kind):
    lines = {number: random_codes(model, frames, number) for number, frames in enumerate((20, 31, 26, 9))}
    engine = Engine("eager")
    with engine.exclusive():
        codec = engine.open_codec(model, choice, 2)
        assert type(codec) is kind
        made = {number: [] for number in lines}
        for number in lines:
            codec.begin(number, None)
        for begin in range(0, 31, 5):
            now = {number: line[begin : begin + 5] for number, line in lines.items() if begin < len(line)}
            for number, wave in codec.launch(now).wait().items():
                made[number].append(wave)
    for number, line in lines.items():
        ours = np.concatenate(made[number])
        assert ours.dtype == np.float32
        assert signal_to_noise(decode_waveform(model, line), ours) > FLOAT32_DB


@BOTH
def test_a_number_that_begins_again_has_nothing_of_the_line_before(model, choice):
    first, second = random_codes(model, 12, 1), random_codes(model, 8, 2)
    engine = Engine("eager")
    codec = engine.open_codec(model, choice, 1)
    for codes in (first, second):
        codec.begin(0, None)
        ours = codec.launch({0: codes}).wait()[0]
        codec.end(0)
        assert signal_to_noise(decode_waveform(model, codes), ours) > FLOAT32_DB


@BOTH
def test_a_reference_is_decoded_once_for_all_streams(model, choice, monkeypatch):
    reference, codes = random_codes(model, 30, 7), random_codes(model, 10)
    whole = decode_waveform(model, codes, reference)
    engine, begun = Engine("eager"), note_references(monkeypatch)
    for number in range(3):
        codec = engine.open_codec(model, choice, 2)
        for line in (0, 1, 2):
            codec.begin(line, reference)
            while codec.missing(line):
                codec.feed(line)
        for ours in codec.launch(dict.fromkeys((0, 1, 2), codes)).wait().values():
            assert len(ours) == len(whole) and signal_to_noise(whole, ours) > FLOAT32_DB
        assert len(begun) == (1 if number < 2 else 2), "not again, before the engine has been freed"
        if number == 1:
            engine.free()


@BOTH
def test_a_reference_is_fed_in_parts_while_another_line_is_decoded(model, choice):
    """Two lines wait for the same one, and find the other line's index taken; a third one begins at once."""
    reference, first, second = (random_codes(model, *given) for given in ((250, 7), (12,), (10, 1)))
    codec = Engine("eager").open_codec(model, choice, 1)
    codec.begin(0, None)
    for line in (1, 2):
        codec.begin(line, reference)
    parts, left = [], [codec.missing(1)]
    while codec.missing(1):
        parts.append(codec.launch({0: first[3 * len(parts) : 3 * len(parts) + 3]}).wait()[0])
        codec.feed(1)
        left.append(codec.missing(1))
    assert left[0] == 250 and max(before - after for before, after in pairwise(left)) == PART_FRAMES
    codec.begin(3, reference)
    assert codec.missing(0) == codec.missing(2) == codec.missing(3) == 0
    spoken = decode_waveform(model, first[: 3 * len(parts)])
    assert signal_to_noise(spoken, np.concatenate(parts)) > FLOAT32_DB
    whole = decode_waveform(model, second, reference)
    for ours in codec.launch(dict.fromkeys((1, 2, 3), second)).wait().values():
        assert signal_to_noise(whole, ours) > FLOAT32_DB


def test_the_least_recently_used_reference_is_released():
    references: References = LruCache(2)
    voices = [torch.full((1,), index) for index in range(3)]

    class CountingCodec(LineCodec):
        made, numbers = list[int](), list[int]()

        def _start(self, line, state):
            self.numbers.append(state.number)

        def _feed(self, state, reference):
            assert state is None
            self.made.append(int(reference))
            return SimpleNamespace(frames=1, number=len(self.made))

        def launch(self, codes):
            raise NotImplementedError

    codec = CountingCodec(references)
    for index in (0, 1, 0, 2, 0, 1):
        codec.begin(index, voices[index])
        if codec.missing(index):
            codec.feed(index)
    assert codec.numbers == [1, 2, 1, 3, 1, 4]
    assert codec.made == [0, 1, 2, 1] and len(references) == 2
    references.set_origin("elsewhere")
    assert len(references) == 0, "states of another device serve no more"


def test_a_row_serves_the_next_stream_if_it_fits(model, monkeypatch):
    engine, made = Engine("graph"), list[RowStream]()
    monkeypatch.setattr(stream_module, "RowStream", lambda *given: (made.append(RowStream(*given)), made[-1])[1])
    for lines in (4, 3, 2, 1, 2):
        engine.open_codec(model, BATCH, lines)
    assert [row.lines for row in made] == [4, 1, 2]


def test_a_kernel_that_fails_is_replaced_within_the_step(model, monkeypatch):
    """The step before it and the step after it have the samples of the whole line."""

    class Broken(TorchOps):
        calls = 0

        def finish(self, *arguments):
            Broken.calls += 1
            if Broken.calls == 2:
                raise RuntimeError("out of shared memory")
            return super().finish(*arguments)

    monkeypatch.setattr(
        engine_module, "BatchCodec", lambda *given, **more: BatchCodec(*given, **{**more, "ops": Broken()})
    )
    engine, codes = Engine("graph"), random_codes(model, 30)
    codec = engine.open_codec(model, BATCH, 1)
    codec.begin(0, None)
    ours = np.concatenate([codec.launch({0: codes[begin : begin + 10]}).wait()[0] for begin in (0, 10, 20)])
    assert signal_to_noise(decode_waveform(model, codes), ours) > FLOAT32_DB
    assert "out of shared memory" in engine.describe(model, BATCH) and Broken.calls == 2


@BOTH
@pytest.mark.parametrize("length", [0, 30])
def test_a_frame_that_was_begun_ahead_has_the_samples_of_any_other(model, choice, length):
    reference = random_codes(model, length, 7) if length else None
    codes, engine, made = random_codes(model, 30), Engine("eager"), []
    for ahead in (False, True):
        codec = engine.open_codec(model, choice, 1)
        codec.begin(0, reference)
        while codec.missing(0):
            codec.feed(0)
        if ahead:
            codec.begin_ahead(0, codes[0])
        made.append(np.concatenate([codec.launch({0: part}).wait()[0] for part in codes.split([1, 3, 26])]))
        codec.end(0)
    assert made[0].tobytes() == made[1].tobytes()


def test_frames_that_come_with_one_that_was_begun_ahead_follow_it(model):
    codes, codec = random_codes(model, 5), Engine("eager").open_codec(model, BATCH, 1)
    codec.begin(0, None)
    codec.begin_ahead(0, codes[0])
    assert signal_to_noise(decode_waveform(model, codes), codec.launch({0: codes}).wait()[0]) > FLOAT32_DB


def test_a_line_that_is_paused_keeps_the_frame_that_was_begun_ahead(model):
    first, second = random_codes(model, 8, 1), random_codes(model, 8, 2)
    codec = Engine("eager").open_codec(model, BATCH, 1)
    codec.begin(0, None)
    codec.begin_ahead(0, first[0])
    codec.begin(1, None)
    assert signal_to_noise(decode_waveform(model, second), codec.launch({1: second}).wait()[1]) > FLOAT32_DB
    ours = np.concatenate([codec.launch({0: part}).wait()[0] for part in first.split([1, 7])])
    assert signal_to_noise(decode_waveform(model, first), ours) > FLOAT32_DB


def test_a_frame_that_was_begun_ahead_leaves_nothing_for_the_next_line(model):
    first, second = random_codes(model, 8, 1), random_codes(model, 8, 2)
    codec = Engine("eager").open_codec(model, BATCH, 1)
    codec.begin(0, None)
    codec.begin_ahead(0, first[0])
    codec.end(0)
    codec.begin(1, None)
    assert signal_to_noise(decode_waveform(model, second), codec.launch({1: second}).wait()[1]) > FLOAT32_DB


def test_what_is_no_code_is_decoded_as_some_code(model):
    """Of numbers that are not finite; the host raises for them when it has the frame."""
    codec = Engine("eager").open_codec(model, BATCH, 1)
    codec.begin(0, None)
    codec.begin_ahead(0, torch.full((16,), 10**9))
    codec.begin(0, None)
    codes = random_codes(model, 8)
    assert signal_to_noise(decode_waveform(model, codes), codec.launch({0: codes}).wait()[0]) > FLOAT32_DB


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_steps_may_be_launched_before_earlier_ones_are_waited_for(model, engine):
    """Also of lines that come and go meanwhile, and more of them than the row has places."""
    codec = Engine(engine).open_codec(model, BATCH, 2)
    lines = {line: random_codes(model, 9, line) for line in range(3)}
    for line in (0, 1):
        codec.begin(line, None)
    first = codec.launch({0: lines[0][:4], 1: lines[1][:2]})
    second = codec.launch({1: lines[1][2:]})
    codec.begin(2, None)
    third = codec.launch({2: lines[2], 0: lines[0][4:]})
    made = [waves.wait() for waves in (first, second, third)]
    assert first.is_ready and third.is_ready
    for line, codes in lines.items():
        ours = np.concatenate([waves[line] for waves in made if line in waves])
        assert signal_to_noise(decode_waveform(model, codes), ours) > FLOAT32_DB
