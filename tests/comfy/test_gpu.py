"""The graph engine in a real ComfyUI on a GPU: both allocators, /free, eviction, reload and cancel.

Runs only if ``COMFYUI_GPU`` names the shape of the random checkpoints: "0.6B" for meaningful figures, or "tiny".
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tests.comfy import graphs
from tests.comfy.graphs import Graph, node, samples, shown
from tests.comfy.server import ComfyError

if TYPE_CHECKING:
    from tests.comfy.server import ComfyServer, Result

SHAPE = os.environ.get("COMFYUI_GPU")
pytestmark = pytest.mark.skipif(not SHAPE, reason="not run: no GPU requested (set COMFYUI_GPU to a shape)")

NAMES = ("qwen-tts/first", "qwen-tts/second")
ALLOCATORS = ("--cuda-malloc", "--disable-cuda-malloc")  # the first is ComfyUI's default on most GPUs
REFUSED = "CUDA graphs cannot be captured here"
# Lines of a log that report an error.
CAUSE = re.compile(rf"{REFUSED}|cannot run here|^\s*what\(\)|^(?!sqlite3)[\w.]*(?:Error|Exception): ")
# Valid reasons for torch operations instead of Triton kernels: a property of the GPU or the machine.
NO_KERNELS = ("triton is not installed", "is too old for the kernels", "compute capability")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models folder that contains one random checkpoint under two names."""
    from lab.random_checkpoint import write_checkpoint

    models = tmp_path_factory.mktemp("gpu_models")
    first, second = (models / name for name in NAMES)
    write_checkpoint(first, SHAPE or "", "custom_voice", dtype=torch.bfloat16)
    shutil.copytree(first, second, copy_function=os.link)
    return models


@pytest.fixture(scope="module", params=ALLOCATORS)
def running(
    request: pytest.FixtureRequest,
    start_server: Callable[..., ComfyServer],
    tmp_path_factory: pytest.TempPathFactory,
    checkpoints: Path,
) -> Iterator[ComfyServer]:
    """A server on the GPU with one of the allocators."""
    base = tmp_path_factory.mktemp("comfy_gpu")
    (base / "models").symlink_to(checkpoints, target_is_directory=True)
    server = start_server(base, gpu=True, extra_args=[request.param])
    yield server
    server.stop()


@pytest.fixture
def server(running: ComfyServer) -> ComfyServer:
    """The server; fails if it has not survived the previous tests."""
    assert is_alive(running), said(running)
    return running


def is_alive(server: ComfyServer) -> bool:
    return server.process is not None and server.process.poll() is None


def said(server: ComfyServer) -> str:
    """Say in one line whether the server's process still runs, and which errors its log reports."""
    status = None if server.process is None else server.process.poll()
    state = "ComfyUI runs" if is_alive(server) else f"ComfyUI's process has ended with status {status}"
    causes = [line.strip() for line in server.log().splitlines() if CAUSE.search(line)]
    return f"{server.extra_args[-1]}: {state}; its log: {' | '.join(causes[-3:]) or 'nothing of note'}"


def speaking(name: str = NAMES[0], seed: int = 1, max_seconds: float = 2.0, **changes: Any) -> Graph:
    """Return a graph in which a preset voice speaks; its report is shown and its audio saved."""
    inputs = {
        "model": ["model", 0], "voice": ["voice", 0], "sampling": ["sampling", 0], "text": "And so they went on.",
        "language": "english", "seq_groups": 15, "seed": seed,
    }  # fmt: skip
    return {
        "model": node("MorphTTSLoadModel", checkpoint=name, precision="auto", attention="auto", engine="auto"),
        "voice": node("MorphTTSPresetVoice", model=["model", 0], speaker="ryan"),
        "sampling": graphs.sampling(max_seconds),
        "speech": node("MorphTTSGenerateSpeech", **(inputs | changes)),
        "file": node("SaveAudio", audio=["speech", 0], filename_prefix="speech"),
        "report": node("PreviewAny", source=["speech", 1]),
    }


def run(server: ComfyServer, graph: Graph, **options: Any) -> Result:
    result = follow(server, graph, **options)
    assert result.ok, f"{(result.error or {}).get('exception_message')} ({said(server)})"
    return result


def follow(server: ComfyServer, graph: Graph, **options: Any) -> Result:
    """Run a graph, whatever its result; if the server dies, fail the test with one line."""
    try:
        return server.run(graph, **options)
    except (ComfyError, OSError) as error:
        pytest.fail(f"{type(error).__name__}; {said(server)}", pytrace=False)


