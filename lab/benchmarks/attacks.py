"""Table "attacks": how much malicious clients slow down a normal client of the speech server.

    python -m lab.benchmarks.attacks --device cpu
    python -m lab.benchmarks.attacks --device cpu --attacks pings resets

The server is the command line's, with a key and two rows, and speaks with the demo voice. A normal client requests
``--lines`` lines, one after the other, first alone and then beside each attack. ``first`` is the time from its request
to the first byte of sound, ``gap`` the longest time between two parts; both are medians of the lines, with the worst.
``health`` is the latency of ``/health``, which needs no model: ten requests per second, each over its own connection.
The attackers run in a process of the lowest priority, as real ones would not take the server's CPU, and stop after
``--seconds``. "busy" only computes in such a process, as a baseline. All connections are on loopback.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias
from urllib.parse import urlsplit

import numpy as np
import soundfile
import torch
from qwen3_tts_morph.serve.api.options import KEY_VARIABLE

import pack

from .common import DEMO, parser
from .results import PartRow, save_rows
from .server_process import started

MODULE = "lab.benchmarks.attacks"
PARSER = "h11"  # earlier results have httptools too
PATH = "/v1/audio/speech"
PROSE = "We should be there by ten, unless the ferry is late again."
KEY = "benchmark-of-attacks"
SENTENCES = " ".join([PROSE] * 60)
GROUPS = (1, 2, 3, 7, 10, 15)
CHARACTERS, WORDS = 20_000, 500
RATE = 24_000  # Hz, of recordings
HEALTH_EVERY_S, TIMEOUT_S = 0.1, 60.0
BEGINS_S = 2.0  # until the attackers have lines
MOST_CONNECTIONS = 200_000  # of one attack
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing resets the connection
PING = b"\x89\x80\x00\x00\x00\x00"
WEBSOCKET = f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n"
UPGRADE = f"Connection: Upgrade\r\nUpgrade: websocket\r\n{WEBSOCKET}"

Attack: TypeAlias = Callable[[str, int, Callable[[], bool]], None]  # address, the client's number, whether it is over


@dataclass(frozen=True)
class AttackRow(PartRow):
    """One attack. Times are in milliseconds; ``first`` and ``gap`` are multiples of the times alone."""

    attack: str
    parser: str
    lines: int
    first: float
    gap: float
    first_alone_ms: float
    first_ms: float
    first_most_ms: float
    gap_alone_ms: float
    gap_ms: float
    gap_most_ms: float
    health_most_ms: float | None
    health_failed: int
    lines_failed: int


@dataclass
class ClientTimes:
    """The normal client's measurements; times in seconds."""

    first_s: list[float] = field(default_factory=list)
    gap_s: list[float] = field(default_factory=list)
    health_s: list[float] = field(default_factory=list)
    health_failed: int = 0
    lines_failed: int = 0


# The attackers


