"""A complete frame in kernels, compared with the same frame in torch operations."""

import copy
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

from qwen3_tts_morph.morph.frame.buffers import LastPositions, Workspace
from qwen3_tts_morph.morph.frame.step import advance as torch_advance
from qwen3_tts_morph.morph.frame.step import begin_lines as torch_begin
from qwen3_tts_morph.morph.frame.step import decode_frame as torch_frame
from qwen3_tts_morph.morph.kernels import available, choose_frame, torch_passes, unsupported
from qwen3_tts_morph.morph.kernels.frame import begin_lines, decode_frame, step_talker
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.options import Sampling, TokenSampling
from qwen3_tts_morph.morph.words.head import AlignmentHead
from triton.runtime.interpreter import GridExecutor

from lab.benchmarks.random_weights import SHAPES, random_slots, random_weights
from tests.morph.kernels.said import same_said

FILTERED = Sampling(TokenSampling(top_k=20, top_p=0.8), TokenSampling(temperature=1.1, top_k=0, top_p=0.7), 1.3)
POSITIONS = [40, 3, 17, 62]
HEAD, SPANS = AlignmentHead(1, 3), [(5, 12), (9, 4), (10, 40), (2, 60)]  # the second text is not there yet


def both(device, shape: str, batch: int, dtype=torch.float32, sampling=FILTERED):
    """Weights with an alignment head, and two sets of buffers in the same state."""
    torch.manual_seed(batch)
    weights = replace(random_weights(SHAPES[shape], device, dtype), alignment=HEAD)
    slots = random_slots(SHAPES[shape], weights, batch, 64, (POSITIONS * batch)[:batch], sampling)
    slots.state.spans.copy_(torch.tensor((SPANS * batch)[:batch]))
    return weights, slots, copy.deepcopy(slots)


def tensors(slots) -> dict[str, torch.Tensor]:
    state = {name: value for name, value in vars(slots.state).items() if isinstance(value, torch.Tensor)}
    return state | {
        "keys": slots.cache.keys,
        "values": slots.cache.values,
        "frame keys": slots.frame_cache.keys,
    }


def check_frames(weights, slots, other, seq_groups: int, frames: int) -> None:
    """Decode frames in torch operations on ``slots`` and in kernels on ``other``, and compare everything they leave."""
    for _ in range(frames):
        torch_frame(weights, slots, seq_groups, 64)
        decode_frame(weights, other, seq_groups, 64, Plan())
        check_equal(slots, other)


def check_equal(slots, other) -> None:
    for (name, wanted), value in zip(tensors(slots).items(), tensors(other).values(), strict=True):
        if name in ("alignment", "report"):
            same_said(value[:, -3:], wanted[:, -3:])
            value, wanted = value[:, :-3], wanted[:, :-3]
        same = torch.allclose(value, wanted, atol=3e-5) if wanted.is_floating_point() else value.equal(wanted)
        assert same, name


# The interpreter takes half a minute for one line's frame of three passes: by default the frames of a trained tail are
# compared, and those with cuBLAS's products (``test_library.py``).
FRAMES = [
    pytest.param(*case, marks=pytest.mark.slow)
    for case in (("tiny", 2, 1), ("tiny", 1, 3), ("tiny-1.7B", 1, 2), ("tiny-1.7B", 4, 2))
]
FRAMES += [("tiny", 1, 15)] if torch.cuda.is_available() else []


@pytest.mark.parametrize("shape, batch, seq_groups", FRAMES)
@torch.inference_mode()
def test_frames_equal_those_of_torch(device, shape, batch, seq_groups):
    frames = 2 if batch > 1 or device.type == "cuda" else 1
    check_frames(*both(device, shape, batch), seq_groups, frames)


@pytest.mark.parametrize("shape", ["tiny", pytest.param("tiny-1.7B", marks=pytest.mark.slow)])
@torch.inference_mode()
def test_lines_begin_as_in_torch(device, shape):
    weights, slots, other = both(device, shape, 1)
    numbers = torch.tensor([[POSITIONS[0], 2, 77, 2**31 + 5, *SPANS[0]]], device=device)
    last = LastPositions(torch.randn_like(slots.state.hidden), numbers)
    torch_begin(weights, slots, last, 64)
    begin_lines(weights, other, last, 64, Plan())
    check_equal(slots, other)
    assert (slots.state.positions.tolist(), slots.state.steps.tolist()) == ([POSITIONS[0] + 1], [0])
    assert int(slots.state.seen.sum()) == 1


@torch.inference_mode()
def test_a_batch_cannot_begin_in_kernels(device):
    weights, slots, _ = both(device, "tiny", 4)
    last = LastPositions.allocate(slots.state.hidden)
    with pytest.raises(ValueError, match="4 lines are too many"):
        begin_lines(weights, slots, last, 64, replace(Plan(), gemv_max_rows=2))


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ["talker", "predictor"])
@torch.inference_mode()
def test_nan_in_one_weight_is_reported_with_the_frame(device, damaged):
    weights, slots, _ = both(device, "tiny", 1, torch.bfloat16)
    getattr(weights, damaged).layers[0].down[3, 5] = torch.nan
    decode_frame(weights, slots, 1, 64, Plan())
    assert slots.state.report[:, 16].tolist() == [1]
    codes = slots.state.report[:, :16]
    assert bool(((codes >= 0) & (codes < len(weights.first_head))).all())


