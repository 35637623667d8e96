"""The table of the server: a dry run with both processes, and what the client hears."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")

import torch
from safetensors.torch import load_file

from lab.benchmarks import server, server_client
from lab.benchmarks.server import figures_of, mark_short
from lab.benchmarks.server_client import BYTES_PER_S, Answer
from lab.benchmarks.server_process import HEAD, prepare_checkpoint
from lab.random_checkpoint import write_checkpoint
from tests.lab.benchmarks.test_tables import rows_of

SECOND = bytes(BYTES_PER_S)
TINY_EOS = 64 + 102


@pytest.mark.slow
def test_the_table(tmp_path: Path) -> None:
    options = "--rates", "3", "--seconds", "1", "--seq-groups", "5", "--rows", "2"
    [row] = rows_of(server, tmp_path / "out", *options, "--checkpoints", str(tmp_path))
    assert (row["table"], row["rate"], row["rows"], row["seconds"]) == ("server", 3, 2, 1)
    assert row["lines"] >= 1 and row["lost"] == row["refused"] == 0
    assert row["health_p50_ms"] > 0 and 0 < row["p50_ms"] <= row["p95_ms"] <= row["most_ms"]
    assert row["rss_mib_begin"] > 50 and row["gpu_mib_begin"] is None
    assert row["late_captures"] == 0 and row["collection_most_ms"] >= 0


def test_a_random_checkpoint_cannot_sample_its_end(tmp_path: Path) -> None:
    checkpoint, voices = prepare_checkpoint(tmp_path, "tiny", preset=False)
    head = load_file(checkpoint / "model.safetensors")[HEAD]
    other = load_file(write_checkpoint(tmp_path / "other", "tiny", dtype=torch.bfloat16) / "model.safetensors")
    assert not head[TINY_EOS].any() and other[HEAD][TINY_EOS].any()
    other[HEAD][TINY_EOS] = 0
    assert torch.equal(head, other[HEAD])
    assert voices is not None and [path.name for path in voices.iterdir()] == ["ann.safetensors"]
    assert prepare_checkpoint(tmp_path, "tiny", preset=True)[1] is None


def test_an_answer_with_fewer_bytes_than_its_frames_is_lost() -> None:
    requests = [{"body": {"sampling": {"max_seconds": 1.0}}}] * 3
    lines = [{"error": "", "size": size, "first_s": 0.1, "audible_s": 0.15, "underruns": 0,
              "own_underruns": 0, "gap_s": 0, "late_s": 0}
             for size in (BYTES_PER_S, BYTES_PER_S - 2, 0)]  # fmt: skip
    lines[2]["error"] = "429 busy"
    mark_short(lines, requests)
    figures = figures_of({"lines": lines, "health_s": [], "ticks_late_s": [0.001] * 99 + [0.4]})
    assert (figures["lost"], figures["refused"], figures["p50_ms"]) == (2, 1, pytest.approx(100))
    assert figures["audible_p95_ms"] == pytest.approx(150)
    assert figures["health_p50_ms"] is None and figures["client_late_p95_ms"] == pytest.approx(1)
    assert figures["client_late_most_ms"] == pytest.approx(400)


def hear(monkeypatch: pytest.MonkeyPatch, *waits: float) -> Answer:
    """Return what the client notes of seconds of sound that come after these waits."""
    now, answer = [0.0], Answer(0.0)
    monkeypatch.setattr(server_client, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    async def iter_any() -> AsyncIterator[bytes]:
        for wait in waits:
            now[0] += wait
            yield SECOND

    asyncio.run(server_client._read_sound(SimpleNamespace(content=SimpleNamespace(iter_any=iter_any)), answer, 0.0))
    return answer


def test_a_late_part_is_an_underrun_and_the_clients_own_if_it_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    well, late = hear(monkeypatch, 0.1, 0.9, 0.5), hear(monkeypatch, 0.1, 1.3)
    assert (well.first_s, well.underruns, well.silences) == (0.1, 0, [])
    [silence] = late.silences
    assert late.underruns == 1 and late.gap_s == pytest.approx(0.3)
    assert silence == pytest.approx((1.1, 1.4, 1.0))
    for slept, is_own in ([(1.1, 1.4)], True), ([(1.3, 1.4)], False), ([(0.5, 0.9)], False), ([], False):
        assert server_client.slept_through(silence[:2], slept) == is_own
