"""Linear layers through cuBLAS (on a CPU torch's own product), with what our kernels add behind them."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

from qwen3_tts_morph.morph.kernels.embed import look_up
from qwen3_tts_morph.morph.kernels.linear.launch import project
from qwen3_tts_morph.morph.kernels.linear.tiles import GemmShape, library_tile
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.kernels.states import Inputs, Projection, Residual
from qwen3_tts_morph.morph.model.weights import quantize

from tests.morph.kernels.test_frame import both, check_equal, check_frames, decode_frame, torch_frame
from tests.morph.kernels.test_linear import DTYPES, EPS, NAMED_SIZES, check, random, rms_norm
from tests.morph.pairwise import thinned

ROWS = 5
PLAN = Plan(library_min_rows=ROWS)


@pytest.fixture(params=DTYPES.values(), ids=DTYPES)
def dtype(request) -> torch.dtype:
    return request.param


@pytest.fixture(params=[NAMED_SIZES[name] for name in ("(64, 96)", "(1500, 40)")], ids=str)
def size(request) -> tuple[int, int]:
    return request.param


def normed_rows(device, width: int, dtype: torch.dtype) -> tuple[Residual, torch.Tensor, torch.Tensor]:
    """A residual stream before a norm, the norm's weight, and what the next product multiplies, in float64."""
    gain = 1 + random(device, width, dtype=dtype)
    stream = look_up(PLAN, Inputs(random(device, ROWS, width, dtype=dtype)), gain, EPS)
    return stream, gain, rms_norm(stream.values.double(), gain)


def test_rows_start_after_their_norm(device, size, dtype):
    stream, _, wanted = normed_rows(device, size[0], dtype)
    assert stream.squares is None
    check(stream.operand(PLAN), wanted, dtype)
    last = stream.last(5, PLAN)
    assert torch.equal(last.operand(PLAN), stream.operand(PLAN)[4:]) and last.squares is None


def test_product_after_a_norm(device, size, dtype):
    width, outputs = size
    stream, gain, wanted = normed_rows(device, width, dtype)
    weight = random(device, outputs, width, dtype=dtype, seed=1)
    out = torch.empty(ROWS, outputs, device=device, dtype=PLAN.product_dtype(ROWS, dtype))
    copy = torch.empty(ROWS, width, device=device, dtype=dtype)
    project(PLAN, stream, out, Projection(weight, gain, EPS, normed_copy=copy))
    check(out, wanted @ weight.double().T, dtype)
    assert torch.equal(copy, stream.operand(PLAN))


def test_swiglu(device, size, dtype):
    width, outputs = size
    stream, gain, wanted = normed_rows(device, width, dtype)
    weight = random(device, 2 * outputs, width, dtype=dtype, seed=1) / width**0.5
    out = torch.empty(ROWS, outputs, device=device, dtype=dtype)
    project(PLAN, stream, out, Projection(weight, gain, EPS, gated=True))
    gate, up = (wanted @ weight.double().T).chunk(2, dim=1)
    check(out, torch.nn.functional.silu(gate) * up, dtype)


@pytest.mark.parametrize("starts", [False, True], ids=["added to the stream", "starts it"])
def test_residual_stream_and_the_norm_after_it(device, size, dtype, starts):
    width, outputs = size
    x, weight = random(device, ROWS, width, dtype=dtype), random(device, outputs, width, dtype=dtype, seed=1)
    gain, bias = 1 + random(device, outputs, dtype=dtype), random(device, outputs, dtype=dtype, seed=2)
    stream = Residual.empty(PLAN, ROWS, gain)
    before = stream.values.copy_(random(device, ROWS, outputs, seed=3)).double()
    ends = {"bias": bias, "starts": stream} if starts else {"residual": stream}
    project(PLAN, Inputs(x), stream.values, Projection(weight, eps=EPS, next_norm=gain, **ends))
    wanted = x.double() @ weight.double().T + (bias.double() if starts else before)
    check(stream.values, wanted, dtype)
    check(stream.operand(PLAN), rms_norm(stream.values.double(), gain), dtype)


@pytest.mark.parametrize("rows", [ROWS, pytest.param(70, marks=pytest.mark.slow)])
def test_a_split_product_of_ours_in_its_place(device, rows):
    plan, width, outputs, dtype = replace(PLAN, split_library=True), 256, 96, torch.float16
    tile = library_tile(plan, GemmShape(rows, outputs, width, 2))
    assert tile is not None and tile.split_k == 4
    x = random(device, rows, width, dtype=dtype)
    weight = random(device, outputs, width, dtype=dtype, seed=1)
    gain = 1 + random(device, outputs, dtype=dtype)
    stream = Residual.empty(plan, rows, gain)
    before = stream.values.copy_(random(device, rows, outputs, seed=3)).double()
    project(plan, Inputs(x), stream.values, Projection(weight, eps=EPS, next_norm=gain, residual=stream))
    check(stream.values, x.double() @ weight.double().T + before, dtype)
    check(stream.operand(plan), rms_norm(stream.values.double(), gain), dtype)


def test_fewer_rows_are_left_to_our_kernels(device):
    """As after the predictor's first pass, which has two positions per line."""
    stream, gain, wanted = normed_rows(device, 64, torch.float32)
    weight = random(device, 96, 64, seed=1)
    plan = replace(PLAN, library_min_rows=ROWS + 1)
    out = torch.empty(ROWS, 96, device=device)
    project(plan, stream, out, Projection(weight, gain, EPS))
    check(out, wanted @ weight.double().T, torch.float32)


def test_int8_weights_and_rows_before_their_norm_are_refused(device):
    stream, gain, _ = normed_rows(device, 64, torch.float32)
    out = torch.empty(ROWS, 96, device=device)
    with pytest.raises(ValueError, match="no INT8 weights"):
        project(PLAN, stream, out, Projection(quantize(random(device, 96, 64)), gain, EPS))
    unnormed = look_up(Plan(), Inputs(random(device, ROWS, 64)), gain, EPS)
    with pytest.raises(ValueError, match="rows after their norm"):
        project(PLAN, unnormed, out, Projection(random(device, 96, 64), gain, EPS))


# With an edge of 5 rows, only the predictor's first pass has as many: two positions of each line.
@pytest.mark.parametrize("shape, edge", thinned([("tiny-1.7B", 3), ("tiny", 3), ("tiny", 5)], 3))
@torch.inference_mode()
def test_frames_equal_those_of_torch(device, shape, edge):
    weights, slots, other = both(device, shape, 4)
    torch_frame(weights, slots, 2, 64)
    decode_frame(weights, other, 2, 64, Plan(library_min_rows=edge))
    check_equal(slots, other)


# Where the products of the first pass, of all passes, or of none become cuBLAS's.
@pytest.mark.skipif(not torch.cuda.is_available(), reason="not run: needs a GPU (python run_tests.py --gpu)")
@pytest.mark.parametrize("lines", [32, 33, 64, 65, 300])
@torch.inference_mode()
def test_frames_at_the_edges_equal_those_of_torch(device, lines):
    check_frames(*both(device, "tiny", lines), 15, 2)
