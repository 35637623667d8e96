"""The codec's Triton kernels against torch's operations: on a GPU, or without one in Triton's interpreter."""

from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.codec.forward import TorchOps, causal_conv
from qwen3_tts_morph.morph.codec.stream import decode_waveform
from qwen3_tts_morph.morph.codec.weights import BlockWeights, SnakeWeights, Unit
from qwen3_tts_morph.morph.kernels.codec import ops as ops_module
from qwen3_tts_morph.morph.kernels.codec.conv import ConvTile, convolve, split_channels
from qwen3_tts_morph.morph.kernels.codec.ops import TILES, TritonOps, fits, has_tma
from qwen3_tts_morph.morph.kernels.codec.snake import activate
from qwen3_tts_morph.morph.kernels.precompile import run
from qwen3_tts_morph.morph.model.layers import Angles, KvTarget
from qwen3_tts_morph.morph.options import LoadOptions
from qwen3_tts_morph.morph.waveform.engine import BatchCodec, take_all

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DILATIONS = (1, 3, 9)
FRAMES = 5


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def random_snake(channels: int, generator: torch.Generator) -> SnakeWeights:
    turns, scale, bias = torch.randn(3, channels, generator=generator).to(DEVICE)
    return SnakeWeights((turns / 3).exp() / torch.pi, (-scale / 3).exp(), bias)


def random_block(channels: int, dtype: torch.dtype, generator: torch.Generator) -> BlockWeights:
    def weight(*shape: int) -> torch.Tensor:
        inner = shape[-1] * (shape[-2] if len(shape) == 3 else 1)
        return (torch.randn(shape, generator=generator) / inner**0.5).to(DEVICE, dtype)

    units = tuple(
        Unit(
            random_snake(channels, generator),
            weight(channels, 7, channels),
            dilation,
            random_snake(channels, generator),
            weight(channels, channels),
        )
        for dilation in DILATIONS
    )
    return BlockWeights(torch.empty(0), torch.empty(0), 1, units, random_snake(channels, generator))


def relative(value: torch.Tensor, exact: torch.Tensor) -> float:
    assert value.shape == exact.shape
    return float((value.double() - exact.double()).norm() / exact.double().norm())


KEEP = torch.tensor([False, True, True, False, True])


@pytest.mark.parametrize("channels, loud", [(1, 1.0), (48, 100.0), (96, 1.0), (300, 100.0)])
def test_snake_equals_upstreams(channels, loud, generator):
    from lab.upstream.package import import_qwen_tts

    core = import_qwen_tts().core
    module = core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2.SnakeBeta(channels)
    module.alpha.data = 0.3 * torch.randn(channels, generator=generator)
    module.beta.data = 0.3 * torch.randn(channels, generator=generator)
    x = loud * torch.randn(FRAMES * 40, channels, generator=generator)
    with torch.no_grad():
        exact = module.double()(x.T[None].double())[0].T.reshape(FRAMES, 40, channels).clone()
    exact[~KEEP] = 0
    snake = SnakeWeights.of(module.float().to(DEVICE), torch.zeros(channels, device=DEVICE))
    ours = activate(x.to(DEVICE), snake, KEEP.to(DEVICE)).cpu().view(FRAMES, 40, channels)
    assert float((ours - exact).abs().max()) < 2e-6 * loud
    torchs = TorchOps().activate(x.to(DEVICE), snake, KEEP.to(DEVICE)).cpu().view(FRAMES, 40, channels)
    assert float((torchs - exact).abs().max()) < 2e-6 * loud


def test_snake_adds_the_pending_bias_and_may_overwrite_its_input(generator):
    snake, x = random_snake(48, generator), torch.randn(FRAMES * 8, 48, generator=generator).to(DEVICE)
    expected = TorchOps().activate(x, snake, KEEP.to(DEVICE))
    assert activate(x, snake, KEEP.to(DEVICE), x) is x
    assert relative(x, expected) < 1e-6


