"""Lines decoded together: each waveform equals upstream's decoding of the line alone."""

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.codec.forward import Slabs, TorchOps
from qwen3_tts_morph.morph.codec.packing import row_sizes
from qwen3_tts_morph.morph.codec.stream import decode_waveform
from qwen3_tts_morph.morph.options import LoadOptions
from qwen3_tts_morph.morph.runtime import capture
from qwen3_tts_morph.morph.runtime.capture import CaptureStream, Fallback
from qwen3_tts_morph.morph.waveform import engine as waveforms
from qwen3_tts_morph.morph.waveform.engine import BatchCodec, take_all

from tests.morph.codec_lines import FLOAT32_DB, FRAME, random_codes, signal_to_noise
from tests.morph.recorded import Recordings, note_graphs, prepare_all

BF16_DB = 12  # against float32; upstream's own bf16 has 15


@pytest.fixture
def model(load):
    return load("tiny", "base")


def assert_near(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Assert that all samples are equal up to float32 rounding."""
    assert ours.dtype == np.float32 and ours.shape == theirs.shape
    assert len(ours) == 0 or signal_to_noise(theirs, ours) > FLOAT32_DB
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-4)


def test_lines_of_different_lengths_equal_upstreams(model):
    engine = BatchCodec(model)
    lines = [random_codes(model, frames, seed) for seed, frames in enumerate((1, 7, 330, 40, 626, 72, 0, 25))]
    waves = take_all(engine.begin_waveforms(lines))
    for codes, wave in zip(lines, waves, strict=True):
        theirs = decode_waveform(model, codes)
        assert theirs.shape == (len(codes) * FRAME,)
        assert_near(wave, theirs)
    assert min(np.abs(wave).max() for wave in waves if len(wave)) > 0.01, "silence would prove nothing"


@pytest.mark.parametrize("slabs", [Slabs(5, 0), Slabs(24, 1), Slabs(7, 3)], ids=str)
def test_slabs_from_any_block_on_change_no_sample(model, slabs, monkeypatch):
    codes = random_codes(model, 40)
    monkeypatch.setattr(waveforms, "SHORT_SLABS", slabs)
    [wave] = take_all(BatchCodec(model).begin_waveforms([codes]))
    assert_near(wave, decode_waveform(model, codes))


@pytest.mark.parametrize(("reference", "frames"), [(5, 12), (15, 7), (290, 20), (310, 0)])
def test_a_reference_is_decoded_before_the_line_and_cut_off(model, reference, frames):
    heard, codes = random_codes(model, reference, seed=1), random_codes(model, frames)
    alone = random_codes(model, 9, seed=2)
    ours, other = take_all(BatchCodec(model).begin_waveforms([codes, alone], [heard, None]))
    theirs = decode_waveform(model, codes, heard)
    assert_near(ours, theirs)
    assert_near(other, decode_waveform(model, alone))


def test_bf16_is_as_close_to_float32_as_upstreams(load):
    half, whole = load("tiny", "base", "bf16"), load("tiny", "base")
    codes = random_codes(whole, 60)
    exact = decode_waveform(whole, codes)
    ours = signal_to_noise(exact, take_all(BatchCodec(half).begin_waveforms([codes]))[0])
    theirs = signal_to_noise(exact, decode_waveform(half, codes))
    assert ours > theirs - 0.5 and ours > BF16_DB


def test_upstreams_decoder_still_works_and_the_weights_are_stored_once(checkpoint):
    model = load_model(checkpoint("tiny", "base"))
    codes = random_codes(model, 20)
    before = decode_waveform(model, codes)
    shapes = {name: value.shape for name, value in model.codec.decoder.named_parameters()}
    engine = BatchCodec(model)
    take_all(engine.begin_waveforms([codes]))
    assert shapes == {name: value.shape for name, value in model.codec.decoder.named_parameters()}
    assert_near(decode_waveform(model, codes), before)
    weights = engine.look_up()
    for index, block in enumerate(weights.blocks):
        unit = model.codec.decoder.decoder[1 + index].block[2]
        assert block.units[0].conv.data_ptr() == unit.conv1.conv.weight.data_ptr()
        assert block.now.data_ptr() == model.codec.decoder.decoder[1 + index].block[1].conv.weight.data_ptr()


def test_a_moved_model_is_noticed(checkpoint):
    model = load_model(checkpoint("tiny", "base"))
    codes = random_codes(model, 20)
    engine = BatchCodec(model)
    before = take_all(engine.begin_waveforms([codes]))[0]
    for parameter in model.codec.decoder.parameters():
        parameter.data = torch.zeros_like(parameter)
    assert not np.array_equal(take_all(engine.begin_waveforms([codes]))[0], before)


def test_on_chunk_is_called_before_each_row_and_may_cancel(model):
    engine = BatchCodec(model)
    calls = []

    class Cancelled(Exception):
        pass

    def cancel_at_the_second() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise Cancelled

    lines = [random_codes(model, 300, seed) for seed in range(4)]
    with pytest.raises(Cancelled):
        take_all(BatchCodec(model).begin_waveforms(lines, on_chunk=cancel_at_the_second))
    calls.clear()
    engine.free()
    assert np.abs(take_all(engine.begin_waveforms(lines[:1], on_chunk=lambda: calls.append(1)))[0]).max() > 0.01
    assert len(calls) == 1


class AheadOps(TorchOps):
    """Compiles ahead with operations that write wrong samples."""

    def __init__(self):
        self.rows = 0

    def compile_ahead(self, row):
        self.rows += 1
        row(ZeroOps())


class ZeroOps(TorchOps):
    def finish(self, x, weight, bias):
        return torch.zeros(len(x), device=x.device)


def test_kernels_are_compiled_ahead_once_per_length_without_changing_samples(model):
    lines = [[random_codes(model, 20)], [random_codes(model, 20, 1)], [random_codes(model, 300)]]
    plain, ops = BatchCodec(model), AheadOps()
    engine = BatchCodec(model, ops=ops)
    for line, rows in zip(lines, (1, 1, 2), strict=True):
        assert np.array_equal(take_all(engine.begin_waveforms(line))[0], take_all(plain.begin_waveforms(line))[0])
        assert ops.rows == rows
    engine.free()
    take_all(engine.begin_waveforms(lines[0]))
    assert ops.rows == 2


class FailingOps(TorchOps):
    """Kernels of which one cannot run on this device."""

    def __init__(self, error: Exception):
        self.error, self.calls = error, 0

    def finish(self, x, weight, bias):
        self.calls += 1
        raise self.error


def test_rows_of_all_lengths_are_captured_before_a_line_waits_for_them(model, monkeypatch):
    lines = [random_codes(model, frames, seed) for seed, frames in enumerate((3, 30, 299))]
    wanted = [take_all(BatchCodec(model).begin_waveforms([line]))[0] for line in lines]
    monkeypatch.setattr(waveforms, "CapturedGraphs", Recordings)
    monkeypatch.setattr(waveforms, "LARGEST_ROW", 360)
    graphs, captures = note_graphs(monkeypatch), CaptureStream()
    engine = BatchCodec(model, captures=captures)
    engine.prepare()
    prepare_all(captures)
    assert [[*one.recordings] for one in graphs] == [[("row", size) for size in reversed(engine.sizes)]]
    made = Recordings.made
    for ours, theirs in zip([take_all(engine.begin_waveforms([line]))[0] for line in lines], wanted, strict=True):
        assert_near(ours, theirs)
    assert Recordings.made == made


def test_nothing_is_captured_ahead_where_nothing_can_be(model, monkeypatch):
    engine = BatchCodec(model)
    monkeypatch.setattr(waveforms, "synthesise", lambda *_: pytest.fail("a row was decoded"))
    engine.prepare()


class OutOfResources(Exception):
    """Triton's own errors are not RuntimeErrors."""


def test_a_kernel_that_fails_is_logged_once_and_no_line_is_lost(model, caplog):
    lines = [random_codes(model, frames, seed) for seed, frames in enumerate((30, 300, 41))]
    wanted = take_all(BatchCodec(model).begin_waveforms(lines))
    ops = FailingOps(OutOfResources("shared memory\nmore"))
    engine = BatchCodec(model, ops=ops)
    for _ in range(2):
        for ours, theirs in zip(take_all(engine.begin_waveforms(lines)), wanted, strict=True):
            assert np.array_equal(ours, theirs)
        engine.free()
    assert ops.calls == 1 and engine.fallback == Fallback("codec kernels", "OutOfResources: shared memory")
    assert [record.message for record in caplog.records] == [
        "Triton cannot run here (OutOfResources: shared memory): the codec runs on torch's own operations, slower"
    ]


def test_full_memory_and_torchs_own_errors_pass_through(model, monkeypatch):
    engine = BatchCodec(model, ops=FailingOps(torch.cuda.OutOfMemoryError("full")))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        take_all(engine.begin_waveforms([random_codes(model, 5)]))
    assert engine.fallback is None
    monkeypatch.setattr(TorchOps, "finish", FailingOps(RuntimeError("broken")).finish)
    with pytest.raises(RuntimeError, match="broken"):
        take_all(BatchCodec(model).begin_waveforms([random_codes(model, 5)]))


def test_nothing_to_decode(model):
    engine = BatchCodec(model)
    assert take_all(engine.begin_waveforms([])) == []
    assert [len(wave) for wave in take_all(engine.begin_waveforms([random_codes(model, 0)]))] == [0]


@pytest.mark.parametrize("window", [1, 5, 16, 71, 72, 100, 250, 1000, 5000])
def test_rows_for_any_window_fit_a_chunk_and_are_multiples_of_a_block(window):
    """The demo voice's window is 16, the published codec's 72."""
    sizes = row_sizes(window, 1152)
    assert sizes == sorted(set(sizes)) and 350 <= sizes[-1] <= 1152
    assert all(size < window or size % window == 0 for size in sizes)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_replayed_rows_equal_direct_ones_on_cuda(checkpoint, precision, monkeypatch):
    model = load_model(checkpoint("tiny", "base"), LoadOptions(precision), "cuda")
    lines = [random_codes(model, frames, seed) for seed, frames in enumerate((300, 7, 330, 40))]
    others = [random_codes(model, frames, seed) for seed, frames in enumerate((30, 300, 41, 330), 10)]
    with monkeypatch.context() as patch:
        patch.setattr(capture, "graphs_keep_memory", lambda _: True)
        plain = take_all(BatchCodec(model).begin_waveforms(lines))
    engine = BatchCodec(model)
    for batch in (lines, others, others):  # direct, captured, replayed
        take_all(engine.begin_waveforms(batch))
    for ours, theirs in zip(take_all(engine.begin_waveforms(lines)), plain, strict=True):
        assert np.array_equal(ours, theirs)
    held = torch.cuda.memory_allocated()
    engine.free()
    assert torch.cuda.memory_allocated() < held
    for ours, theirs in zip(take_all(engine.begin_waveforms(lines)), plain, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.gpu
def test_rows_run_beside_what_the_current_stream_gets_later(checkpoint):
    model = load_model(checkpoint("tiny", "base"), LoadOptions("fp32"), "cuda")
    engine, lines = BatchCodec(model), [random_codes(model, 300, seed) for seed in range(3)]
    for _ in range(3):  # direct, captured, replayed
        alone = take_all(engine.begin_waveforms(lines))
    behind, later = torch.cuda.Event(), torch.cuda.Event()
    torch.cuda._sleep(100_000_000)
    behind.record()
    made = engine.begin_waveforms(lines)
    torch.cuda._sleep(20_000_000_000)  # 10 s: far longer than the rows
    later.record()
    waves = take_all(made)
    assert behind.query(), "what the current stream had to do before comes first"
    assert not later.query(), "what it got afterwards is not waited for"
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(waves, alone, strict=True))
    torch.cuda.synchronize()
