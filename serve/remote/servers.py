"""The speech servers that the owner of this computer has listed. No graph and no request names an address."""

import logging
import os
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

log = logging.getLogger(__name__)

SERVERS_VARIABLE = "MORPH_TTS_SERVERS"  # name=address, separated by commas
KEY_PREFIX = "MORPH_TTS_KEY_"  # plus the server's name in capitals, other characters as _
NAMELESS = "server"  # name of a server given by its address
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")
EXAMPLE = f"{SERVERS_VARIABLE}=studio=http://192.168.1.20:8765"


@dataclass(frozen=True)
class Server:
    """A speech server; ``url`` has no slash at the end and no ``/v1``. ValueError for an unusable field.

    ``key`` is sent as ``Authorization: Bearer KEY``, "" for none; no report, log or message contains it.
    """

    name: str
    url: str
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"a server's name is {self.name[:40]!r}: use 1 to 40 letters, digits, spaces and . _ -")
        if not is_address(self.url):
            raise ValueError(
                f"the address of server {self.name} is not http://HOST:PORT or https://HOST, with a port from 1 to "
                f"65535: correct it, in {SERVERS_VARIABLE} if it is listed there"
            )
        if not self.key.isascii() or not self.key.isprintable():
            raise ValueError(f"the key in {key_variable(self.name)} has characters that a header cannot have")

    def __str__(self) -> str:
        return self.url if self.name == NAMELESS else f"{self.name} ({self.url})"


def is_address(url: str) -> bool:
    """Whether a text is http://HOST:PORT or https://HOST, maybe with a path."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # brackets without an address, or a port that is no number or too large
        return False
    odd = parts.username or parts.password or parts.query or parts.fragment or port == 0
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not odd


def key_variable(name: str) -> str:
    return KEY_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())


def listed_servers() -> dict[str, Server]:
    """Return the servers of the environment by name, in order; ValueError for an unusable entry."""
    found: dict[str, Server] = {}
    for entry in os.environ.get(SERVERS_VARIABLE, "").split(","):
        if not entry.strip():
            continue
        name, equals, url = (part.strip() for part in entry.partition("="))
        if not equals:
            raise ValueError(f"{SERVERS_VARIABLE} has {entry.strip()[:40]!r}: write name=address, as in {EXAMPLE}")
        found[name] = server_at(name, url)
    return found


def server_at(name: str, addresses: str) -> Server:
    """Return a server by the first of its addresses, with the key of this name; ValueError if unusable."""
    first, *others = addresses.split() or [""]
    if others:
        fix = "only the first is used; put a load balancer before them (docs/many-gpus.md)"
        log.warning("server %s has %d addresses: %s", name, 1 + len(others), fix)
    address = first.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    return Server(name, address, os.environ.get(key_variable(name), "").strip())


def find_server(name: str) -> Server:
    """Return a listed server; ValueError, with all names, for another one."""
    servers = listed_servers()
    if name in servers:
        return servers[name]
    fix = f"list it, as in {EXAMPLE}, and start this program again"
    if servers:
        fix = f"choose one of {', '.join(servers)}"
    raise ValueError(f"server {str(name)[:40]!r} is not listed in {SERVERS_VARIABLE}: {fix}")
