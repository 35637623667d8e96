"""Weight-only INT8: its error, the same codes in both engines, in any batch and after a move, and its size."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.trained_files import load_tails
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.frame.weights import Weights
from qwen3_tts_morph.morph.graph.backend import FrameBackend
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.model.tail import Tail, TailInfo, crossbar
from qwen3_tts_morph.morph.model.weights import Int8Linear, Int8Weight, linear, quantize, view_heads, view_weight
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.report import describe
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from torch.utils._python_dispatch import TorchDispatchMode

from lab.streams import render_lines
from lab.tails.save import save_tails
from tests.morph.decoding import (
    FILTERED,
    GREEDY,
    SEEDS,
    assert_equal,
    eager_lines,
    graph_lines,
    guards_of,
    line_requests,
    prompts_of,
)
from tests.morph.pairwise import pairwise

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# Rounding to a step of d has a mean square of d^2 / 12; the largest of 1024 normal numbers is about 3.2 of their root
# mean square, so a step is 3.2 / 127 of it. A scale that is wrong by 2 % would show as 0.02.
ERROR_OF_NORMAL = 3.2 / 127 / 12**0.5


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def distance(ours: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((ours.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.fixture(scope="session")
def load_int8(checkpoint: Callable[..., Path]) -> Callable[..., Model]:
    """``load_int8(shape, kind, precision)``: a model with INT8 weights, loaded on first use."""
    loaded: dict[tuple[str, ...], Model] = {}

    def get(shape: str = "tiny", kind: str = "custom_voice", precision: str = "fp32") -> Model:
        key = (shape, kind, precision)
        if key not in loaded:
            loaded[key] = load_model(checkpoint(shape, kind), LoadOptions(precision, "sdpa", weights="int8"))
        return loaded[key]

    return get


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_is_within_half_a_step(dtype):
    weight = noise(96, 1024, dtype=dtype) * torch.logspace(-3, 2, 96)[:, None].to(dtype)
    weight[5], weight[6, 1:] = 0, 0
    quantized = quantize(weight)
    assert (quantized.values.dtype, quantized.scale.dtype) == (torch.int8, dtype)
    assert quantized.values.abs().max() == 127  # symmetric: -128 stays unused
    steps = quantized.scale.double()[:, None]
    error = (quantized.values.double() * steps - weight.double()).abs()
    # The largest number of a row is at 127 steps up to the rounding of the step: eps / 2 of 127.
    assert (error <= steps * (0.5 + 127 * torch.finfo(dtype).eps / 2) * (1 + 1e-6)).all()
    assert not quantized.full()[5].any()
    assert distance(quantized.full()[6, :1], weight[6, :1]) <= 2 * torch.finfo(dtype).eps
    rows = [row for row in range(96) if row not in (5, 6)]
    wide = quantized.values[rows].double() * steps[rows]
    assert distance(wide, weight[rows]) == pytest.approx(ERROR_OF_NORMAL, rel=0.25)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_product_equals_that_of_the_dequantised_weight(dtype, count):
    """Small and large batches, full blocks and a remainder; in float16 the sums before scaling would overflow."""
    weight = quantize((noise(1100, 1024, seed=1) * torch.logspace(-3, -1, 1100)[:, None]).to(dtype))
    states = (300 if dtype == torch.float16 else 1) * noise(count, 1024, dtype=dtype)
    wanted = states.double() @ (weight.values.double() * weight.scale.double()[:, None]).T
    ours = linear(states, weight)
    assert ours.dtype == dtype
    assert distance(ours, wanted) < 4 * torch.finfo(dtype).eps
    # Against what a product of such lengths usually is, row by row: each has its own scale.
    usual = states.double().norm(dim=1)[:, None] * weight.full().double().norm(dim=1) / 32
    assert ((ours.double() - wanted).abs() / usual).max() < 16 * torch.finfo(dtype).eps + 1e-5


def test_a_width_that_torchs_int8_gemm_would_overrun_uses_the_other_path():
    weight, states = quantize(noise(37, 50, dtype=torch.bfloat16)), noise(1, 50, dtype=torch.bfloat16)
    assert distance(linear(states, weight), states @ weight.full().T) < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_crossbar_of_int8_heads_equals_one_gemm_per_head(dtype):
    heads = quantize(noise(4, 96, 64, dtype=dtype))
    alone, each = noise(3, 64, seed=1, dtype=dtype), noise(3, 4, 64, seed=2, dtype=dtype)
    for group in range(4):
        full = heads[group].full().double()
        for ours, states in ((crossbar(heads, alone), alone), (crossbar(heads, each), each[:, group])):
            assert ours.shape == (3, 4, 96)
            assert distance(ours[:, group], states.double() @ full.T) < 2 * torch.finfo(dtype).eps
    part = crossbar(heads[2:], alone)
    assert torch.equal(part, crossbar(heads, alone)[:, 2:])


def test_numbers_that_are_not_finite_are_not_hidden():
    weight = noise(3, 64)
    weight[0, 5], weight[1, 6] = torch.nan, torch.inf
    product = linear(torch.ones(1, 64), quantize(weight))[0]
    assert not product[:2].isfinite().any() and product[2].isfinite()


def logits_of(model: Model, frames: int = 6) -> dict[str, torch.Tensor]:
    """Group 0's logits after fixed states, and all groups' of fixed frames."""
    embeds = noise(2, 9, model.width, seed=3).to(model.dtype)
    first = model.talker.codec_head(model.talker.model(embeds))
    predictor = Predictor(model.talker.code_predictor)
    hidden, inputs = noise(frames, 1, model.width, seed=4), noise(frames, 15, model.width, seed=5)
    states = predictor.teacher_force(hidden.to(model.dtype), inputs.to(model.dtype))
    return {"talker": first, "predictor": crossbar(predictor.heads, states)}


@pytest.mark.parametrize("shape", ["tiny", "tiny-1.7B"])
@torch.inference_mode()
def test_logits_are_as_near_as_int8_can_be(load, load_int8, shape):
    """Relative error against float32's full weights, on tiny random checkpoints; bf16's own is beside it.

    Measured: 1.2 to 1.4 % for INT8 in float32, 0.9 to 1.0 % for full weights in bf16, 1.6 to 1.7 % for INT8 in bf16.
    """
    exact = logits_of(load(shape, "custom_voice"))
    bf16 = logits_of(load(shape, "custom_voice", "bf16"))
    for precision, most in (("fp32", 0.016), ("bf16", 0.02)):
        ours = logits_of(load_int8(shape, precision=precision))
        for name, wanted in exact.items():
            assert 0.005 < distance(ours[name], wanted) < most, (precision, name)
            assert distance(bf16[name], wanted) < 0.012, name


def test_projections_and_heads_are_int8_and_nothing_else(load, load_int8):
    full, int8 = load("tiny", "custom_voice"), load_int8("tiny")
    assert (full.weights, int8.weights) == ("full", "int8")
    changed = {name for name, part in int8.module.named_modules() if isinstance(part, Int8Linear)}
    predictor, layers = int8.talker.code_predictor, len(int8.talker.model.layers)
    assert len(changed) == 7 * (layers + len(predictor.model.layers)) + 15
    ours, theirs = int8.module.state_dict(), full.module.state_dict()
    for name, value in theirs.items():
        module = name.rpartition(".")[0]
        if module in changed:
            assert ours[name].dtype == torch.int8
            wide = ours[name].float() * ours[f"{module}.scale"][:, None]
            assert 0.001 < distance(wide, value) < 0.015, name
        else:
            assert torch.equal(ours[name], value), name
    assert not any(buffer.is_inference() for buffer in int8.module.buffers())


@pytest.mark.parametrize(
    ("shape", "seq_groups", "rows", "sampling"),
    pairwise(
        {"tiny": "tiny", "tiny-1.7B": "tiny-1.7B"},
        {"15": 15, "5": 5},
        {"one line": (0,), "batch": (0, 1, 2)},
        {"greedy": GREEDY, "filtered": FILTERED},
    ),
)
def test_the_graph_engines_codes_are_the_eager_engines(load_int8, monkeypatch, shape, seq_groups, rows, sampling):
    model = load_int8(shape)
    prompts, seeds = prompts_of(model, rows=rows), [SEEDS[row] for row in rows]
    theirs = eager_lines(model, prompts, seq_groups, sampling, seeds, monkeypatch)
    assert sum(len(one.codes) for one in theirs) > 2 * len(rows)
    assert_equal(graph_lines(model, prompts, seq_groups, sampling, seeds), theirs)


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_a_trained_tail_works_on_int8_heads(checkpoint, tmp_path, engine):
    """A tail with its own heads gives the full heads' codes; a low-rank one corrects the INT8 heads."""
    folder = shutil.copytree(checkpoint("tiny", "custom_voice"), tmp_path / "mine")
    stock = view_heads(load_model(folder, LoadOptions("fp32", "sdpa")).talker.code_predictor.lm_head)
    parts = {"left": torch.zeros(10, 64, 2), "right": noise(10, 2, 64)}
    tails = [Tail(5, parts, TailInfo("low rank", 0.1, 0.2), stock)]
    save_tails(folder / "crossbar.safetensors", tails, folder)
    synthesizer = Synthesizer.load(folder, LoadOptions("fp32", "sdpa", engine, "int8"))
    model = synthesizer.model
    assert list(model.tails()) == [5]
    assert list(load_tails(folder / "crossbar.safetensors", folder, stock)) == [5]
    prompts = prompts_of(model)

    def codes(tail: str) -> list[torch.Tensor]:
        decoded = synthesizer.engine.decode(
            model,
            line_requests(prompts, guards_of(prompts, 5), SEEDS),
            GenerateOptions(5, GREEDY, 3, tail=tail),
        )
        return [one.codes for one in decoded]

    assert all(map(torch.equal, codes("auto"), codes("stock"))), "its correction is zero"
    model.tails()[5].left.data.normal_(std=10)
    assert not all(map(torch.equal, codes("auto"), codes("stock")))


