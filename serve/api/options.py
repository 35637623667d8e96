"""The server's options: frozen, validated on construction; and whose requests are admitted, in ComfyUI too.

ComfyUI's own check of hosts and origins admits ``Origin: null``, requests without an Origin (another site's
``<audio>``), names that resolve to this computer (DNS rebinding), and any request if the Host is not loopback.
"""

import ipaddress
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ...morph.options import MOST_LINES, GenerateOptions, LoadOptions, check_seq_groups
from ...morph.setting import Checked, Setting, setting
from ...morph.text.pronunciation import PronunciationList

KEY_VARIABLE = "MORPH_TTS_API_KEY"
PORT = 8765
SHORTEST_KEY = 8  # characters
# A valid Host header: a name or an IPv4 address, or an IPv6 address in brackets; then maybe a port.
HOST = re.compile(r"(?:(?P<name>[a-z0-9._-]+)|\[(?P<ipv6>[0-9a-f:.]+)\])(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
HOSTS_VARIABLE = "MORPH_TTS_HOSTS"  # names of this server beside addresses and localhost, separated by commas


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def body_bytes(characters: int) -> int:
    """Return the longest JSON of a request with so many characters, each escaped as a surrogate pair."""
    return max(256 * 1024, 12 * characters + 16 * 1024)


@dataclass(frozen=True)
class Limits(Checked):
    """The limits of one request."""

    characters: int = setting(20_000, low=1)  # of its text
    body_bytes: int = setting(256 * 1024, low=1)  # of its JSON
    seconds: float = setting(600.0, low=0, above=True)  # until all of the answer is sent
    idle_seconds: float = setting(30.0, low=0, above=True)  # for head, body, first message
    voice_bytes: int = setting(1 << 20, low=1)  # of an uploaded voice
    pause_seconds: float = setting(60.0, low=0, above=True)  # between texts of a WebSocket


@dataclass(frozen=True)
class Access:
    """Address, key and allowed sites. ValueError for an invalid one, and for a public address without a key."""

    host: str = "127.0.0.1"  # the address that the server listens on
    key: str = ""  # ``Authorization: Bearer KEY``; "" for none, which only loopback may have
    origin: str | None = None  # another site whose pages may ask, or "*"
    hosts: tuple[str, ...] = ()  # names of this server beside addresses and localhost
    open_lists: bool = False  # whether voices and models are listed without the key, for Open WebUI

    def __post_init__(self) -> None:
        if not self.key and not is_loopback(self.host):
            fix = f"set the environment variable {KEY_VARIABLE}, or listen on 127.0.0.1"
            raise ValueError(f"host is {self.host}, which other computers can reach, and there is no key: {fix}")
        if not self.key.isascii() or not self.key.isprintable() or self.key.strip() != self.key:
            raise ValueError(f"{KEY_VARIABLE} has characters that no header can have: use letters and digits")
        if 0 < (size := len(self.key)) < SHORTEST_KEY:
            fix = f"use {SHORTEST_KEY} or more"
            raise ValueError(f"the key in {KEY_VARIABLE} has {size} characters and can be guessed: {fix}")
        origin = "*" if self.origin is None else self.origin
        if not origin.isascii() or not origin.isprintable() or not origin.strip():
            fix = "give * or an address such as https://studio.example"
            raise ValueError(f"origin is {origin!r}, which no header can have: {fix}")


@dataclass(frozen=True)
class ServerOptions(Checked):
    """Settings of the server. Each of ``devices`` has its own ``rows`` and ``waiting``."""

    access: Access = Access()
    port: int = setting(PORT, low=0, high=65535)  # 0 takes a free one
    checkpoint: Path | None = None  # a folder; None: the demo voice in the pack
    voices: Path | None = None  # a folder of ``*.safetensors``
    pronunciation: tuple[PronunciationList, ...] = ()  # after a request's own and the voice's
    devices: tuple[str, ...] = ("auto",)
    load: LoadOptions = field(default_factory=LoadOptions)
    seq_groups: int = GenerateOptions.seq_groups  # of requests that name none
    warm_groups: tuple[int, ...] = ()  # other ``seq_groups`` to prepare
    rows: int | None = None  # batch size; None: 8 on a GPU, 2 on a CPU, where each costs every frame time
    waiting: int = setting(64, low=1, high=100_000)  # queued requests
    replicas: int = setting(1, low=1, high=1024)  # servers at this address
    limits: Limits = Limits()
    strict: bool = False  # refuse instructions that the checkpoint cannot follow; else ignore them
    access_log: bool = False  # a log line per request
    adapters: tuple[tuple[Path, float], ...] = ()  # folders of LoRA adapters and strengths

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is not None:
            Setting(1, low=1, high=MOST_LINES, name="rows").check(self.rows)
        for groups in (self.seq_groups, *self.warm_groups):
            check_seq_groups(groups)
        if self.voices is not None and not self.voices.is_dir():
            raise ValueError(f"voices is {self.voices}, which is not a folder: give the path of one that exists")

    def most_lines(self, rows: int) -> int:
        """Return the most concurrent requests, spoken or queued, with ``rows`` per server."""
        return (rows + self.waiting * len(self.devices)) * self.replicas


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
