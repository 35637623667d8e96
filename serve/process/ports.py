"""Free ports, and the server's listening socket."""

import os
import random
import socket
from contextlib import ExitStack, suppress
from typing import Any

# Below the ephemeral ports, of which Ray takes many while it starts.
OFFERED = range(20_000, 30_000)
MOST_DROPPED = 64  # connections per call: then the event loop continues


class ListeningSocket(socket.socket):
    """A listening socket that drops connections that were reset before they are accepted.

    Strangers can open thousands a second, and each would cost the event loop far more than this check.
    """

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection, as ``socket.accept``; BlockingIOError for none."""
        for _ in range(MOST_DROPPED):
            connection, address = super().accept()
            if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return connection, address
            connection.close()
        raise BlockingIOError


def free_ports(count: int) -> list[int]:
    """Return ``count`` free ports; OSError if there are fewer."""
    found: list[int] = []
    with ExitStack() as held:  # together: they must differ
        for port in random.SystemRandom().sample(OFFERED, len(OFFERED)):
            probe = held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("", port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"{count} ports are needed, and of {OFFERED.start} to {OFFERED.stop - 1} too few are free")


def bind(host: str, port: int) -> ListeningSocket:
    """Return a socket bound to this address; OSError if it is in use, or not on this computer."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except UnicodeError as error:  # empty or too long between two dots
        raise socket.gaierror(socket.EAI_NONAME, "no host can have this name") from error
    bound = ListeningSocket(family, kind, protocol)
    if os.name != "nt":  # there it would let two programs listen
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
