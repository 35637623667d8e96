"""The client that lab/benchmarks/attacks.py listens with: it must notice a slow, a broken and a silent server."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from lab.benchmarks.attacks import Noticed, listen, watched_health

GAP_S = 0.2


class Server(BaseHTTPRequestHandler):
    """Three parts of sound with a pause before the last one; no ``/health``."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        for pause_s in (0, 0, GAP_S):
            time.sleep(pause_s)
            self.wfile.write(bytes(100))

    def do_GET(self) -> None:
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    Thread(target=server.serve_forever).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_client_measures_the_longest_gap_and_counts_what_fails(address: str) -> None:
    noticed = Noticed()
    with watched_health(address, noticed):
        listen(address, noticed)
    assert noticed.lines_failed == 0 and noticed.gap_s[0] >= GAP_S / 2
    assert noticed.health_failed and not noticed.health_s
    listen("http://127.0.0.1:9", noticed)
    assert noticed.lines_failed == 1 and len(noticed.first_s) == 1