@pytest.mark.parametrize(
    ("channels", "positions"),
    [(48, 27), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((48, 16), (96, 16), (96, 27)))],
)
def test_residual_units_equal_torchs(channels, positions, generator):
    dtype = torch.float16
    block = random_block(channels, dtype, generator)
    x = torch.randn(FRAMES * positions, channels, generator=generator).to(DEVICE, dtype)
    x.view(FRAMES, -1)[~KEEP.to(DEVICE)] = 0
    wide = BlockWeights(block.now, block.before, 1, tuple(_wide(unit) for unit in block.units), block.after)
    exact = TorchOps().residuals(x.float(), wide, KEEP.to(DEVICE))
    ops = TritonOps(tiles={channels: ConvTile(rows=32, step=16, warps=4, stages=2)})
    assert ops._fuses(x)
    ours = ops.residuals(x, block, KEEP.to(DEVICE))
    assert relative(ours, exact) < 3e-3
    assert not ours.view(FRAMES, -1)[~KEEP.to(DEVICE)].any()


needs_tma = pytest.mark.skipif(
    DEVICE == "cuda" and not has_tma(torch.device("cuda")),
    reason="not run: this GPU has no tensor copy engine",
)


@needs_tma
@pytest.mark.parametrize("positions", [pytest.param(13, marks=pytest.mark.slow), 27])
def test_units_of_long_rows_load_by_the_tensor_copy_engine(positions, generator, monkeypatch):
    """Of tiles that are no part of the row: what is before and behind it reads as zeros."""
    monkeypatch.setattr(ops_module, "FEWEST_TMA_ROWS", 27 * FRAMES)
    block = random_block(48, torch.float16, generator)
    x = torch.randn(FRAMES * positions, 48, generator=generator).to(DEVICE, torch.float16)
    tile = ConvTile(rows=32, step=16, warps=4, stages=2)
    weight = (torch.randn(7, 48, generator=generator) / 48**0.5 / 9).to(DEVICE)
    finish = weight, torch.tensor([0.1], device=DEVICE)
    made, launched = [], []

    def launch(kernel, grid, *arguments, **options):
        launched.append(any(type(one).__name__ == "TensorDescriptor" for one in arguments))
        run(kernel, grid, *arguments, **options)

    for long_tiles in ({}, {48: replace(tile, tma=True)}):
        ops = TritonOps(tiles={48: tile}, long_tiles=long_tiles, launch=launch)
        made.append(ops.residuals(x.clone(), block, KEEP.to(DEVICE)))
        made.append(ops.end(x.clone(), block, KEEP.to(DEVICE), finish))
    assert made[0].equal(made[2]) and made[1].equal(made[3])
    assert sum(launched) == (6 if positions == 27 else 0)


def _wide(unit: Unit) -> Unit:
    return Unit(unit.first, unit.conv.float(), unit.dilation, unit.second, unit.point.float())


@pytest.mark.parametrize("dilation", [1, 9])
def test_a_wide_convolution_equals_torchs(dilation, generator):
    unit = replace(random_block(48, torch.float16, generator).units[0], dilation=dilation)
    active = torch.randn(FRAMES * 9, 48, generator=generator).to(DEVICE, torch.float16)
    exact = TorchOps().activate(causal_conv(active.float(), unit.conv.float(), dilation), unit.second, KEEP.to(DEVICE))
    tile = ConvTile(rows=16, step=16, warps=4, stages=2, columns=16)
    assert relative(convolve(active, unit, KEEP.to(DEVICE), tile), exact) < 2e-3


@pytest.mark.parametrize(
    ("capability", "fitting"), [((8, 0), {384}), ((8, 9), {384}), ((9, 0), {384, 768}), ((12, 0), {384})]
)
def test_wide_convolutions_run_where_they_have_the_shared_memory(capability, fitting, monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: capability)
    cuda = torch.device("cuda")
    assert {channels for channels in (384, 768) if fits(TILES[channels], cuda)} == fitting


def test_a_wide_convolution_needs_whole_tiles(generator):
    unit, active = random_block(48, torch.float16, generator).units[0], torch.zeros(FRAMES, 48)
    with pytest.raises(ValueError, match="48 channels: no multiple of 32 columns and 16 per step"):
        convolve(active, unit, KEEP, ConvTile(step=16, columns=32))