def test_fused_int8_weights_are_the_models_own(checkpoint):
    model = load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa", weights="int8"))
    attention = model.talker.model.layers[1].self_attn
    linears = [attention.q_proj, attention.k_proj, attention.v_proj]
    values = [(one.weight.clone(), one.scale.clone()) for one in linears]
    before = model.nbytes
    fused = view_weight(linears)
    assert isinstance(fused, Int8Weight) and model.nbytes == before, "memory was added"
    assert torch.equal(fused.values, torch.cat([weight for weight, _ in values]))
    assert torch.equal(fused.scale, torch.cat([scale for _, scale in values]))
    assert fused.values.data_ptr() == attention.q_proj.weight.data_ptr()


class PrefillBatch(TorchDispatchMode):
    """Counts the bytes allocated on the meta device, which replaces a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.device.type == "meta":
            known = any(isinstance(arg, torch.Tensor) and arg.device.type == "meta" for arg in args)
            self.bytes += 0 if known else result.nbytes
        return result


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_model_is_smaller_and_the_device_never_sees_the_full_weights(load, checkpoint, precision):
    full, loaded = load("tiny", "custom_voice", precision), LoadOptions(precision, "sdpa", weights="int8")
    model = load_model(checkpoint("tiny", "custom_voice"), loaded)
    linears = [one for one in model.module.modules() if isinstance(one, Int8Linear)]
    numbers, rows = (sum(one.weight.numel() for one in linears), sum(len(one.scale) for one in linears))
    saved = numbers * (full.dtype.itemsize - 1) - rows * full.dtype.itemsize
    assert full.nbytes - model.nbytes == saved > 0
    size = model.nbytes
    with PrefillBatch() as arrivals:
        model.module.to("meta")
    assert arrivals.bytes == size


def test_it_is_quantised_before_it_is_moved(checkpoint, monkeypatch):
    """So the device never stores a weight twice."""
    seen = []
    monkeypatch.setattr(
        "qwen3_tts_morph.morph.model.model.Qwen3TTS.to",
        lambda module, device: seen.append([one for one in module.modules() if isinstance(one, Int8Linear)]),
    )
    load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa", weights="int8"))
    assert len(seen) == 1 and len(seen[0]) > 15


def test_the_report_says_int8_wherever_it_says_exact(load_int8):
    model = load_int8("tiny")
    synthesizer = Synthesizer(model)
    line = Line("One.", preset_voice(model, "ryan"))
    said = {}
    for groups in (15, 5):
        options = GenerateOptions(groups, Sampling(max_new_tokens=4))
        said[groups] = describe(model, render_lines(synthesizer, [line], options), options, 1.0)
    assert all("float32, int8 weights, sdpa, cpu, 0.00" in report for report in said.values())
    assert "SEQ_GROUPS 15 (exact but for its int8 weights)" in said[15]
    assert said[5].count("int8 weights, which are approximate at 15 too)") == 1


def test_whether_kernels_run_does_not_depend_on_int8(load_int8, load):
    said = []
    for model in (load_int8("tiny"), load("tiny", "custom_voice")):
        frames = FrameBackend()
        frames.choose(Weights.of(model))
        said.append(frames.fallback)
    assert said[0] == said[1]
