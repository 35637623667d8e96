"""When functions are called, captured and replayed. CUDA's own calls are mocked and recorded."""

import logging
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from qwen3_tts_morph.morph.runtime.capture import (
    CapturedGraphs,
    CaptureStream,
    Fallback,
    graphs_keep_memory,
    next_power_of_2,
    previous_power_of_2,
)


@pytest.fixture
def cuda(monkeypatch) -> list[str]:
    notes: list[str] = []

    class Stream:
        def __init__(self, *_: object, priority: int = 0) -> None:
            self.priority, self.device = priority, torch.device("cuda")

        def wait_stream(self, _: object) -> None:
            notes.append("wait")

    class Graph:
        def replay(self) -> None:
            notes.append("replay")

    @contextmanager
    def within(*_: object, **__: object):
        yield

    @contextmanager
    def capture(graph: Graph, pool: object, stream: Stream, capture_error_mode: str):
        assert capture_error_mode == "thread_local"
        notes.append("capture")
        yield

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: notes.append("synchronize"))
    return notes


def test_each_key_is_called_then_captured_then_replayed(cuda):
    replays, calls = CapturedGraphs(torch.device("cuda")), []
    for key in ("a", "a", "a", "b", "b"):
        replays.run(key, lambda key=key: calls.append(key))
    assert calls == ["a", "a", "b", "b"]
    assert cuda == ["wait", "wait", "capture", "replay", "replay", "wait", "wait", "capture", "replay"]
    assert replays.fallback is None


def test_some_kernels_go_before_others_that_run_beside_them(cuda):
    first, other = CaptureStream(urgent=True), CaptureStream()
    device = torch.device("cuda")
    assert first.on(device).priority < other.on(device).priority == 0, "torch's lower numbers go first"
    assert first.on(device) is first.on(device) and first.on(device) is not other.on(device)
    assert CaptureStream(warm_ups=first.warm_ups).warm_ups is first.warm_ups


def test_forgotten_graphs_are_captured_again_after_the_device_has_finished(cuda):
    replays, calls = CapturedGraphs(torch.device("cuda")), []
    for _ in range(3):
        replays.run("a", lambda: calls.append("old"))
    replays.forget()
    assert cuda[-1] == "synchronize"
    replays.run("a", lambda: calls.append("new"))
    assert calls == ["old", "old", "new"]


def test_a_failed_capture_is_logged_once_and_later_calls_are_direct(cuda, monkeypatch, caplog):
    def refuse() -> None:
        raise RuntimeError("this allocator cannot be captured\nmore words")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", refuse)
    replays, calls = CapturedGraphs(torch.device("cuda")), []
    with caplog.at_level(logging.WARNING):
        for key in ("a", "b", "a", "b", "b"):
            replays.run(key, lambda key=key: calls.append(key))
    assert calls == ["a", "b", "a", "b", "b"]
    assert [record.message for record in caplog.records] == [
        "CUDA graphs cannot be captured here (this allocator cannot be captured): frames run op by op, slower"
    ]
    assert replays.fallback == Fallback("CUDA graphs", "this allocator cannot be captured")


def test_full_memory_does_not_stop_capturing(cuda, monkeypatch):
    replays, calls = CapturedGraphs(torch.device("cuda")), []

    def work(full: bool = False) -> None:
        calls.append(full)
        if full:
            raise torch.cuda.OutOfMemoryError

    replays.run("a", work)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        replays.run("a", lambda: work(full=True))
    replays.run("a", work)
    assert replays.fallback is None and cuda[-1] == "replay"


def test_what_is_prepared_is_captured_once(cuda):
    replays, calls = CapturedGraphs(torch.device("cuda")), []

    def call() -> None:
        replays.run("a", lambda: calls.append(1))

    replays.prepare("a", call)
    assert replays.has("a") and len(calls) == 2, "direct, then captured"
    done = list(cuda)
    replays.prepare("a", call)
    assert cuda == done and done.count("capture") == 1
    CapturedGraphs(torch.device("cpu")).prepare("a", lambda: pytest.fail("nothing is captured on a CPU"))


