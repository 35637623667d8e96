"""The table "attacks": what its clients send, and what a row has."""

from __future__ import annotations

import asyncio
import json

import pytest

from lab.benchmarks import attack_clients, attacks
from lab.benchmarks.attack_clients import ATTACKS, Attacker
from tests.patience import PATIENCE

BEGINS = {
    "heads": b"GET /health HTTP/1.1\r\n",
    "trailers": b"POST /v1/audio/speech HTTP/1.1\r\n",
    "idle": b"",
    "websockets": b"GET /v1/audio/speech/stream HTTP/1.1\r\n",
    "leavers": b"POST /v1/audio/speech HTTP/1.1\r\n",
    "dates": b"POST /v1/audio/speech HTTP/1.1\r\n",
    "references": b"POST /v1/audio/voices?name=new&consent=true&replace=true HTTP/1.1\r\n",
    "readers": b"POST /v1/audio/speech HTTP/1.1\r\n",
}


async def first_bytes(name: str) -> tuple[bytes, int]:
    """Return what the first connection of an attack sends first, and how many connections there are by then."""
    made, enough, sent = 0, asyncio.Event(), asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        if made == 2:
            enough.set()
        data = await reader.read(1 << 16)
        if not sent.done():
            sent.set_result(data)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    attack = asyncio.ensure_future(ATTACKS[name](Attacker(address, 2)))
    try:
        if name == "idle":
            await enough.wait()
            return b"", made
        return await sent, made
    finally:
        attack.cancel()
        await asyncio.gather(attack, return_exceptions=True)
        server.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_begins_as_it_says(name: str) -> None:
    data, made = asyncio.run(asyncio.wait_for(first_bytes(name), PATIENCE))
    assert data.startswith(BEGINS[name]) and made >= 1
    if name == "dates":
        assert b"\r\n\r\n" in data and data.count(b"/") > 1000


def test_the_longest_text_is_taken() -> None:
    from qwen3_tts_morph.serve.api.options import Limits

    assert Limits.characters == attack_clients.CHARACTERS


def test_a_row_is_one_level_of_keys() -> None:
    row = attacks.AttackRow(
        "attacks", "morph", "demo", "auto", "float32", 2, "idle", 5, 1, *[1.0] * 8, 0, 1.0, 1.0, 9, 9
    )
    flat = row.flat()
    assert flat["attack"] == "idle" and flat["rtf"] is None and flat["threads_after"] == 9
    assert json.loads(json.dumps(flat)) == flat
    assert attacks.usual_ms([0.1, 0.3, 0.2]) == 200.0


def test_the_options_have_every_attack() -> None:
    assert attacks.parse_arguments(["--device", "cpu"]).attacks == list(ATTACKS)
