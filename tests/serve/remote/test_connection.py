"""Server-sent events, as they come from the network."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")
from qwen3_tts_morph.serve.remote import connection
from qwen3_tts_morph.serve.remote.connection import _events

STREAM = (
    b'event: speech.audio.delta\ndata: {"audio": "' + 600 * b"QUJD" + b'"}\n\n'
    b": a comment\n\n"
    b'data: {"two":\ndata: "lines"}\n\n'
    b'data: {"last": 1}\n\n'
    b'data: {"never": "ended"}\n'
)


def read(stream: bytes, size: int) -> list[dict[str, Any]]:
    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(stream), size):
            yield stream[start : start + size]

    async def collect() -> list[dict[str, Any]]:
        answer: Any = SimpleNamespace(content=SimpleNamespace(iter_any=parts))
        return [event async for event in _events(answer)]

    return asyncio.run(collect())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, len(STREAM)])
def test_events_are_the_same_however_they_are_cut(size: int) -> None:
    assert read(STREAM, size) == [{"audio": 600 * "QUJD"}, {"two": "lines"}, {"last": 1}]


@pytest.mark.parametrize("stream", [b"data: " + 2000 * b"x", 200 * (b"data: " + 20 * b"x" + b"\n")])
def test_an_event_that_does_not_end_is_refused(stream: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_EVENT", 1000)
    with pytest.raises(ValueError, match="does not end"):
        read(stream, 100)