@pytest.mark.slow
@torch.inference_mode()
def test_a_trained_tail_is_used(device):
    weights, slots, other = both(device, "tiny", 2)
    vocab, width = weights.heads.shape[1:]
    parts = {
        "token": torch.randn(vocab, width, device=device) / 4,
        "mix_up": torch.randn(8, width, device=device) / 4,
        "mix_down": torch.randn(width, 8, device=device) / 4,
    }
    stock = copy.deepcopy(slots)
    torch_frame(weights, stock, 1, 64)
    trained = replace(weights, tails={1: parts})
    torch_frame(trained, slots, 1, 64)
    decode_frame(trained, other, 1, 64, Plan())
    check_equal(slots, other)
    assert not torch.equal(slots.state.report, stock.state.report)


@torch.inference_mode()
def test_bf16_is_as_close_to_float32_as_torch_operations_are(device):
    """The talker's state after a frame of the same codes, within twice torch's own error."""
    weights, slots, other = both(device, "tiny", 1, torch.bfloat16)
    exact_weights, exact, _ = both(device, "tiny", 1, torch.float32)
    exact_weights = _widened(weights)
    for name, value in tensors(slots).items():
        tensors(exact)[name].copy_(value)
    codes = torch.arange(16, device=device)[None] * 5
    for one in (slots, other, exact):
        one.state.tokens.copy_(codes[:, 0])
        one.state.report[:, :16] = codes
    torch_advance(exact_weights, exact, 64)
    torch_advance(weights, slots, 64)
    wanted, plain = exact.state.hidden, slots.state.hidden.float()
    step_talker(weights, other, 64, Plan())
    error, own = (other.state.hidden.float() - wanted).norm(), (plain - wanted).norm()
    assert error < 2 * own, (float(error), float(own))


def _widened(weights):
    def wide(value):
        if isinstance(value, torch.Tensor):
            return value.float()
        if isinstance(value, tuple):
            return tuple(wide(one) for one in value)
        if hasattr(value, "__dataclass_fields__"):
            return replace(value, **{field.name: wide(getattr(value, field.name)) for field in fields(value)})
        return value

    return wide(weights)


def storages(value) -> Iterator[tuple[int, int]]:
    """Yield the memory of a record's tensors: first byte, and the byte after the last."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        yield storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    elif is_dataclass(value) or isinstance(value, Workspace):
        yield from storages(vars(value))
    elif isinstance(value, (tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from storages(part)


@pytest.mark.skipif(torch.cuda.is_available(), reason="patches Triton's interpreter")
@pytest.mark.parametrize(
    "shape, batch, seq_groups, tail",
    [
        ("tiny", 2, 1, True),
        pytest.param("tiny", 1, 1, False, marks=pytest.mark.slow),
        pytest.param("tiny-1.7B", 4, 2, False, marks=pytest.mark.slow),
    ],
)
@torch.inference_mode()
def test_kernels_use_only_memory_allocated_before_the_frame(device, monkeypatch, shape, batch, seq_groups, tail):
    """Triton's launcher refuses memory that was allocated in a capture under cudaMallocAsync.

    The first frame of a trained tail is compared too: the interpreter takes seconds for each.
    """
    weights, slots, other = both(device, shape, batch)
    if tail:
        vocab, width = weights.heads.shape[1:]
        parts = {"token": torch.randn(vocab, width) / 4, "mix_up": torch.randn(8, width) / 4}
        weights = replace(weights, tails={1: parts | {"mix_down": torch.randn(width, 8) / 4}})
        torch_frame(weights, other, seq_groups, 64)
    decode_frame(weights, slots, seq_groups, 64, Plan())
    if tail:
        check_equal(other, slots)
    before = [*storages(vars(weights)), *storages(slots)]
    met: list[tuple[str, int]] = []
    call = GridExecutor.__call__

    def note(self, *arguments, **named):
        values = [*arguments, *named.values()]
        met.extend((self.fn.__name__, value.data_ptr()) for value in values if torch.is_tensor(value))
        return call(self, *arguments, **named)

    monkeypatch.setattr(GridExecutor, "__call__", note)
    decode_frame(weights, slots, seq_groups, 64, Plan())
    assert len(met) > 100
    new = {name for name, address in met if not any(first <= address < end for first, end in before)}
    assert not new, new


def test_a_workspace_does_not_grow_in_a_capture(monkeypatch):
    workspace = Workspace(torch.device("cpu"))
    first = workspace.empty("qkv", (2, 3), torch.float32)
    monkeypatch.setattr(workspace, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert workspace.empty("qkv", (2, 3), torch.float32) is first
    with pytest.raises(RuntimeError, match=r"qkv \[2, 4\] was not allocated before the capture"):
        workspace.empty("qkv", (2, 4), torch.float32)


def test_available_says_why_kernels_cannot_run(device):
    assert "not on cpu" in (available("cpu") or "")
    torch.manual_seed(0)
    weights = random_weights(SHAPES["tiny"], device, torch.float32)
    assert unsupported(weights) is None
    odd = replace(weights, predictor=replace(weights.predictor, heads=6))
    assert "6 heads of 16 over 2 key heads" in (unsupported(odd) or "")


def test_the_choice_says_why_kernels_cannot_run():
    weights = random_weights(SHAPES["tiny"], torch.device("cpu"), torch.float32)
    passes, why = choose_frame(weights)
    assert passes == torch_passes() and "not on cpu" in (why or "")
