"""The attacking clients of the table "attacks", in a process of their own.

    python -m lab.benchmarks.attack_clients idle http://127.0.0.1:8765 --count 1000

Each goes on until the process is ended; ``leavers`` ends by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

PATH = "/v1/audio/speech"
FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
REFERENCE_FRAMES = 125  # 10 s
PART = 64 * 1024
CHARACTERS = 20_000
SLOW_BYTES = 2048  # that a slow reader takes in a second
AGAIN_S = 5.0  # until a connection that the server has closed is opened again
PROSE = "We should be there by ten, unless the ferry is late again, as it was on Sunday. "


def voice_file(seed: int) -> bytes:
    """Return the content of a file: an ICL voice of random codes for the demo voice's checkpoint."""
    import torch  # slow to import, and the other attacks do without
    from qwen3_tts_morph.morph.checkpoint.find import demo_voice
    from qwen3_tts_morph.morph.voice.file import save_voice
    from qwen3_tts_morph.morph.voice.voice import CODE_GROUPS, Voice

    config = json.loads((demo_voice() / "config.json").read_text(encoding="utf-8"))
    chance = torch.Generator().manual_seed(seed)
    embedding = torch.randn(config["talker_config"]["hidden_size"], generator=chance)
    codes = torch.randint(64, (REFERENCE_FRAMES, CODE_GROUPS), generator=chance)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "voice.safetensors"
        save_voice(Voice("icl", config["tts_model_size"], "new", embedding, codes, PROSE), path)
        return path.read_bytes()


class Attacker:
    """Opens connections to one server.

    Args:
        address: http://HOST:PORT.
        count: of connections that are held, or of leavers of each format.
    """

    def __init__(self, address: str, count: int):
        self._to, self._count = urlsplit(address), count

    async def _open(self, buffer: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        made = socket.socket()
        if buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, (self._to.hostname, self._to.port))
        return await asyncio.open_connection(sock=made, limit=PART)

    def _head(self, line: str, *more: str) -> bytes:
        return "\r\n".join([f"{line} HTTP/1.1", f"Host: {self._to.netloc}", *more]).encode() + b"\r\n"

    def _request(self, text: str, audio: str, **more: str) -> bytes:
        body = json.dumps({"model": "tts-1", "input": text, "response_format": audio, **more}).encode()
        kind = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
        return self._head(f"POST {PATH}", *kind) + b"\r\n" + body

    async def _ask(self, request: bytes) -> None:
        """Send a request, and read its answer to the end."""
        with suppress(OSError):
            reader, writer = await self._open()
            writer.write(request)
            while await reader.read(PART):
                pass
            writer.close()

    async def _flood(self, begin: bytes, part: bytes) -> None:
        """Send what never ends; when the connection is closed, open another."""
        while True:
            with suppress(OSError):
                _, writer = await self._open()
                writer.write(begin)
                while True:
                    writer.write(part)
                    await writer.drain()

    async def heads(self) -> None:
        """A header without an end."""
        await self._flood(self._head("GET /health") + b"X-Long: ", b"a" * PART)

    async def trailers(self) -> None:
        """Trailers without an end."""
        chunked = self._head(f"POST {PATH}", "Content-Type: application/json", "Transfer-Encoding: chunked")
        await self._flood(chunked + b"\r\n2\r\n{}\r\n0\r\n", b"X-N: 1\r\n" * (PART // 8))

    async def _hold(self, begin: bytes) -> None:
        """Keep connections open that say no more than this."""

        async def hold() -> None:
            while True:
                await self._ask(begin)
                await asyncio.sleep(AGAIN_S)

        await asyncio.gather(*(hold() for _ in range(self._count)))

    async def idle(self) -> None:
        """Connections that ask nothing."""
        await self._hold(b"")

    async def websockets(self) -> None:
        """WebSockets that say nothing."""
        key = ("Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}==")
        upgrade = ("Connection: Upgrade", "Upgrade: websocket", *key)
        await self._hold(self._head(f"GET {PATH}/stream", *upgrade) + b"\r\n")

    async def leavers(self) -> None:
        """Clients that leave with their first sound, of every format, one after the other."""
        for audio in FORMATS * self._count:
            reader, writer = await self._open()
            with suppress(OSError):
                writer.write(self._request(PROSE * 5, audio))
                await reader.readuntil(b"\r\n\r\n")
                await reader.read(PART)
            writer.transport.abort()

    async def dates(self) -> None:
        """The longest text, of dates, one after the other."""
        chance = random.Random(0)
        days = (
            f"{chance.randint(1, 28)}/{chance.randint(1, 12)}/{chance.randint(1900, 2050)}, "
            for _ in range(4000)
        )
        text = "".join(days)[:CHARACTERS]
        while True:
            await self._ask(self._request(text, "pcm"))

    async def references(self) -> None:
        """A line with an ICL voice that nobody has had before, one after the other."""
        to = f"POST {PATH.removesuffix('speech')}voices?name=new&consent=true&replace=true"
        for seed in count():
            content = voice_file(seed)
            size = f"Content-Length: {len(content)}"
            head = self._head(to, "Content-Type: application/octet-stream", size, "Connection: close")
            await self._ask(head + b"\r\n" + content)
            await self._ask(self._request(PROSE, "pcm", voice="new"))

    async def readers(self) -> None:
        """A client that reads slowly."""
        while True:
            with suppress(OSError):
                reader, writer = await self._open(SLOW_BYTES)
                writer.write(self._request(PROSE * 60, "wav"))
                while await reader.read(SLOW_BYTES):
                    await asyncio.sleep(1)
                writer.close()


ATTACKS: dict[str, Callable[[Attacker], Awaitable[None]]] = {
    "heads": Attacker.heads,
    "trailers": Attacker.trailers,
    "idle": Attacker.idle,
    "websockets": Attacker.websockets,
    "leavers": Attacker.leavers,
    "dates": Attacker.dates,
    "references": Attacker.references,
    "readers": Attacker.readers,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, and attack."""
    table = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    table.add_argument("attack", choices=ATTACKS)
    table.add_argument("address")
    table.add_argument("--count", type=int, required=True, help="connections held, or leavers of each format")
    options = table.parse_args(arguments)

    async def run() -> None:
        await ATTACKS[options.attack](Attacker(options.address, options.count))

    asyncio.run(run())


if __name__ == "__main__":
    main()
