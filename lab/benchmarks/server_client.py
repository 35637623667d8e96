"""The client of the table "server": a process that sends requests at given times, answered or not (open loop).

    python -m lab.benchmarks.server_client plan.json answer.json

It reads raw PCM over HTTP, records arrival times and simulates a player that starts with a line's first byte.
Connections are kept open. A few times a second it also requests ``/health``, which needs no model: the latency of the
round trip alone. It measures how late its own event loop wakes up, too: that is the precision of all times.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from .audible import Listener

RATE = 24000
BYTES_PER_S = 2 * RATE
TOLERANCE_S = 0.001  # of a gap, for the resolution of timers
TICK_S = 0.002
NEVER = 1_000_000  # young collections before a full one
HEALTH_EVERY_S = 0.2
PATIENCE_S = 60.0  # for the last answers


class Silence(NamedTuple):
    """An underrun of a player: its start and end, and how much of the line had been played, in seconds.

    Times are those of the client's clock; in the file they are relative to its start.
    """

    began: float
    over: float
    played_s: float


@dataclass
class Answer:
    """The answer for one line; times in seconds.

    Args:
        late_s: how late the client sent the request.
        first_s: from before the sending to the first byte of sound; None: none came.
        audible_s: from before the sending until a player plays the first audible sample; None: there is none.
        last_s: from before the sending to the end.
        underruns: parts that arrived after a player had played everything before them.
        gap_s: the longest silence that this caused.
        own_underruns: underruns within a late wake-up of the client: the sound may have arrived in time.
        size: bytes of sound.
        error: why it is not complete, "" if it is.
        silences: of each underrun.
    """

    late_s: float
    first_s: float | None = None
    audible_s: float | None = None
    last_s: float = 0.0
    underruns: int = 0
    gap_s: float = 0.0
    own_underruns: int = 0
    size: int = 0
    error: str = ""
    silences: list[Silence] = field(default_factory=list)


@dataclass
class Answers:
    """A client's result: the lines, and the precision of its clock, in seconds."""

    lines: list[Answer] = field(default_factory=list)
    health_s: list[float] = field(default_factory=list)
    ticks_late_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0


class Client:
    """A client of one server.

    Args:
        address: http://HOST:PORT.
        session: of aiohttp.
    """

    def __init__(self, address: str, session: aiohttp.ClientSession):
        self._address, self._session = address, session
        self.answers = Answers()
        # Due and actual times of late wake-ups.
        self._slept: list[tuple[float, float]] = []

    async def run(self, requests: Sequence[Mapping[str, Any]]) -> None:
        """Send every request ``{"at": seconds, "body": {...}}`` at its time, and wait for all answers."""
        beside = [asyncio.create_task(self._tick()), asyncio.create_task(self._ask_health())]
        began, asked = time.perf_counter(), []
        for request in requests:
            due = began + request["at"]
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            asked.append(asyncio.create_task(self._speak(request["body"], due)))
        # asyncio.wait schedules a callback for each finished task, too: for 60,000 lines these block the event loop for
        # 0.1 s while the last lines play. It therefore gets the running ones only.
        running = [task for task in asked if not task.done()]
        _, waiting = await asyncio.wait(running, timeout=PATIENCE_S) if running else (None, ())
        self.answers.wall_s = time.perf_counter() - began
        for late in waiting:
            late.cancel()
        for task in beside:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.answers.lines = list(await asyncio.gather(*asked))
        for line in self.answers.lines:
            line.own_underruns = sum(slept_through(one[:2], self._slept) for one in line.silences)
            line.silences = [Silence(one.began - began, one.over - began, one.played_s) for one in line.silences]

    async def _speak(self, body: Mapping[str, Any], due: float) -> Answer:
        """Ask for one line and read its answer."""
        sent = time.perf_counter()
        answer = Answer(sent - due)
        try:
            async with self._session.post(f"{self._address}/v1/audio/speech", json=body) as response:
                if response.status == 200:
                    await _read_sound(response, answer, sent)
                else:
                    answer.error = f"{response.status} {(await response.text())[:200]}"
        except (aiohttp.ClientError, asyncio.CancelledError) as error:
            answer.error = type(error).__name__
        answer.last_s = time.perf_counter() - sent
        return answer

    async def _tick(self) -> None:
        """Record how late this process's event loop wakes up."""
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            woke = time.perf_counter()
            self.answers.ticks_late_s.append(woke - due)
            if woke - due > TOLERANCE_S:
                self._slept.append((due, woke))

    async def _ask_health(self) -> None:
        while True:
            began = time.perf_counter()
            async with self._session.get(f"{self._address}/health") as response:
                await response.read()
            self.answers.health_s.append(time.perf_counter() - began)
            await asyncio.sleep(HEALTH_EVERY_S)


def slept_through(silence: tuple[float, float], slept: Sequence[tuple[float, float]]) -> bool:
    """Return whether a silence lies within a late wake-up of the client, to within a tick."""
    began, over = silence
    return any(
        due - TICK_S <= began and over <= woke + TICK_S and over - began <= woke - due + TICK_S for due, woke in slept
    )


async def _read_sound(response: aiohttp.ClientResponse, answer: Answer, sent: float) -> None:
    """Read the sound as it comes; a player starts with the first byte."""
    played_until, listener = 0.0, Listener(RATE)
    async for data in response.content.iter_any():
        now = time.perf_counter()
        if answer.first_s is None:
            answer.first_s, played_until = now - sent, now
        elif now - played_until > TOLERANCE_S:
            answer.underruns += 1
            answer.gap_s = max(answer.gap_s, now - played_until)
            answer.silences.append(Silence(played_until, now, answer.size / BYTES_PER_S))
        listener.add(data, max(now, played_until))
        played_until = max(now, played_until) + len(data) / BYTES_PER_S
        answer.size += len(data)
    answer.audible_s = None if listener.at is None else listener.at - sent


async def ask(plan: Mapping[str, Any]) -> Answers:
    """Carry out a plan ``{"address", "requests"}``."""
    limits = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=limits, connector=connector) as session:
        client = Client(plan["address"], session)
        await client.run(plan["requests"])
    return client.answers


def run_loop(made: Coroutine[Any, Any, Answers]) -> Answers:
    """Run in uvloop's event loop if it is installed, without full garbage collections.

    After some minutes one takes up to 150 ms, in which all players would stop.
    """
    gc.collect()  # moves all existing objects to the oldest generation
    gc.set_threshold(*gc.get_threshold()[:2], NEVER)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(made)
    return uvloop.run(made)


def main(arguments: Sequence[str] | None = None) -> None:
    plan, out = (Path(name) for name in (sys.argv[1:] if arguments is None else arguments))
    answers = run_loop(ask(json.loads(plan.read_text(encoding="utf-8"))))
    out.write_text(json.dumps(asdict(answers)), encoding="utf-8")


if __name__ == "__main__":
    main()
