"""Kernels that fail in a frame: one warning, the same codes, and no second attempt."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.decode.rows import RowPlan
from qwen3_tts_morph.morph.frame.step import decode_frame as torch_frame
from qwen3_tts_morph.morph.frame.step import prefill_all
from qwen3_tts_morph.morph.graph import backend as fused
from qwen3_tts_morph.morph.graph import engine as graph
from qwen3_tts_morph.morph.graph.backend import FrameBackend
from qwen3_tts_morph.morph.graph.engine import pad_single
from qwen3_tts_morph.morph.graph.pool import DecoderPool
from qwen3_tts_morph.morph.kernels import torch_passes
from qwen3_tts_morph.morph.model.layers import TORCH_OPS, LayerOps
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.runtime.capture import CapturedGraphs, Fallback

from tests.morph.decoding import (
    SEEDS,
    GraphDecoder,
    assert_equal,
    decode_graphs,
    graph_lines,
    guards_of,
    line_requests,
    prompts_of,
)
from tests.morph.recorded import AsOnGpu


class OutOfResources(Exception):
    """Triton's own errors are not RuntimeErrors."""


class Kernels:
    """Replaces the kernels' ``decode_frame``: makes ``good`` frames, then corrupts the state and fails."""

    def __init__(self, error: Exception, good: int = 0):
        self.error, self.good, self.calls = error, good, 0

    def __call__(self, weights, slots, seq_groups, window):
        self.calls += 1
        if self.calls > self.good:
            for part in vars(slots.state).values():
                part.fill_(1)
            raise self.error
        torch_frame(weights, slots, seq_groups, window)


def decode(model, engine: GraphDecoder):
    prompts = prompts_of(model)
    return engine.decode(model, line_requests(prompts, seeds=SEEDS), GenerateOptions(5, Sampling()))


@pytest.fixture
def wanted(model):
    return graph_lines(model, prompts_of(model), 5, Sampling(), SEEDS)


def use(monkeypatch, kernels: Kernels, ops: LayerOps = TORCH_OPS) -> None:
    passes = replace(torch_passes(), decode=kernels, ops=ops)
    monkeypatch.setattr(fused, "choose_frame", lambda weights: (passes, None))


def test_a_kernel_that_fails_is_logged_once_and_no_frame_is_lost(model, wanted, monkeypatch, caplog):
    kernels = Kernels(OutOfResources("out of resource: shared memory\nmore words"))
    use(monkeypatch, kernels)
    engine = GraphDecoder(4)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert_equal(decode(model, engine), wanted)
    assert kernels.calls == 1
    assert [record.message for record in caplog.records] == [
        "Triton kernels cannot run here (OutOfResources: out of resource: shared memory): "
        "frames run in torch operations, slower"
    ]
    assert engine.frames.fallback_on(model.device).describe() == (
        "torch operations: OutOfResources: out of resource: shared memory"
    )


class PromptKernels(LayerOps):
    """Replaces a prefill's kernels: counts their calls, and fails after ``good`` of them."""

    def __init__(self, error: Exception, good: int = 0):
        self.error, self.good, self.calls = error, good, 0

    def gate(self, gate_up):
        self.calls += 1
        if self.calls > self.good:
            raise self.error
        return super().gate(gate_up)


def test_a_prefill_whose_kernel_fails_is_repeated_in_torch_operations(model, wanted, monkeypatch, caplog):
    kernels, ops = (
        Kernels(OutOfResources("no"), good=10**6),
        PromptKernels(OutOfResources("no ptxas"), good=1),
    )
    use(monkeypatch, kernels, ops)
    engine = GraphDecoder(4)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert_equal(decode(model, engine), wanted)
    assert (ops.calls, kernels.calls) == (2, 0)
    assert [record.message for record in caplog.records] == [
        "Triton kernels cannot run here (OutOfResources: no ptxas): frames run in torch operations, slower"
    ]


@pytest.mark.parametrize("captured, used", [(True, False), (False, True)])
def test_a_graph_that_owns_its_temporaries_has_no_prefill_kernels(model, monkeypatch, captured, used):
    """Triton refuses such memory; prefills that are not captured may use kernels."""
    monkeypatch.setattr(fused, "graphs_keep_memory", lambda device: True)
    monkeypatch.setattr(graph, "LARGEST_CAPTURED_PREFILL", 10**6 if captured else 0)
    monkeypatch.setattr(graph, "CapturedGraphs", AsOnGpu)
    ops = PromptKernels(OutOfResources("no"), good=10**6)
    use(monkeypatch, Kernels(OutOfResources("no"), good=10**6), ops)
    prompts = prompts_of(model)[:1]
    GraphDecoder(1).decode(model, line_requests(prompts, guards_of(prompts), SEEDS[:1]), GenerateOptions(5, Sampling()))
    assert bool(ops.calls) is used


