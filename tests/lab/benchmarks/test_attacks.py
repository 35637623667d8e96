"""The client that lab/benchmarks/attacks.py listens with: it must notice a slow, a broken and a silent server."""

from types import SimpleNamespace

import pytest

from lab.benchmarks import attacks
from lab.benchmarks.attacks import ClientTimes, listen, watched_health
from tests.patience import wait_until

ADDRESS = "http://127.0.0.1:9"  # where nobody listens


def test_the_client_measures_the_longest_gap_and_counts_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = [0.0], iter((0.5, 0.1, 0.2, None))

    def read1(_: int) -> bytes:
        if (pause := next(pauses)) is None:
            return b""
        now[0] += pause
        return bytes(100)

    answering = SimpleNamespace(
        request=lambda *_, **__: None, getresponse=lambda: SimpleNamespace(read1=read1), close=lambda: None
    )
    client = ClientTimes()
    with monkeypatch.context() as patch:
        patch.setattr(attacks.time, "perf_counter", lambda: now[0])
        patch.setattr(attacks.http.client, "HTTPConnection", lambda *_, **__: answering)
        listen(ADDRESS, client)
    assert client.lines_failed == 0 and client.first_s == [0.5] and client.gap_s == pytest.approx([0.2])
    listen(ADDRESS, client)
    with watched_health(ADDRESS, client):
        wait_until(lambda: client.health_failed > 0)
    assert client.lines_failed == 1 and len(client.first_s) == 1 and not client.health_s
