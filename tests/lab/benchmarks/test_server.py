"""The table of the server: a dry run with both processes, and what the client hears."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")

import torch
from aiohttp import web
from safetensors.torch import load_file

from lab.benchmarks import server, server_client
from lab.benchmarks.server import (
    Case,
    cases_of,
    describe_silences,
    describe_slowest,
    figures_of,
    make_requests,
    mark_short,
    slow_moments_of,
)
from lab.benchmarks.server_client import BYTES_PER_S, Answer, Answers, Client, ask
from lab.benchmarks.server_process import HEAD, prepare_checkpoint
from lab.random_checkpoint import write_checkpoint
from tests.lab.benchmarks.test_tables import rows_of

SECOND = bytes(BYTES_PER_S)
TINY_EOS = 64 + 102
CASE = Case(rate=20, seconds=30, seq_groups=5, rows=2, exact=True)


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
    other = load_file(
        write_checkpoint(tmp_path / "other", "tiny", dtype=torch.bfloat16) / "model.safetensors"
    )
    assert not head[TINY_EOS].any() and other[HEAD][TINY_EOS].any()
    other[HEAD][TINY_EOS] = 0
    assert torch.equal(head, other[HEAD])
    assert voices is not None and [path.name for path in voices.iterdir()] == ["ann.safetensors"]
    assert prepare_checkpoint(tmp_path, "tiny", preset=True)[1] is None


def test_requests_come_at_random_moments_with_lines_of_4_to_8_s() -> None:
    requests = make_requests(CASE, "ann")
    times = [request["at"] for request in requests]
    assert times == sorted(times) and times[-1] < 30
    assert len(times) == pytest.approx(600, rel=0.15)
    lengths = [request["body"]["sampling"]["max_seconds"] for request in requests]
    assert min(lengths) >= 4 and max(lengths) <= 8 and len(set(lengths)) > 20
    assert requests == make_requests(CASE, "ann") != make_requests(CASE, "ann", seed=2)


def test_each_rate_has_its_rows_and_all_share_one_number() -> None:
    options = argparse.Namespace(rates=[1.0, 20.0], rows=[8, 32], seq_groups=[15, 5], seconds=9, shape="0.6B")
    by_rows = cases_of(options)
    assert {rows: [(one.rate, one.seq_groups) for one in cases] for rows, cases in by_rows.items()} == {
        8: [(1, 15), (1, 5)], 32: [(20, 15), (20, 5)],
    }  # fmt: skip
    options.rows = [8]
    assert [len(cases) for cases in cases_of(options).values()] == [4]


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


def test_what_all_lines_may_have_waited_for_is_counted_while_they_were_spoken() -> None:
    before = {"morph_tts_captures_total": 61.0, "morph_tts_collections_total": 5.0}
    after = {
        "morph_tts_late_captures_total": 2.0,
        "morph_tts_collections_total": 8.0,
        "morph_tts_collection_seconds_total": 0.004,
        "morph_tts_collection_longest_seconds": 0.003,
        "morph_tts_gpu_allocations_total": 1.0,
    }
    figures = slow_moments_of(before, after)
    assert (figures["captures_before"], figures["late_captures"], figures["collections"]) == (61, 2, 3)
    assert figures["collections_ms"] == pytest.approx(4) and figures["collection_most_ms"] == pytest.approx(3)
    assert (figures["gpu_allocations"], figures["pinned_allocations"]) == (1, 0)


def test_the_slowest_lines_tell_when_and_how_soon_after_another_they_came() -> None:
    requests = [{"at": 0.5}, {"at": 1.25}, {"at": 1.26}, {"at": 3.0}]
    lines = [{"first_s": first} for first in (0.008, 0.009, 0.02, None)]
    assert describe_slowest(lines, requests) == (
        "20.0 ms at 1.26 s (10 ms), 9.0 ms at 1.25 s (750 ms), 8.0 ms at 0.50 s (500 ms)"
    )


def test_the_longest_silences_tell_when_they_came() -> None:
    lines = [{"silences": []}, {"silences": [[2.0, 2.01, 0.4], [3.5, 3.52, 1.6]]}]  # as they are in JSON
    assert describe_silences(lines) == "20.0 ms at 3.50 s behind 1.60 s, 10.0 ms at 2.00 s behind 0.40 s"
    assert describe_silences(lines[:1]) == ""


@pytest.fixture
def heard() -> Iterator[Answers]:
    """What the client hears of a server that answers well, late, in part, and not at all."""
    yield asyncio.run(_ask_fake())


async def _ask_fake() -> Answers:
    app = web.Application()
    app.add_routes([web.post("/v1/audio/speech", _speak), web.get("/health", _health)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [port] = [address[1] for address in runner.addresses]
    ways = ("well", "late", "broken", "busy")
    requests = [{"at": 0.01 * number, "body": {"way": way}} for number, way in enumerate(ways)]
    answers = await ask({"address": f"http://127.0.0.1:{port}", "requests": requests})
    await runner.cleanup()
    return answers


async def _health(_: web.Request) -> web.Response:
    return web.Response()


async def _speak(request: web.Request) -> web.StreamResponse:
    way = (await request.json())["way"]
    if way == "busy":
        return web.Response(status=429, text="busy")
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(SECOND)
    if way == "broken":
        assert request.transport is not None
        request.transport.abort()
    if way == "late":
        await asyncio.sleep(1.3)
    await response.write(SECOND)
    return response


def test_the_clients_gap_is_the_longest_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    now, parts = (
        [0.0],
        [(0.0, 0.1), (0.2, 0.1), (0.15, 0.1)],
    )  # waits and lengths, s: silences of 0.1 and 0.05 s

    class Content:
        async def iter_any(self) -> AsyncIterator[bytes]:
            for wait, length in parts:
                now[0] += wait
                yield bytes(round(length * BYTES_PER_S))

    monkeypatch.setattr(server_client, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    answer = server_client.Answer(0.0)
    asyncio.run(server_client._hear(SimpleNamespace(content=Content()), answer, 0.0))
    assert answer.underruns == 2 and answer.gap_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("silence", "own"),
    [
        pytest.param((10.0, 10.03), True, id="it began and ended while the client slept"),
        pytest.param((9.99, 10.03), False, id="it had begun before"),
        pytest.param((10.0, 10.2), False, id="it went on when the client was awake"),
        pytest.param((20.0, 20.01), False, id="the client was awake"),
    ],
)
def test_a_silence_is_the_clients_own_where_it_slept_through_it(
    silence: tuple[float, float], own: bool
) -> None:
    slept = [(1.0, 1.5), (10.0, 10.03)]  # due, woke
    assert server_client.slept_through(silence, slept) == own


def test_the_client_does_not_wait_for_answers_that_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio.wait would call back for each of them, and all players stop meanwhile."""
    waited: list[bool] = []
    wait = asyncio.wait

    async def counting(tasks: set[asyncio.Task[Answer]], timeout: float) -> tuple[set[Any], set[Any]]:
        waited.extend(task.done() for task in tasks)
        return await wait(tasks, timeout=timeout)

    async def speak(self: Client, body: Mapping[str, Any], due: float) -> Answer:
        await asyncio.sleep(body["takes"])
        return Answer(due)

    monkeypatch.setattr(asyncio, "wait", counting)
    monkeypatch.setattr(Client, "_speak", speak)
    monkeypatch.setattr(Client, "_ask_health", lambda _: asyncio.sleep(60))
    client = Client("http://nowhere.invalid", session=SimpleNamespace())
    requests = [{"at": 0.0, "body": {"takes": 0.0}}, {"at": 0.05, "body": {"takes": 0.1}}]
    asyncio.run(client.run(requests))
    assert waited == [False] and len(client.answers.lines) == 2


