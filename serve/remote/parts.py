"""Read the parts of our server's answer (``serve/routes/answer.py``), however they are cut into packets."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from .told import header_number

MOST_HEADERS = 20  # of a part
JSON, MOST_JSON = "application/json", 1 << 22  # bytes


async def read_parts(content: aiohttp.StreamReader, most: int) -> AsyncIterator[tuple[str, bytes]]:
    """Yield each complete part's media type and bytes, at most ``most`` unless JSON; ValueError if invalid."""
    boundary = await _read_line(content)
    line = boundary
    while line and line == boundary:
        headers = await _read_headers(content)
        kind, size = headers.get("content-type", ""), header_number(headers.get("content-length"))
        if size is None and content.at_eof():
            return
        if size is None or size > (MOST_JSON if kind == JSON else most):
            raise ValueError(f"a part has {headers.get('content-length', 'no number of')!r:.40} bytes")
        try:
            yield kind, await content.readexactly(size)
        except asyncio.IncompleteReadError:
            return
        await _read_line(content)
        line = await _read_line(content)
    if line != boundary + b"--" and line:
        raise ValueError("a part does not begin with the boundary")


async def _read_headers(content: aiohttp.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(MOST_HEADERS):
        if not (line := await _read_line(content)):
            return headers
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    raise ValueError("a part has too many headers")


async def _read_line(content: aiohttp.StreamReader) -> bytes:
    try:
        return (await content.readline()).strip()
    except HttpProcessingError as error:
        raise ValueError("a line of a part does not end") from error