class ShortPrompts:
    """Replaces the kernels of a single line's short prompt: notes their lengths, and fails after ``good`` of them."""

    def __init__(self, good: int = 10**6):
        self.good, self.lengths = good, []

    def __call__(self, weights, slots, arrivals):
        self.lengths.append(arrivals.embeds.shape[1])
        if len(self.lengths) > self.good:
            slots.state.hidden.fill_(1)
            raise OutOfResources("no ptxas")
        prefill_all(weights, slots, arrivals)


@pytest.mark.parametrize("keeps", [False, True], ids=["", "graphs own their temporaries"])
@pytest.mark.parametrize("good", [10**6, 0], ids=["runs", "fails"])
def test_a_single_lines_short_prompt_has_its_own_kernels(model, monkeypatch, keeps, good):
    """They need no memory of a graph. If they fail, the prompt runs again in torch operations."""
    prompts, short = prompts_of(model)[:1], ShortPrompts(good)
    lines = lambda: line_requests(prompts, guards_of(prompts), SEEDS[:1])  # noqa: E731
    options = GenerateOptions(5, Sampling())
    wanted = GraphDecoder(1).decode(model, lines(), options)
    monkeypatch.setattr(fused, "graphs_keep_memory", lambda device: keeps)
    monkeypatch.setattr(graph, "CapturedGraphs", AsOnGpu)
    passes = replace(torch_passes(), prompt=short)
    monkeypatch.setattr(fused, "choose_frame", lambda weights: (passes, None))
    engine = GraphDecoder(1)
    for _ in range(2):
        assert_equal(engine.decode(model, lines(), options), wanted)
    assert short.lengths == [pad_single(len(prompts[0].embeds))] * (2 if good else 1)
    assert (engine.frames.fallback is None) == (good > 0)


def test_short_prompts_are_padded_to_few_lengths():
    lengths = [pad_single(positions) for positions in (1, 16, 17, 32, 33, 64, 65, 128, 129)]
    assert lengths == [16, 16, 32, 32, 64, 64, 128, 128, 192]


def test_a_prefill_out_of_memory_does_not_disable_the_kernels(model, monkeypatch):
    use(monkeypatch, Kernels(OutOfResources("no")), PromptKernels(torch.cuda.OutOfMemoryError("full")))
    engine = GraphDecoder(4)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        decode(model, engine)
    assert engine.frames.fallback is None


def test_failures_are_remembered_after_the_engine_is_freed(model, monkeypatch):
    kernels = Kernels(OutOfResources("no"))
    use(monkeypatch, kernels)
    engines = DecoderPool()
    prompts = prompts_of(model)[:1]
    options = GenerateOptions(5, Sampling(), 1)
    for _ in range(2):
        requests = line_requests(prompts, guards_of(prompts), [1])
        decode_graphs(engines.decoder(model, RowPlan.of_lines(requests, 1)), model, requests, options)
        engines.free()
    assert kernels.calls == 1


def test_kernels_are_not_looked_up_when_they_are_off(model, wanted, monkeypatch):
    monkeypatch.setattr(fused, "choose_frame", lambda weights: pytest.fail("looked for"))
    engine = GraphDecoder(4, frames=FrameBackend(kernels=False))
    assert_equal(decode(model, engine), wanted)


def test_kernels_that_cannot_be_captured_are_replaced_by_torch_operations(model, wanted, monkeypatch, caplog):
    """The first call works and the capture fails; then the engine captures again, without kernels."""
    made: list[Captures] = []

    class Captures(CapturedGraphs):
        """Captures by calling; fails as CUDA would if a kernel cannot be captured."""

        def __init__(self, *given):
            super().__init__(*given)
            self.fallback = None
            self.captured: list[object] = []
            self._seen: set[object] = set()
            made.append(self)

        def forget(self):
            self._seen.clear()

        def run(self, key, function):
            if self.fallback is None and key in self._seen and key not in self.captured:
                if key[0] == "frame" and engine.frames.fallback is None:
                    self.fallback = Fallback("CUDA graphs", "not permitted")
                self.captured.append(key)
            self._seen.add(key)
            function()

    monkeypatch.setattr(graph, "CapturedGraphs", Captures)
    use(monkeypatch, Kernels(OutOfResources("no"), good=10**6))
    engine = GraphDecoder(4)
    with caplog.at_level(logging.WARNING):
        assert_equal(decode(model, engine), wanted)
    assert engine.frames.fallback.why == "a graph of them could not be captured: not permitted"
    assert len(made) == 2 and made[1].fallback is None and made[1].captured
    assert engine.fallback is None and len(caplog.records) == 1


def test_an_error_in_a_capture_is_a_runtime_error(model, monkeypatch):
    """``CapturedGraphs`` catches only RuntimeErrors of a capture."""
    use(monkeypatch, Kernels(OutOfResources("out of resource"), good=1))
    with pytest.raises(RuntimeError, match="OutOfResources: out of resource"):
        decode(model, GraphDecoder(4))
