"""Adaptive SEQ_GROUPS: independent stopping of lines, the arithmetic of a calibration, and one calibration per run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.sampling import line_streams
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import TokenSampling
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import clone_voice

from lab.benchmarks.quality import calibrating
from lab.benchmarks.quality.adaptive import AdaptivePredictor, calibrate, choose_target
from lab.benchmarks.quality.calibrating import calibrate_conditions
from lab.benchmarks.quality.distance import trace_lines
from lab.benchmarks.quality.folder import RunFolder
from lab.benchmarks.quality.lines import assign_voices
from lab.benchmarks.quality.lossless import Tally
from lab.benchmarks.quality.registry import STRATEGIES
from lab.benchmarks.quality.speak import Speaker
from lab.benchmarks.quality.strategies import Condition

GREEDY = TokenSampling(do_sample=False)
SAMPLED = TokenSampling(temperature=0.8, top_k=20)
BATCH = 12


@pytest.fixture(scope="module")
def frame(model: Model) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the talker's states ``[B, 1, H]`` and group 0's tokens ``[B, 1]``."""
    generator = torch.Generator().manual_seed(9)
    hidden = torch.randn(BATCH, 1, model.width, generator=generator)
    return hidden, torch.randint(64, (BATCH, 1), generator=generator)


@torch.inference_mode()
def decode(
    model: Model,
    frame,
    predictor: Predictor,
    seq_groups: int = 1,
    sampling: TokenSampling = GREEDY,
    rows=slice(None),
) -> torch.Tensor:
    """Return codes of some of the frame's lines, each with its own random stream."""
    hidden, tokens = frame
    embedding = model.talker.get_input_embeddings()(tokens[rows])
    streams = line_streams(range(BATCH)[rows], model.device)
    return predictor.decode_frame(hidden[rows], embedding, seq_groups, sampling, streams)


@pytest.fixture(scope="module")
def calibrated(model: Model, frame):
    """Return the calibration on the frame's exact codes, and the shares it expects."""
    exact = decode(model, frame, Predictor(model.talker.code_predictor), 15)
    return calibrate(model, frame[0], torch.cat((frame[1], exact), dim=1), SAMPLED)


def test_target_0_takes_one_pass_and_target_1_takes_15(model: Model, frame, calibrated) -> None:
    module = model.talker.code_predictor
    for target, groups in ((0.0, 1), (1.0, 15)):
        adaptive = AdaptivePredictor(module, calibrated[0], target)
        codes = decode(model, frame, adaptive)
        assert torch.equal(codes, decode(model, frame, Predictor(module), groups))
        assert adaptive.tally.mean_passes == groups
    with pytest.raises(ValueError, match="choose 0 to 1"):
        AdaptivePredictor(module, calibrated[0], 1.5)


def test_each_line_stops_independently_of_its_batch(model: Model, frame, calibrated) -> None:
    """Alone, a line equals the product's crossbar after the same number of groups; a batch takes the maximum."""
    module, (calibration, shares) = model.talker.code_predictor, calibrated
    together = AdaptivePredictor(module, calibration, choose_target(shares, 6))
    codes, passes = decode(model, frame, together, sampling=SAMPLED), []
    for row in range(BATCH):
        rows = slice(row, row + 1)
        alone = AdaptivePredictor(module, calibration, together.target)
        assert torch.equal(decode(model, frame, alone, sampling=SAMPLED, rows=rows), codes[rows])
        passes.append(alone.tally.passes)
        same = decode(model, frame, Predictor(module), passes[-1], SAMPLED, rows)
        assert torch.equal(same, codes[rows])
    assert len(set(passes)) > 1 and together.tally == Tally(frames=1, passes=max(passes))


def test_15_groups_are_exact_whatever_the_target(model: Model, frame, calibrated) -> None:
    module = model.talker.code_predictor
    adaptive = AdaptivePredictor(module, calibrated[0], 0.0)
    codes = decode(model, frame, adaptive, 15, SAMPLED)
    assert torch.equal(codes, decode(model, frame, Predictor(module), 15, SAMPLED))
    assert adaptive.tally.passes == 15


def test_the_target_yields_the_requested_mean_of_passes() -> None:
    shares = torch.linspace(0.05, 0.95, 14).expand(3, -1)
    for groups in (1, 4, 9, 15):
        target = choose_target(shares, groups)
        assert int((shares[0] < target).sum()) + 1 == groups


