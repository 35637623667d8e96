"""Free ports, and the socket that the server listens on."""

import os
import socket
import struct

import pytest
from qwen3_tts_morph.serve.process import ports
from qwen3_tts_morph.serve.process.ports import OFFERED, bind, free_ports


def test_free_ports_differ_and_can_be_listened_on() -> None:
    found = free_ports(5)
    assert len(set(found)) == 5 and set(found) <= set(OFFERED)
    for port in found:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))


def test_a_taken_port_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    free, taken = free_ports(2)
    monkeypatch.setattr(ports, "OFFERED", range(min(free, taken), max(free, taken) + 1, abs(free - taken)))
    with socket.socket() as one:
        one.bind(("", taken))
        one.listen()
        assert free_ports(1) == [free]
        with pytest.raises(OSError, match="2 ports are needed"):
            free_ports(2)


@pytest.mark.skipif(os.name == "nt", reason="not run: Windows takes another structure for this option")
def test_a_connection_that_was_reset_is_not_accepted() -> None:
    with bind("127.0.0.1", 0) as listener:
        listener.listen(8)
        with socket.create_connection(listener.getsockname()) as gone:
            gone.sendall(b"GET / HTTP/1.1\r\n\r\n")
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with socket.create_connection(listener.getsockname()) as there:
            accepted, address = listener.accept()
            accepted.close()
            assert address == there.getsockname()
