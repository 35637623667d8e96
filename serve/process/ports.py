"""Ports of this host that can be listened on."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

# Below those that systems give to whoever asks for any: Ray takes many of these while it starts.
OFFERED = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Return different ports that nobody listens on now.

    Raises:
        OSError: if fewer are free.
    """
    found: list[int] = []
    with ExitStack() as held:  # all at once, so that they differ
        for port in random.SystemRandom().sample(OFFERED, len(OFFERED)):
            probe = held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("", port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"{count} ports are needed, and of {OFFERED.start} to {OFFERED.stop - 1} too few are free")