@torch.inference_mode()
def test_a_calibration_expects_on_average_what_the_frames_would_accept(model: Model, frame) -> None:
    """Acceptance is 1 minus the total variation distance; least squares preserves its mean."""
    module, (hidden, tokens) = model.talker.code_predictor, frame
    codes = torch.cat((tokens, decode(model, frame, Predictor(module), 15)), dim=1)
    calibration, shares = calibrate(model, hidden, codes, SAMPLED)
    rest = model.code_tables()[torch.arange(14), codes[:, 1:-1]]
    inputs = torch.cat((model.talker.get_input_embeddings()(tokens), rest), dim=1)
    states, heads = Predictor(module).teacher_force(hidden, inputs), Predictor(module).heads
    for seq_groups in (1, 7, 14):
        accepted = torch.full((BATCH,), float(seq_groups))
        for group in range(seq_groups, 15):
            pair = [heads[group] @ states[:, at].T for at in (seq_groups - 1, group)]
            drafted, exact = (top20(logits.T) for logits in pair)
            accepted += torch.minimum(drafted, exact).sum(-1)
        assert shares[:, seq_groups - 1].mean() == pytest.approx(accepted.mean().item() / 15, abs=0.01)
    assert calibration.slope.shape == (15, 15)


def top20(logits: torch.Tensor) -> torch.Tensor:
    """Return the distribution that SAMPLED samples from."""
    scaled = logits / 0.8
    return scaled.masked_fill(scaled < scaled.topk(20).values[:, -1:], -torch.inf).softmax(-1)


@pytest.fixture(scope="module")
def speaker(model: Model) -> Speaker:
    """Return lines in a voice cloned from a tone, more than a calibration uses."""
    tone = (0.3 * np.sin(np.arange(48000) / 20)).astype(np.float32)
    voices = {"tone": clone_voice(model, tone, 24000)}
    tasks = assign_voices([f"This is line {number}." for number in range(10)], ["tone"], 5)
    return Speaker.prepare(Synthesizer(model), tasks, voices, "auto", model.sampling)


@pytest.mark.parametrize("seq_groups", [4, 9])
@pytest.mark.slow
def test_a_run_calibrates_to_the_requested_mean_of_passes(
    speaker: Speaker, tmp_path: Path, seq_groups: int
) -> None:
    """Frames are decoded again, one at a time, from the states it was calibrated on."""
    [ready] = calibrate_conditions(
        speaker, RunFolder(tmp_path), [Condition(STRATEGIES["adaptive"], seq_groups)]
    )
    assert ready.key == f"adaptive-{seq_groups:02}"
    model, decode = speaker.model, ready.strategy.start(speaker.model, ready.seq_groups)
    traces = trace_lines(speaker, range(2, 10))
    assert json.loads((tmp_path / "calibration.json").read_text())["frames"] == sum(
        len(trace.codes) for trace in traces
    )
    random = torch.Generator().manual_seed(1)
    for trace in traces:
        embeddings = model.talker.get_input_embeddings()(trace.codes[:, :1])
        for hidden, embedding in zip(trace.hidden, embeddings, strict=True):
            with torch.inference_mode():
                decode.predictor.decode_frame(
                    hidden[None], embedding[None], 1, model.sampling.subtalker, random
                )
    assert decode.predictor.tally.mean_passes == pytest.approx(seq_groups, abs=1)


def test_a_run_calibrates_once_and_only_for_strategies_that_need_it(
    speaker: Speaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, crossbar_5 = RunFolder(tmp_path), Condition(STRATEGIES["crossbar"], 5)
    assert calibrate_conditions(speaker, folder, [crossbar_5]) == [crossbar_5] and not list(
        tmp_path.iterdir()
    )
    adaptive = Condition(STRATEGIES["adaptive"], 5)
    with pytest.raises(ValueError, match="calibrated on exact lines first"):
        adaptive.strategy.start(speaker.model, 5)
    kept, first = calibrate_conditions(speaker, folder, [crossbar_5, adaptive])
    assert kept is crossbar_5
    monkeypatch.setattr(calibrating, "trace_lines", None)
    [again] = calibrate_conditions(speaker, folder, [adaptive])
    one, other = (each.strategy.start(speaker.model, 5).predictor for each in (first, again))
    assert one.target == other.target and torch.equal(one.calibration.slope, other.calibration.slope)