def taken(server: ComfyServer) -> float:
    """Return the GPU memory in use by all programs, in GB."""
    [device] = server.get("/system_stats")["devices"]
    return (device["vram_total"] - device["vram_free"]) / 1e9


def wait_for(condition: Callable[[], bool], seconds: float = 300) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.2)
    return condition()


def test_lines_are_replayed_and_a_seed_repeats_its_take(server: ComfyServer) -> None:
    # The first run is plain, the second captures a CUDA graph, the others replay it.
    takes = [run(server, speaking(seed=seed)) for seed in (1, 2, 3, 1)]
    report = shown(takes[-1], "report")
    print(f"\n{server.extra_args}: {report}")
    waves = [samples(take)[0] for take in takes]
    assert "engine: graph (CUDA; CUDA graphs; " in report, f"{report} ({said(server)})"
    assert "Triton kernels)" in report or any(reason in report for reason in NO_KERNELS), said(server)
    assert REFUSED not in server.log() and is_alive(server), said(server)
    assert np.abs(waves[0]).max() > 0.01 and not np.array_equal(waves[0], waves[1])
    assert waves[0].shape == waves[3].shape and np.allclose(waves[0], waves[3], atol=1e-3)


def test_free_releases_the_memory_and_the_next_run_loads_the_model_again(server: ComfyServer) -> None:
    server.free()
    time.sleep(2)
    empty = taken(server)
    first = run(server, speaking(seed=5))
    loaded = taken(server)
    server.free()
    assert wait_for(lambda: taken(server) < empty + 0.1 * (loaded - empty) + 0.2), (
        empty,
        loaded,
        taken(server),
    )
    print(f"\nGB in use: {empty:.2f} before, {loaded:.2f} with the model, {taken(server):.2f} after /free")
    again = server.run_freed(speaking(seed=5))
    assert again.ok and again.cached_nodes() == set()
    assert np.allclose(samples(first)[0], samples(again)[0], atol=1e-3)


def test_cancel_leaves_the_engine_usable(server: ComfyServer) -> None:
    before = run(server, speaking(seed=6))

    def cancel(kind: str, data: dict[str, Any]) -> None:
        if kind == "progress" and data["value"] > 20:
            server.interrupt()

    long = speaking(max_seconds=600.0, text="Go on and on. " * 200, seed=7, split_chars=40)
    result = follow(server, long, on_event=cancel)
    assert result.status == "execution_interrupted" and result.files == []
    after = run(server, speaking(seed=6, text="And so they went on. "))
    assert np.allclose(samples(before)[0], samples(after)[0], atol=1e-3)


def test_two_models_that_do_not_fit_together_take_turns(start_server, tmp_path, checkpoints, server) -> None:
    """A model's CUDA graphs are freed when it is evicted for the other model, and captured again when it returns."""
    (tmp_path / "models").symlink_to(checkpoints, target_is_directory=True)
    [device] = server.get("/system_stats")["devices"]
    wanted = samples(run(server, speaking(seed=8)))[0]
    server.free()
    time.sleep(2)
    free = server.get("/system_stats")["devices"][0]["vram_free"] / 1e9
    room = ["--reserve-vram", f"{max(0.0, free - 3.0) / 1.074:.1f}"]
    tight = start_server(tmp_path, gpu=True, extra_args=[server.extra_args[-1], *room])
    try:
        for name in NAMES * 2:
            wave = samples(run(tight, both(name)))[0]
            assert wave.shape == wanted.shape and np.allclose(wave, wanted, atol=1e-3)
        loads = tight.log().count("loaded completely")
        print(f"\n{device['name']}: {loads} loads of two models for four graphs that use both")
        assert loads > 2 or SHAPE == "tiny", "neither was evicted (only tiny models fit together)"
        assert "OutOfMemoryError" not in tight.log()
    finally:
        tight.stop()


def both(speaks: str) -> Graph:
    """Return a graph with both models, so that ComfyUI keeps both; ``speaks`` names the one under test."""
    graph = speaking(speaks, seed=8)
    other = next(name for name in NAMES if name != speaks)
    rest = {f"other_{key}": value for key, value in speaking(other, seed=9, max_seconds=0.3).items()}
    for value in rest.values():
        for key, source in value["inputs"].items():
            if isinstance(source, list):
                value["inputs"][key] = [f"other_{source[0]}", source[1]]
    return graph | rest
