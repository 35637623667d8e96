"""The kernel that asks the alignment head, compared with torch operations."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

from qwen3_tts_morph.morph.kernels.alignment import BLOCK, probe_alignment
from qwen3_tts_morph.morph.kernels.attention.launch import AttentionInputs
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.kernels.states import CacheSpan
from qwen3_tts_morph.morph.model.layers import TORCH_OPS, AlignmentProbe, LayerPass
from qwen3_tts_morph.morph.model.static_cache import StaticCache, StepView
from qwen3_tts_morph.morph.words.alignment import NO_TOKEN
from qwen3_tts_morph.morph.words.head import AlignmentHead

from tests.morph.kernels.said import same_said
from tests.morph.kernels.test_prefill import angles_of, noise, stack_of

LINES = {  # position that is measured, first text token, number of tokens
    "text before it": (40, 5, 12),
    "text up to it": (40, 30, 11),
    "text that goes on": (17, 10, 40),
    "no token yet": (9, 10, 3),
    "no text": (20, 0, 0),
    "the first position": (0, 0, 5),
    "two blocks": (BLOCK + 60, BLOCK - 3, 9),
    "three blocks": (2 * BLOCK + 3, 3, 2 * BLOCK),
    "beyond the window": (1000, 7, 90),
}


def probe_of(device, head: AlignmentHead, out: torch.Tensor, before: torch.Tensor | None = None) -> AlignmentProbe:
    """Return what is measured of all LINES."""
    lines = torch.tensor(list(LINES.values()), device=device)
    return AlignmentProbe(head, lines[:, 1:], lines[:, 0].contiguous(), out, before)


def measured(device, probe: AlignmentProbe, dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what torch operations and the kernel say of one new position of each line."""
    lines, window = len(probe.positions), 3 * BLOCK
    stack = replace(stack_of(4, 2, 16, noise(device, 8)), qk_norms=noise(device, 1, 2, 16).abs(), layers=(None,))
    qkv = noise(device, lines, 1, 8, 16, dtype=dtype) * 3
    cache = StaticCache.allocate((1, lines, 2, window, 16), qkv)
    cache.keys.copy_(noise(device, *cache.keys.shape))
    positions, angles = probe.positions.clamp(max=window - 1), angles_of(16, device, window)
    layer_pass = LayerPass(angles.at(positions), stack.head_norms(), StepView(cache, positions), probe)
    # It writes the newest keys, as the kernels' attention does.
    TORCH_OPS.attend(stack, layer_pass, 0, qkv.flatten(2))
    theirs = probe.out.clone()
    probe.out.fill_(7)
    span = CacheSpan(cache, angles, 1, window, positions=probe.positions, probe=probe)
    probe_alignment(Plan(), AttentionInputs(stack, 0, qkv.view(lines, -1), span))
    return theirs, probe.out


@pytest.mark.parametrize("head", [0, 3])
def test_each_lines_token_is_that_of_torch(device, head):
    numbers = torch.full((len(LINES), 5), 9, device=device)  # rows of which the answer is a part
    before = torch.zeros(len(LINES), 3, dtype=torch.int64, device=device)
    theirs, ours = measured(device, probe_of(device, AlignmentHead(0, head), numbers[:, 2:], before))
    same_said(ours, theirs)
    told = dict(zip(LINES, ours.tolist(), strict=True))
    assert told["no token yet"] == told["no text"] == [NO_TOKEN, 0, 0]
    assert all(answer[0] > 0 for name, answer in told.items() if name not in ("no token yet", "no text"))
    assert bool((numbers[:, :2] == 9).all()) and bool((before == 7).all()), "the answers before these are passed on"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_differs_by_its_rounding(device, dtype):
    out = torch.zeros(len(LINES), 3, dtype=torch.int64, device=device)
    theirs, ours = measured(device, probe_of(device, AlignmentHead(0, 2), out), dtype)
    assert torch.allclose(ours[:, 2].float(), theirs[:, 2].float(), rtol=0.05, atol=200)
    assert (ours[:, 0] == theirs[:, 0]).float().mean() > 0.6


def test_another_layer_is_not_asked(device):
    out = torch.zeros(len(LINES), 3, dtype=torch.int64, device=device)
    _, ours = measured(device, probe_of(device, AlignmentHead(1, 0), out))
    assert bool((ours == 7).all())
