"""Attention over the static cache, with its output projection, against float64."""

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

from qwen3_tts_morph.morph.kernels.attention.launch import AttentionInputs, attend, o_proj_split_k
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.kernels.states import CacheSpan, Residual
from qwen3_tts_morph.morph.model.layers import Angles, Layer, LayerStack
from qwen3_tts_morph.morph.model.static_cache import StaticCache

from tests.morph.pairwise import each_value, pairwise, thinned

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 6e-3 if torch.cuda.is_available() else 2e-2}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
HEADS = (4, 2, 16)  # query heads, key heads, columns of each
WIDTH = 72


class Case:
    """One layer, and a cache that is filled up to each line's position."""

    def __init__(
        self,
        device,
        dtype,
        lines: int,
        length: int,
        starts: list[int],
        capacity: int,
        heads: tuple[int, int, int] = HEADS,
    ):
        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).to(device)

        generator = torch.Generator().manual_seed(len(starts) + sum(starts))
        self.dtype, self.lines, self.length = dtype, lines, length
        self.heads, self.kv_heads, self.d = heads
        self.starts = torch.tensor(starts, device=device)
        out = (random(WIDTH, self.heads * self.d) / 8).to(dtype)
        unused = random(1).to(dtype)
        norms = (1 + 0.3 * random(1, 2, self.d)).to(dtype)
        post_norm = torch.ones(WIDTH, dtype=dtype, device=device)
        self.layer = Layer(unused, unused, out, post_norm, unused, unused)
        self.decoder = LayerStack((self.layer,), unused, 1e-6, *heads[:2], norms, self.d)
        self.cache = StaticCache(*random(2, 1, lines, self.kv_heads, capacity, self.d).to(dtype).unbind(0))
        angles = random(2, capacity, self.d)
        self.angles = Angles(angles[0], angles[1])
        self.qkv = random(lines * length, (self.heads + 2 * self.kv_heads) * self.d)
        self.residual = random(lines * length, WIDTH)

    def run(self, plan: Plan, window: int, per_line: bool) -> torch.Tensor:
        """The residual stream after attention, its partials added up."""
        stream = Residual.empty(plan, self.lines * self.length, self.layer.post_norm)
        stream.values.copy_(self.residual)
        span = CacheSpan(
            self.cache,
            self.angles,
            self.length,
            window,
            int(self.starts[0]),
            self.starts if per_line else None,
        )
        partials = attend(plan, AttentionInputs(self.decoder, 0, self.qkv, span), stream)
        return stream.values if partials is None else stream.values + partials.float().sum(0)

    def wanted(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The same in float64, and the cache as it must be afterwards."""
        heads, kv_heads = self.heads, self.kv_heads
        keys, values = self.cache.keys.double().clone(), self.cache.values.double().clone()
        vectors = self.qkv.double().view(self.lines, self.length, -1, self.d)
        result = self.residual.double().clone().view(self.lines, self.length, WIDTH)
        for line, start in enumerate(self.starts.tolist()):
            for step in range(self.length):
                turned = self._turned(vectors[line, step, : heads + kv_heads], start + step)
                keys[0, line, :, start + step] = turned[heads:].to(self.dtype)
                values[0, line, :, start + step] = vectors[line, step, heads + kv_heads :].to(self.dtype)
                seen_keys = keys[0, line, :, : start + step + 1].repeat_interleave(heads // kv_heads, 0)
                seen_values = values[0, line, :, : start + step + 1].repeat_interleave(heads // kv_heads, 0)
                weights = torch.softmax(torch.einsum("hd,hnd->hn", turned[:heads], seen_keys) * self.d**-0.5, -1)
                mean = torch.einsum("hn,hnd->hd", weights, seen_values).flatten()
                result[line, step] += self.layer.out.double() @ mean
        return result.flatten(0, 1), keys, values

    def _turned(self, heads: torch.Tensor, position: int) -> torch.Tensor:
        gains = self.decoder.qk_norms[0].double()
        gains = torch.cat((gains[:1].expand(self.heads, -1), gains[1:].expand(self.kv_heads, -1)))
        normed = heads * (heads.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gains
        cos, sin = self.angles.cos[position].double(), self.angles.sin[position].double()
        return normed * cos + normed.roll(self.d // 2, dims=-1) * sin


def check(case: Case, plan: Plan, window: int, per_line: bool) -> None:
    wanted, keys, values = case.wanted()
    result = case.run(plan, window, per_line)
    tolerance = TOLERANCE.get(case.dtype, TOLERANCE[torch.bfloat16])
    assert (result.double() - wanted).norm() / (wanted - case.residual.double()).norm() < tolerance
    assert (case.cache.keys.double() - keys).norm() / keys.norm() < tolerance
    assert (case.cache.values.double() - values).norm() / values.norm() < tolerance


@pytest.mark.parametrize(
    ("positions", "lines", "dtype"),
    thinned(
        pairwise(
            {f"{start} of {length}": (start, length) for start, length in ((0, 2), (2, 1), (7, 1), (14, 1), (15, 1))},
            {f"{lines} lines": lines for lines in (1, 2, 3, 5)},
            DTYPES,
        ),
        5,
    ),
)
def test_a_frames_positions(device, positions, lines, dtype):
    start, length = positions
    case = Case(device, dtype, lines, length, [start] * lines, 24)
    check(case, Plan(), start + length, per_line=False)


@pytest.mark.parametrize(
    ("position", "plan", "dtype"),
    thinned(
        pairwise(
            {str(position): position for position in (0, 15, 16, 63, 100, 127)},
            {
                "default": Plan(),
                "8 warps": Plan(line_splits=1, line_positions=16, o_proj_split_k=1),
                "4 splits": Plan(line_splits=4, line_positions=4, o_proj_split_k=4),
                "4 splits of attend_split": Plan(line_splits=0, max_splits=4, split_block=16, unsplit_window=0),
                "no split": Plan(line_splits=0, max_splits=1),
            },
            DTYPES,
        ),
        6,
    ),
)
def test_one_long_line(device, position, plan, dtype):
    check(Case(device, dtype, 1, 1, [position], 144), plan, 128, per_line=True)


@pytest.mark.parametrize(
    "heads",
    [(6, 3, 16), *(pytest.param(case, marks=pytest.mark.slow) for case in ((12, 6, 16), (3, 3, 32)))],
    ids=str,
)
def test_number_of_heads_is_not_a_power_of_two(device, heads):
    """The demo voice's talker has six."""
    check(Case(device, torch.float32, 1, 1, [100], 144, heads), Plan(), 128, per_line=True)


def test_each_split_of_a_long_lines_output_projection_has_a_power_of_two_of_heads():
    plan = Plan(o_proj_split_k=4)
    split_k = {heads: o_proj_split_k(plan, heads, 64) for heads in (1, 2, 3, 6, 8, 12, 16, 24)}
    assert split_k == {1: 1, 2: 2, 3: 3, 6: 6, 8: 4, 12: 6, 16: 4, 24: 6}


@pytest.mark.parametrize(
    ("plan", "dtype"),
    each_value(
        {
            "batch": Plan(max_splits=1),
            "batch, 2 positions per warp": Plan(max_splits=1, batch_positions=2),
            "two splits": Plan(max_splits=2, split_block=16, unsplit_window=0),
            "split": Plan(max_splits=4, split_block=16, unsplit_window=0),
        },
        DTYPES,
    ),
)
def test_lines_at_different_positions(device, plan, dtype):
    check(Case(device, dtype, 5, 1, [0, 127, 15, 16, 33], 128), plan, 128, per_line=True)


@pytest.mark.parametrize(
    ("heads", "per_line", "dtype"),
    each_value(
        {str(heads): heads for heads in ((2, 2, 128), (4, 2, 128), (4, 1, 64), (2, 1, 32))},
        {"long": True, "short": False},
        {**DTYPES, "fp16": torch.float16},
    ),
)
def test_heads_of_batches(device, heads, per_line, dtype):
    """attend_batch, with a position per line, or with a frame's few positions."""
    starts = [0, 31, 32, 64, 70] if per_line else [8] * 3
    case = Case(device, dtype, len(starts), 1, starts, 80, heads)
    check(case, Plan(max_splits=1), 72 if per_line else 9, per_line)


def test_the_cache_after_a_lines_end_does_not_matter(device):
    """Memory that was never written may hold anything."""
    case = Case(device, torch.bfloat16, 3, 1, [0, 21, 40], 64, (4, 2, 128))
    for line, start in enumerate(case.starts.tolist()):
        case.cache.keys[0, line, :, start:] = float("nan")
        case.cache.values[0, line, :, start:] = float("nan")
    wanted, _, _ = case.wanted()
    result = case.run(Plan(max_splits=1), 64, per_line=True)
    assert (result.double() - wanted).norm() / wanted.norm() < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("plan", [Plan(), Plan(split_block=16, unsplit_window=0)], ids=["batch", "split"])
def test_a_batch_beyond_the_window_writes_to_its_last_position(device, plan):
    case = Case(device, torch.float32, 3, 1, [31, 5, 31], 64)
    wanted, keys, _ = case.wanted()
    case.starts[::2] += 100
    result = case.run(plan, 32, per_line=True)
    assert torch.allclose(result.double(), wanted, atol=1e-5)
    assert torch.allclose(case.cache.keys.double(), keys, atol=1e-5)


def test_a_line_beyond_the_window_writes_to_its_last_position(device):
    case = Case(device, torch.float32, 1, 1, [31], 64)
    wanted, keys, _ = case.wanted()
    case.starts += 100
    result = case.run(Plan(split_block=16), 32, per_line=True)
    assert torch.allclose(result.double(), wanted, atol=1e-5)
    assert torch.allclose(case.cache.keys.double(), keys, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("length", "heads"), [(16, HEADS), (96, HEADS), (32, (2, 2, 32))])
def test_a_short_prompts_attention(device, dtype, length, heads):
    """Its positions are all new: the cache behind them is left as it was."""
    case = Case(device, DTYPES[dtype], 1, length, [0], 100, heads)
    check(case, Plan(), length, False)