@pytest.mark.parametrize(("taps", "tolerance"), [(7, 3e-3), (9, 4e-3)])  # nine are one too many for the last unit
def test_the_end_of_the_last_block_equals_torchs(taps, tolerance, generator):
    block = random_block(48, torch.float16, generator)
    x = torch.randn(FRAMES * 27, 48, generator=generator).to(DEVICE, torch.float16)
    weight = (torch.randn(taps, 48, generator=generator) / 48**0.5 / 9).to(DEVICE)
    finish = weight, torch.tensor([0.1], device=DEVICE)
    wide = replace(block, units=tuple(_wide(unit) for unit in block.units))
    exact = TorchOps().end(x.float(), wide, KEEP.to(DEVICE), finish)
    ops = TritonOps(tiles={48: ConvTile(rows=32, step=16, warps=4, stages=2)})
    ours = ops.end(x, block, KEEP.to(DEVICE), finish)
    assert ours.dtype == torch.float32 and relative(ours, exact) < tolerance
    assert float(ours.abs().max()) == 1, "nothing was clipped"


@pytest.mark.parametrize("channels", [6, 96])
def test_the_last_convolution_equals_torchs(channels, generator):
    x = torch.randn(130, channels, generator=generator).to(DEVICE)
    weight = (torch.randn(7, channels, generator=generator) / channels**0.5 / 3).to(DEVICE)
    bias = torch.tensor([0.1], device=DEVICE)
    exact = TorchOps().finish(x.double(), weight.double(), bias)
    ours = TritonOps().finish(x, weight, bias)
    assert ours.dtype == torch.float32 and relative(ours, exact) < 1e-6
    assert float(ours.abs().max()) == 1, "nothing was clipped"


@pytest.mark.parametrize(
    ("channels", "split"),
    [(96, (64, 32)), (192, (128, 64)), (48, (32, 16)), (24, None), (64, None), (288, None)],
)
def test_channels_split_into_two_powers_of_two(channels, split):
    assert split_channels(channels) == split


def test_a_complete_line_equals_upstreams(checkpoint):
    # Random weights amplify rounding: in bf16, "auto" on a GPU, upstream itself is 17 % away from its float32.
    model = load_model(checkpoint("tiny", "base"), LoadOptions("fp32"), DEVICE)
    codes = torch.randint(64, (20, 16), generator=torch.Generator().manual_seed(0))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        theirs = decode_waveform(model, codes)
        ours = take_all(BatchCodec(model, ops=TritonOps()).begin_waveforms([codes]))[0]
    assert relative(torch.from_numpy(ours), torch.from_numpy(theirs)) < 1e-4


TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 2e-2}  # one or two ulps of 1


def noise(generator: torch.Generator, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def close(value: torch.Tensor, wanted: torch.Tensor) -> bool:
    tolerance = TOLERANCES[wanted.dtype]
    return value.dtype == wanted.dtype and torch.allclose(value, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_between_the_transformers_products(dtype, generator):
    states, added, gate_up = (noise(generator, dtype, 2, 5, width) for width in (20, 20, 48))
    scale, gain = noise(generator, dtype, 2, 20)
    values = [[*ops.add_norm(states, added, gain, 1e-5, scale), ops.gate(gate_up)] for ops in (TorchOps(), TritonOps())]
    assert all(map(close, values[1], values[0]))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("heads, kv_heads, head_dim", [(2, 1, 16), (16, 16, 64)])
def test_keys_and_values_go_to_their_slots(dtype, heads, kv_heads, head_dim, generator):
    """Of two lines, each at another place of its ring, one of them around its end; views of all layers' rings."""
    lines, new, slots = 2, 3, 7
    qkv = noise(generator, dtype, lines, new, heads + 2 * kv_heads, head_dim)
    cos, sin = noise(generator, torch.float32, 2, lines, new, 1, head_dim)
    at = torch.tensor([[0, 1, 2], [5, 6, 0]], device=DEVICE)
    made = []
    for ops in (TorchOps(), TritonOps()):
        keys, values = torch.full((2, lines, 4, kv_heads, slots, head_dim), 7.0, device=DEVICE, dtype=dtype)
        queries = ops.rotate_into(qkv, Angles(cos, sin), KvTarget(keys[:, 2], values[:, 2], slots=at))
        made.append((queries, keys, values))
    assert all(map(close, made[1], made[0])) and made[1][2].equal(made[0][2])
