"""Check hosts and origins of HTTP requests to the pack's routes, in ComfyUI and in the speech server.

ComfyUI's own check admits ``Origin: null``, requests without an Origin (another site's ``<audio>``), names that
resolve to this computer (DNS rebinding), and any request if the Host is not loopback.
"""

import ipaddress
import os
import re
from collections.abc import Collection, Mapping
from functools import lru_cache

# A valid Host header: a name or an IPv4 address, or an IPv6 address in brackets; then maybe a port.
HOST = re.compile(r"(?:(?P<name>[a-z0-9._-]+)|\[(?P<ipv6>[0-9a-f:.]+)\])(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
HOSTS_VARIABLE = "MORPH_TTS_HOSTS"  # names of this server beside addresses and localhost, separated by commas


def listed_hosts() -> list[str]:
    names = os.environ.get(HOSTS_VARIABLE, "").split(",")
    return [name.strip().lower() for name in names if name.strip()]


def why_refused(headers: Mapping[str, str], hosts: Collection[str] = (), cors: str | None = None) -> str | None:
    """Return the reason to refuse a request, or None.

    ``headers`` are case-insensitive; ``cors`` is another site that is allowed, or "*": ComfyUI's
    ``--enable-cors-header``.
    """
    host, origin = headers.get("Host", ""), headers.get("Origin")
    if unlisted_host(headers, hosts) is not None:
        return f"host {host!r} is unknown: use an address or localhost, or list the name in {HOSTS_VARIABLE}"
    if cors is not None and (cors == "*" or origin == cors):
        return None
    if headers.get("Sec-Fetch-Site") == "cross-site":
        return "the request comes from another site"
    if origin is not None and origin.rpartition("//")[2].lower() != host.lower():
        return f"origin {origin!r} is another site"
    return None


def unlisted_host(headers: Mapping[str, str], hosts: Collection[str] = ()) -> str | None:
    """Return the Host of a request, or None for an address, localhost or a listed name."""
    host = headers.get("Host", "")
    name, is_own = _read_host(host)
    return None if is_own or name in hosts else host.rpartition(":")[0] or host


@lru_cache(16)
def _read_host(host: str) -> tuple[str | None, bool]:
    """Return the name in a Host header, None for an invalid one, and whether it is localhost or an address."""
    found = HOST.fullmatch(host)
    if found is None:
        return None, False
    name = (found["name"] or found["ipv6"]).lower()
    try:
        (ipaddress.IPv6Address if found["ipv6"] else ipaddress.IPv4Address)(name)
    except ValueError:
        return (name, name == "localhost") if found["name"] else (None, False)
    return name, True