def dollars(chance: random.Random) -> str:
    """Return the longest text of amounts."""
    amounts = (f"${chance.randint(1, 10**6):,}.{chance.randint(10, 99)}, " for _ in range(CHARACTERS // 6))
    return "".join(amounts)[:CHARACTERS]


def speak(address: str, **fields: object) -> None:
    """Request one line, and read it."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=TIMEOUT_S)
    with suppress(OSError, http.client.HTTPException):
        _ask(connection, fields)
        answer = connection.getresponse()
        while answer.read(1 << 16):
            pass
    connection.close()


def _ask(connection: http.client.HTTPConnection, fields: dict[str, object]) -> None:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    body = {"model": "tts-1", "response_format": "pcm", **fields}
    connection.request("POST", PATH, json.dumps(body), headers)


def reset(address: str, _: int, is_over: Callable[[], bool]) -> None:
    """Connect, send a request without the key, and reset the connection."""
    to = urlsplit(address)
    request = f"POST {PATH} HTTP/1.1\r\nHost: {to.netloc}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    while not is_over():
        with suppress(OSError), socket.create_connection((to.hostname, to.port), timeout=TIMEOUT_S) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            one.sendall(request)


def ping(address: str, _: int, is_over: Callable[[], bool]) -> None:
    """Send pings over a WebSocket without a first message; read the answers."""
    to = urlsplit(address)
    while not is_over():
        with suppress(OSError), socket.create_connection((to.hostname, to.port), timeout=TIMEOUT_S) as one:
            one.sendall(f"GET {PATH}/stream HTTP/1.1\r\nHost: {to.netloc}\r\n{UPGRADE}\r\n".encode())
            threading.Thread(target=_drain, args=(one,), daemon=True).start()
            while not is_over():
                one.sendall(PING * 500)


def _drain(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(1 << 16):
            pass


def clone(address: str, number: int, is_over: Callable[[], bool]) -> None:
    """Upload a recording of 30 s to clone, repeatedly."""
    sound = io.BytesIO()
    chance = np.random.default_rng(number)
    hum = np.sin(np.arange(30 * RATE) * 0.05) * (1 + chance.standard_normal(30 * RATE)) / 8
    soundfile.write(sound, hum, RATE, format="WAV")
    path = f"/v1/audio/voices/clone?consent=true&replace=true&name=Harm{number}"
    headers = {"Content-Type": "audio/wav", "Authorization": f"Bearer {KEY}"}
    while not is_over():
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=TIMEOUT_S)
        with suppress(OSError, http.client.HTTPException):
            connection.request("POST", path, sound.getvalue(), headers)
            connection.getresponse().read()
        connection.close()


def compute(_: str, __: int, is_over: Callable[[], bool]) -> None:
    """Keep this process busy, without any request."""
    while not is_over():
        sum(range(1000))


def request_repeatedly(make_fields: Callable[[int, random.Random], dict[str, object]]) -> Attack:
    """Return an attack that requests lines with these fields, one after another."""

    def run(address: str, number: int, is_over: Callable[[], bool]) -> None:
        chance = random.Random(number)
        while not is_over():
            speak(address, **make_fields(number, chance))

    return run


def leave_after(seconds: float) -> Attack:
    """Return an attack that requests a long text, reads its first part, and disconnects after ``seconds``."""

    def run(address: str, number: int, is_over: Callable[[], bool]) -> None:
        while not is_over():
            connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=TIMEOUT_S)
            with suppress(OSError, http.client.HTTPException):
                _ask(connection, {"input": SENTENCES, "seed": number})
                connection.getresponse().read1(1)
                time.sleep(seconds)
            connection.close()

    return run


# Amounts with pronunciations from the third client on; a SEQ_GROUPS for each client of "groups".
amounts = request_repeatedly(
    lambda number, chance: {
        "input": dollars(chance),
        "pronunciation": {f"word{one}": "as it is read" for one in range(WORDS)} if number >= 2 else {},
    }
)
groups = request_repeatedly(
    lambda number, _: {"input": " ".join([PROSE] * 4), "seed": number, "seq_groups": GROUPS[number]}
)
ATTACKS: dict[str, tuple[int, Attack]] = {
    "busy": (1, compute),
    "dollars": (2, amounts),
    "dollar_files": (2, request_repeatedly(lambda _, chance: {"input": dollars(chance), "stream": False})),
    "pronunciations": (5, amounts),
    "resets": (8, reset),
    "pings": (4, ping),
    "clones": (3, clone),
    "texts": (6, request_repeatedly(lambda number, _: {"input": SENTENCES, "seed": number})),
    "groups": (6, groups),
    "list": (64, request_repeatedly(lambda number, _: {"input": PROSE, "seed": number, "stream": False})),
    "files": (4, request_repeatedly(lambda number, _: {"input": SENTENCES, "seed": number, "stream": False})),
    "leavers": (8, leave_after(0.0)),
    "readers": (20, leave_after(5.0)),
}


def attack(name: str, address: str, seconds: float) -> None:
    """Attack a server for ``seconds``, from the threads of the attack."""
    until, left = time.monotonic() + seconds, iter(range(MOST_CONNECTIONS))
    count, run = ATTACKS[name]

    def is_over() -> bool:
        return time.monotonic() > until or next(left, None) is None

    for number in range(count):
        threading.Thread(target=run, args=(address, number, is_over), daemon=True).start()
    print("attacking", flush=True)
    time.sleep(seconds)


# The normal client


def listen(address: str, client: ClientTimes, timeout_s: float = TIMEOUT_S) -> None:
    """Request one line and read it as it arrives."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=timeout_s)
    began, times = time.perf_counter(), list[float]()
    try:
        _ask(connection, {"input": PROSE, "seed": 1})
        answer = connection.getresponse()
        while answer.read1(1 << 16):
            times.append(time.perf_counter())
    except (OSError, http.client.HTTPException):
        client.lines_failed += 1
    if len(times) > 1:
        client.first_s.append(times[0] - began)
        client.gap_s.append(max(after - before for before, after in pairwise(times)))
    connection.close()


@contextmanager
def watched_health(address: str, client: ClientTimes) -> Iterator[None]:
    """Request ``/health`` repeatedly inside the ``with``."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(HEALTH_EVERY_S):
            began = time.perf_counter()
            connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
            try:
                connection.request("GET", "/health")
                connection.getresponse().read()
                client.health_s.append(time.perf_counter() - began)
            except (OSError, http.client.HTTPException):
                client.health_failed += 1
            connection.close()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def attacked(name: str, address: str, seconds: float) -> Iterator[None]:
    """Attack inside the ``with``."""
    command = [sys.executable, "-m", MODULE, "attack", name, address, str(seconds)]
    process = subprocess.Popen(command, cwd=pack.ROOT, stdout=subprocess.PIPE)
    try:
        # At its priority it takes long to start.
        assert process.stdout is not None and process.stdout.readline()
        time.sleep(BEGINS_S)
        yield
    finally:
        process.terminate()
        process.wait()


def measure(name: str, address: str, alone: ClientTimes, options: argparse.Namespace) -> AttackRow:
    client, until = ClientTimes(), time.monotonic() + options.seconds
    with attacked(name, address, options.seconds + TIMEOUT_S), watched_health(address, client):
        while len(client.first_s) < options.lines and time.monotonic() < until:
            listen(address, client, options.patience)
    first, gap = median_ms(client.first_s), median_ms(client.gap_s)
    first_alone, gap_alone = median_ms(alone.first_s), median_ms(alone.gap_s)
    return AttackRow(
        "attacks", "morph", options.shape, "auto", "float32", 2,
        name, PARSER, len(client.first_s), round(first / first_alone, 1), round(gap / gap_alone, 1),
        first_alone, first, most_ms(client.first_s), gap_alone, gap, most_ms(client.gap_s),
        most_ms(client.health_s), client.health_failed, client.lines_failed,
    )  # fmt: skip


def median_ms(seconds: Sequence[float]) -> float:
    """Return the median of times in milliseconds; NaN if there are none."""
    return round(1000 * statistics.median(seconds), 1) if seconds else float("nan")


def most_ms(seconds: Sequence[float]) -> float:
    """Return the longest of times in milliseconds; NaN if there are none."""
    return round(1000 * max(seconds, default=float("nan")), 1)


def run(options: argparse.Namespace) -> list[AttackRow]:
    """Start a server, attack it in every way, and add the rows to the machine's file."""
    os.environ[KEY_VARIABLE] = KEY
    rows, alone = list[AttackRow](), ClientTimes()
    given = ["--rows", "2", "--device", options.device]
    with started(given) as (address, _):
        for client in (ClientTimes(), *[alone] * options.lines):  # the first is not counted
            listen(address, client)
        for name in options.attacks:
            rows.append(measure(name, address, alone, options))
            print(json.dumps(rows[-1].flat()), flush=True)
            time.sleep(options.settle)
    save_rows(rows, torch.device(options.device), options)
    return rows


def table_of(rows: Sequence[AttackRow]) -> str:
    """Return the rows as a table of multiples."""
    lines = [
        "| while | first byte | gap | worst first byte, ms | `/health` worst, ms | failed |",
        "|---|" + "--:|" * 5,
    ]
    for row in rows:
        failed = f"{row.lines_failed} lines, {row.health_failed} `/health`"
        cells = (row.attack, row.first, row.gap, row.first_most_ms, row.health_most_ms, failed)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    table = parser(__doc__, frames=0, repeats=1)
    table.set_defaults(shape=DEMO)
    table.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    table.add_argument("--lines", type=int, default=5, help="alone, and beside each attack")
    table.add_argument("--seconds", type=float, default=20.0, help="at most, of each attack")
    table.add_argument("--patience", type=float, default=TIMEOUT_S, help="seconds without a byte that lose a line")
    table.add_argument("--settle", type=float, default=2.0, help="seconds after an attack")
    return table.parse_args(arguments)


def main() -> None:
    """Measure and print the table, or run the process that attacks."""
    if sys.argv[1:2] == ["attack"]:
        os.nice(19)
        name, address, seconds = sys.argv[2:]
        attack(name, address, float(seconds))
    else:
        print(table_of(run(parse_arguments())))


if __name__ == "__main__":
    main()
