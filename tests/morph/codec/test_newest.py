"""The convolutions of lines' newest frames give the samples of whole rows, whatever stands beside a line."""

import pytest
import torch
from qwen3_tts_morph.morph.codec import forward
from qwen3_tts_morph.morph.codec.forward import Slabs, TorchOps, convolve, convolve_newest
from qwen3_tts_morph.morph.codec.weights import CodecWeights

from tests.morph.codec_lines import FLOAT32_DB, signal_to_noise

LINES, CONTEXT, NEW = 3, 12, 5


@pytest.fixture
def weights(load):
    return CodecWeights.of(load("tiny", "base").codec.decoder)


@pytest.fixture
def frames(weights):
    """The transformer's outputs of three lines; the second one began four frames before its new ones."""
    torch.manual_seed(0)
    x = torch.randn(LINES, CONTEXT + NEW, len(weights.transformer.restore[0]))
    keep = torch.ones(LINES, CONTEXT + NEW, dtype=torch.bool)
    keep[1, : CONTEXT - 4] = False
    return x, keep


def alone(weights, x, keep) -> torch.Tensor:
    """One line as a row of its own, with a gap before it: its new frames' samples."""
    gap = weights.gap
    row = torch.cat((torch.zeros(gap, x.shape[1]), x.masked_fill(~keep[:, None], 0)))
    kept = torch.cat((torch.zeros(gap, dtype=torch.bool), keep))
    [wave] = convolve(weights, row, kept, TorchOps(), Slabs(len(row), 0))
    return wave[-NEW * weights.samples_per_frame :]


@pytest.mark.parametrize("slab", [1, 2 * NEW, 100])
def test_each_line_has_the_samples_that_it_has_alone(weights, frames, monkeypatch, slab):
    monkeypatch.setattr(forward, "SLAB_FRAMES", slab)
    with torch.inference_mode():
        wave = convolve_newest(weights, *(part.clone() for part in frames), TorchOps(), NEW)
        expected = [alone(weights, x, keep) for x, keep in zip(*frames, strict=True)]
    assert wave.shape == (LINES, NEW * weights.samples_per_frame)
    for line, ours in zip(expected, wave, strict=True):
        assert signal_to_noise(line.numpy(), ours.numpy()) > FLOAT32_DB


def test_a_neighbour_that_is_not_finite_is_not_heard(weights, frames):
    x, keep = frames
    broken = x.clone()
    broken[0] = torch.nan
    with torch.inference_mode():
        expected = convolve_newest(weights, x.clone(), keep, TorchOps(), NEW)
        wave = convolve_newest(weights, broken, keep, TorchOps(), NEW)
    assert wave[0].isnan().any() and torch.equal(wave[1:], expected[1:])


def test_the_context_is_as_long_as_it_must_be(weights, frames):
    """The oldest frame that samples depend on changes them; older ones do not."""
    x, keep = frames
    keep = torch.ones_like(keep)
    with torch.inference_mode():
        before = convolve_newest(weights, x.clone(), keep, TorchOps(), NEW)
        for age, differs in ((weights.context, True), (weights.context + 1, False)):
            other = x.clone()
            other[:, CONTEXT - age] += 1
            after = convolve_newest(weights, other, keep, TorchOps(), NEW)
            assert torch.equal(before, after) != differs