def test_underruns_that_the_client_slept_through_are_counted_apart() -> None:
    """Its event loop is blocked while the sound comes in time."""

    async def blocked() -> Answers:
        async def speak(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(bytes(BYTES_PER_S // 2))
            await asyncio.sleep(0.02)
            time.sleep(1)  # client and server have one event loop here
            await response.write(bytes(BYTES_PER_S // 2))
            return response

        app = web.Application()
        app.add_routes([web.post("/v1/audio/speech", speak), web.get("/health", _health)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        [port] = [address[1] for address in runner.addresses]
        answers = await ask({"address": f"http://127.0.0.1:{port}", "requests": [{"at": 0.0, "body": {}}]})
        await runner.cleanup()
        return answers

    [line] = asyncio.run(blocked()).lines
    assert (line.underruns, line.own_underruns) == (1, 1) and line.gap_s > 0.1
    [silence] = line.silences  # on a clock that began with the first request
    assert 0 < silence.began < silence.over < 60 and silence.played_s == pytest.approx(0.5)


def test_the_client_hears_gaps_ends_and_refusals(heard: Answers) -> None:
    well, late, broken, busy = heard.lines
    assert (well.error, well.size, well.underruns) == ("", 2 * BYTES_PER_S, 0)
    assert well.first_s is not None and 0 < well.first_s <= well.last_s and well.late_s >= 0
    assert (late.error, late.underruns) == ("", 1) and late.gap_s > 0.1
    assert broken.error and busy.error == "429 busy" and busy.first_s is None
    assert heard.health_s and heard.ticks_late_s and heard.wall_s > 0.3