def test_a_first_call_that_fails_is_repeated_as_the_first(cuda):
    replays, calls = CapturedGraphs(torch.device("cuda")), []

    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        replays.run("a", fail)
    replays.run("a", lambda: calls.append(1))
    assert calls == [1] and "capture" not in cuda


@pytest.mark.parametrize(("backend", "keep"), [("native", False), ("cudaMallocAsync", True)])
def test_graphs_keep_memory_under_cuda_malloc_async(monkeypatch, backend, keep):
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: backend)
    assert graphs_keep_memory(torch.device("cuda")) is keep
    assert not graphs_keep_memory(torch.device("cpu"))


def test_temporary_memory_is_not_kept_by_graphs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    replays, calls = CapturedGraphs(torch.device("cuda"), temporary=True), []
    for _ in range(4):
        replays.run("a", lambda: calls.append(1))
    assert len(calls) == 4 and not replays.lacks("a")


def test_without_cuda_every_call_is_direct():
    replays, calls = CapturedGraphs(torch.device("cpu")), []
    for _ in range(4):
        replays.run("a", lambda: calls.append(1))
    replays.forget()
    assert len(calls) == 4 and replays.fallback == Fallback("CUDA graphs", "no CUDA")


def test_first_calls_and_captures_are_counted_and_named_if_they_come_late(cuda, caplog):
    stream = CaptureStream()
    replays, first = CapturedGraphs(torch.device("cuda"), stream), stream.warm_ups
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            replays.run(("frame", 5, 256), lambda: None)
        assert (first.captures, first.late) == (1, 0) and first.seconds > 0
        first.is_settled = True
        for _ in range(3):
            replays.run(("prefill", 4, 128), lambda: None)
            replays.run(("frame", 5, 256), lambda: None)
    assert (first.captures, first.late) == (2, 2)
    said = [record.getMessage().rpartition(":")[0] for record in caplog.records]
    assert said == [
        "prefill 4 128 was run for the first time while lines may wait",
        "prefill 4 128 was captured while lines may wait",
    ]


def test_what_is_planned_is_captured_bit_by_bit_by_need_and_is_not_late(cuda, caplog):
    stream = CaptureStream()
    replays, first, calls = CapturedGraphs(torch.device("cuda"), stream), stream.warm_ups, []

    def call(key: str) -> None:
        replays.run(key, lambda: calls.append(key))

    for need, key in ((2, "long"), (1, "wide"), (1, "asked"), (2, "long")):
        replays.plan(need, key, partial(call, key))
    first.is_settled = True
    assert first.prepare_next() and calls == ["wide"] and (first.captures, first.planned) == (0, 3)
    for _ in range(2):
        call("asked")
    assert first.late == 2 and (first.captures, first.planned) == (1, 3), "a line needed it before"
    while first.prepare_next():
        pass
    assert calls == ["wide", "asked", "asked", "wide", "long", "long"]
    assert first.late == 2 and (first.captures, first.planned) == (3, 3)


def test_a_planned_call_that_fails_is_not_repeated_and_forgotten_graphs_have_no_plan(cuda):
    stream = CaptureStream()
    replays, first = CapturedGraphs(torch.device("cuda"), stream), stream.warm_ups
    replays.plan(0, "a", lambda: 1 / 0)
    replays.plan(0, "b", lambda: pytest.fail("its graphs are released"))
    with pytest.raises(ZeroDivisionError):
        first.prepare_next()
    replays.forget()
    assert not first.prepare_next() and first.planned == 0


def test_a_fallback_says_what_runs_instead_and_why():
    assert Fallback("CUDA graphs", "no CUDA").describe() == "op by op, without CUDA graphs: no CUDA"


def test_powers_of_two_next_to_a_count():
    counts = (0, 1, 2, 3, 4, 5, 63, 64, 65)
    assert [next_power_of_2(count) for count in counts] == [0, 1, 2, 4, 4, 8, 64, 64, 128]
    assert [previous_power_of_2(count) for count in counts] == [0, 1, 2, 2, 4, 4, 32, 64, 64]
