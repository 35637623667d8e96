"""How the server runs: frozen, validated on construction."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from ...morph.options import MOST_LINES, GenerateOptions, check_seq_groups
from ...morph.setting import Checked, Setting, setting
from ...morph.text.pronunciation import PronunciationList

KEY_VARIABLE = "MORPH_TTS_API_KEY"
PORT = 8765
SHORTEST_KEY = 8  # characters


def is_loopback(host: str) -> bool:
    """Return whether only this computer can reach what listens on an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def body_bytes(characters: int) -> int:
    """Return how long a request's JSON may be with a text of so many characters, each escaped as a surrogate pair."""
    return max(256 * 1024, 12 * characters + 16 * 1024)


@dataclass(frozen=True)
class Limits(Checked):
    """What one request may ask for.

    Args:
        characters: of its text.
        body_bytes: of its JSON.
        seconds: until its answer has been sent completely; a WebSocket's included.
        idle_seconds: until a request's head has come, then its body, or a WebSocket's first message.
        audio_seconds: of the speech of a request (see ``Sampling.max_seconds``); 0: no limit of its own.
        voice_bytes: of an uploaded voice.
        pause_seconds: that a WebSocket's client may send no text, until its text is complete.
    """

    characters: int = setting(20_000, low=1)
    body_bytes: int = setting(256 * 1024, low=1)
    seconds: float = setting(600.0, low=0, above=True)
    idle_seconds: float = setting(30.0, low=0, above=True)
    audio_seconds: float = setting(0.0, low=0, high=3600, hint=" (0 is no limit)")
    voice_bytes: int = setting(1 << 20, low=1)
    pause_seconds: float = setting(60.0, low=0, above=True)


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Args:
        host: the address that the server listens on.
        key: what clients send as ``Authorization: Bearer KEY``; "" for none, which only loopback may have.
        origin: another site whose pages may ask, or "*"; None for none.
        hosts: names of this server beside addresses and localhost.
        open_lists: whether the names of voices and models may be read without the key, as Open WebUI does.

    Raises:
        ValueError: for an address that others can reach, without a key; for a key that is short; for a key or an origin
            that a header cannot have.
    """

    host: str = "127.0.0.1"
    key: str = ""
    origin: str | None = None
    hosts: tuple[str, ...] = ()
    open_lists: bool = False

    def __post_init__(self) -> None:
        if not self.key and not is_loopback(self.host):
            raise ValueError(
                f"host is {self.host}, which other computers can reach, and there is no key: set the environment "
                f"variable {KEY_VARIABLE}, or listen on 127.0.0.1"
            )
        if not self.key.isascii() or not self.key.isprintable() or self.key.strip() != self.key:
            raise ValueError(
                f"the key in {KEY_VARIABLE} has characters that a header cannot have: use letters and digits"
            )
        if 0 < len(self.key) < SHORTEST_KEY:
            raise ValueError(
                f"the key in {KEY_VARIABLE} has {len(self.key)} characters and can be guessed: use {SHORTEST_KEY} "
                "or more"
            )
        origin = "*" if self.origin is None else self.origin
        if not origin.isascii() or not origin.isprintable() or not origin.strip():
            raise ValueError(
                f"origin is {origin!r}, which no header can have: give * or an address such as https://studio.example"
            )


@dataclass(frozen=True)
class ServerOptions(Checked):
    """What the server speaks with, and where it listens.

    Args:
        access: who may ask.
        port: 0 takes a free one.
        checkpoint: a folder; None: the demo voice in the pack.
        voices: a folder of saved voices (``*.safetensors``), or None.
        pronunciation: how words are read, for all requests: after a request's own and the voice's.
        adapters: folders of LoRA adapters that all requests are spoken with, each with its strength.
        device: torch's name, or "auto".
        devices: several of torch's names, instead of ``device``: the checkpoint is on each of them, and each speaks
            ``rows`` requests at a time.
        engine, weights, precision: see ``LoadOptions``.
        seq_groups: of requests that name none.
        warm_groups: other values of ``seq_groups`` for which everything is prepared too.
        rows: how many requests are spoken at a time; None: 8 on a GPU, 2 on a CPU, where each costs every frame time.
        waiting: how many more may wait, for each device.
        replicas: how many servers with these options answer at this address together.
        limits: of one request.
        strict: refuse instructions that the checkpoint cannot follow, which are ignored otherwise.
        access_log: write a line to the log for each request.
    """

    access: Access = Access()
    port: int = setting(PORT, low=0, high=65535)
    checkpoint: Path | None = None
    voices: Path | None = None
    pronunciation: tuple[PronunciationList, ...] = ()
    device: str = "auto"
    devices: tuple[str, ...] = ()
    engine: str = "auto"
    weights: str = "full"
    precision: str = "auto"
    seq_groups: int = GenerateOptions.seq_groups
    warm_groups: tuple[int, ...] = ()
    rows: int | None = None
    waiting: int = setting(64, low=1, high=100_000)
    replicas: int = setting(1, low=1, high=1024)
    limits: Limits = Limits()
    strict: bool = False
    access_log: bool = False
    adapters: tuple[tuple[Path, float], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is not None:
            Setting(1, low=1, high=MOST_LINES, name="rows").check(self.rows)
        for groups in (self.seq_groups, *self.warm_groups):
            check_seq_groups(groups)
        for name in ("checkpoint", "voices"):
            path = getattr(self, name)
            if path is not None and not path.is_dir():
                raise ValueError(f"{name} is {path}, which is not a folder: give the path of one that exists")

    def most_lines(self, rows: int) -> int:
        """Return how many requests fit at once, spoken or waiting, with this many rows per server."""
        return (rows + self.waiting * len(self.all_devices)) * self.replicas

    @property
    def all_devices(self) -> tuple[str, ...]:
        """The devices that speak, one or more."""
        return self.devices or (self.device,)
