"""Lines decoded step by step in one row have the samples of whole lines, whatever the steps and the neighbours."""

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.codec.forward import TorchOps
from qwen3_tts_morph.morph.codec.packing import PART_FRAMES
from qwen3_tts_morph.morph.codec.stream import decode_waveform as whole_line
from qwen3_tts_morph.morph.codec.weights import CodecWeights
from qwen3_tts_morph.morph.runtime.capture import CapturedGraphs, graphs_keep_memory
from qwen3_tts_morph.morph.waveform import incremental
from qwen3_tts_morph.morph.waveform.engine import BatchCodec
from qwen3_tts_morph.morph.waveform.incremental import STEP_FRAMES, CodecSnapshot, LineStates, RowStream, count_steps

from tests.morph.codec_lines import FLOAT32_DB, FRAME, RAMP, random_codes, signal_to_noise, steps
from tests.morph.recorded import Recordings


@pytest.fixture
def model(load):
    return load("tiny", "base")


def rows(model, lines: int = 1) -> RowStream:
    return RowStream(CodecWeights.of(model.codec.decoder), lines, TorchOps())


def decode(row: RowStream, codes: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    return {line: torch.from_numpy(wave) for line, wave in row.launch(codes).wait().items()}


def stream(row: RowStream, line: int, codes: torch.Tensor, sizes=RAMP) -> np.ndarray:
    waves = [decode(row, {line: part})[line] for part in steps(sizes, codes)]
    assert [len(wave) for wave in waves] == [len(part) * FRAME for part in steps(sizes, codes)]
    return torch.cat([torch.zeros(0), *waves]).numpy()


def feed(row: RowStream, line: int, reference: torch.Tensor) -> Iterator[CodecSnapshot]:
    snapshot = None
    while snapshot is None or snapshot.frames < len(reference):
        snapshot = row.feed(line, snapshot, reference)
        yield snapshot


@pytest.mark.parametrize("length", [1, 12, 125, 299])
def test_the_state_after_a_reference_is_that_of_a_line_that_was_decoded(model, monkeypatch, length):
    """To the bit, without a convolution, and in parts."""
    reference, decoded, row = random_codes(model, length, 7), rows(model), rows(model, 2)
    decode(decoded, {0: reference})
    expected = decoded.pause(0)
    monkeypatch.setattr(incremental, "convolve_newest", lambda *_: pytest.fail("nobody hears it"))
    states = list(feed(row, 1, reference))
    assert [state.frames for state in states[:-1]] == list(range(PART_FRAMES, length, PART_FRAMES))
    assert states[-1].frames == expected.frames == length
    assert np.array_equal(states[-1].recent, expected.recent)
    for one in fields(LineStates):
        assert torch.equal(getattr(states[-1].state, one.name), getattr(expected.state, one.name)), one.name


def test_of_a_reference_only_what_its_last_chunk_depends_on_is_fed(model, monkeypatch):
    fed: list[int] = []
    step = incremental.decode_step
    monkeypatch.setattr(incremental, "decode_step", lambda *given: fed.append(int(given[3].sum())) or step(*given))
    for length, needed in ((299, 299), (300, 0), (301, 26), (375, 100), (640, 65)):
        fed.clear()
        list(feed(rows(model), 0, random_codes(model, length, 7)))
        assert sum(fed) == needed, length


def note_states(monkeypatch) -> list[LineStates]:
    """Return a list, to which the states of all rows are added that are made from now on."""
    allocate, made = LineStates.allocate, list[LineStates]()
    monkeypatch.setattr(LineStates, "allocate", lambda *given: (made.append(allocate(*given)), made[-1])[1])
    return made


def spoil(states: LineStates) -> None:
    for part in (states.keys, states.values, states.inputs, states.outputs):
        part.fill_(torch.nan)


def test_nan_in_what_is_not_used_reaches_no_line(model, monkeypatch):
    """An index without a line, and what the last line left behind."""
    states = note_states(monkeypatch)
    row, codes = rows(model, 3), random_codes(model, 30)
    spoil(states[0])
    row.start(1)
    ours = stream(row, 1, codes)
    assert np.isfinite(ours).all() and signal_to_noise(whole_line(model, codes), ours) > FLOAT32_DB


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_schedules_give_the_same_bits(load, precision):
    model = load("tiny", "base", precision)
    model.module.to("cuda")
    codes, sizes = random_codes(model, 330), [(1,), RAMP, (STEP_FRAMES,), (7, 3, 11)]
    try:
        waves = [
            torch.cat([decode(row, {0: part})[0] for part in steps(size, codes)])
            for size in sizes
            for row in [rows(model)]
        ]
    finally:
        model.module.to("cpu")
    assert all(torch.equal(waves[0], wave) for wave in waves[1:])


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_captured_row_equals_a_direct_one_with_nan_in_what_is_not_used(load, monkeypatch, precision):
    model = load("tiny", "base", precision)
    model.module.to("cuda")
    try:
        codec, states = BatchCodec(model), note_states(monkeypatch)
        weights, device = codec.look_up(), torch.device("cuda")
        graphs = CapturedGraphs(device, temporary=True)
        direct = RowStream(weights, 3, codec.ops)
        captured = RowStream(weights, 3, codec.ops, graphs)
        codes = random_codes(model, 40)
        waves = []
        for row in (direct, captured, captured):  # a step runs directly, is captured, and is replayed
            for one in states:
                spoil(one)
            row.start(1)
            waves.append(torch.cat([decode(row, {1: part})[1] for part in steps(RAMP, codes)]))
        assert graphs.has(("step", 1)) != graphs_keep_memory(device)
        assert waves[0].isfinite().all()
        assert torch.equal(waves[0], waves[1]) and torch.equal(waves[1], waves[2])
    finally:
        model.module.to("cpu")


def test_no_frame_is_begun_ahead_where_a_chunk_begins(model):
    codes, row = random_codes(model, 301), rows(model)
    decode(row, {0: codes[:299]})
    assert row.begin_ahead(0, codes[299])
    assert not row.begin_ahead(0, codes[300]), "one at a time"
    row.start(0, row.pause(0))
    decode(row, {0: codes[299:300]})
    assert not row.begin_ahead(0, codes[300])
    assert signal_to_noise(whole_line(model, codes)[-FRAME:], decode(row, {0: codes[300:]})[0].numpy()) > FLOAT32_DB


@pytest.mark.parametrize("lines", [2, 5])
def test_a_step_of_some_lines_leaves_the_others_as_they_are(model, lines):
    """Lines step alone, in pairs, in threes and together, each at its own place; steps cost as much as their lines."""
    codes, row = [random_codes(model, 40, line) for line in range(lines)], rows(model, lines)
    made: list[list[np.ndarray]] = [[] for _ in codes]
    at, random = [0] * lines, np.random.default_rng(0)
    while any(place < 40 for place in at):
        left = [line for line in range(lines) if at[line] < 40]
        now = random.permutation(left)[: random.integers(1, len(left) + 1)].tolist()
        parts = {line: codes[line][at[line] : at[line] + int(random.integers(1, 9))] for line in now}
        for line, wave in decode(row, parts).items():
            made[line].append(wave.numpy())
            at[line] += len(parts[line])
    for line, waves in enumerate(made):
        assert signal_to_noise(whole_line(model, codes[line]), np.concatenate(waves)) > FLOAT32_DB


def test_a_step_has_the_size_of_its_lines(model, monkeypatch):
    sizes, step = [], incremental.decode_step

    def note(weights, states, codes, counts, ops, wanted):
        sizes.append(len(codes))
        return step(weights, states, codes, counts, ops, wanted)

    monkeypatch.setattr(incremental, "decode_step", note)
    row, codes = rows(model, 6), random_codes(model, 2)
    for count in range(1, 7):
        decode(row, dict.fromkeys(range(count), codes))
    assert sizes == [1, 2, 4, 4, 6, 6]


class AheadOps(TorchOps):
    def compile_ahead(self, *rows):
        self.rows = len(rows)
        for row in rows:
            row(TorchOps())


def test_steps_of_all_sizes_are_compiled_ahead_and_change_no_line(model, monkeypatch):
    row, codes = RowStream(CodecWeights.of(model.codec.decoder), 3, AheadOps()), random_codes(model, 30)
    wanted = stream(rows(model, 3), 1, codes)
    stream(row, 1, codes[:12])
    row._graphs = Recordings(torch.device("cpu"))
    row.prepare()
    assert row._ops.rows == 3, "of 1, 2 and 3 lines"
    ours = np.concatenate((wanted[: 12 * FRAME], stream(row, 1, codes[12:])))
    assert np.array_equal(ours, wanted)


def test_the_steps_of_a_chunk_are_known_before(model, monkeypatch):
    """Those of a line at the beginning, of one that begins a chunk, and of two chunks at once."""
    ran: list[int] = []
    step = incremental.decode_step
    monkeypatch.setattr(incremental, "decode_step", lambda *given: ran.append(1) or step(*given))
    codes, row = random_codes(model, 620), rows(model)
    at = 0
    for count in (1, 12, 13, 270, 4, 12, 2, 300):
        expected = count_steps(row.frames[0], count)
        ran.clear()
        decode(row, {0: codes[at : at + count]})
        assert len(ran) == expected, at
        at += count
