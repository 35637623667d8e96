"""``WS /v1/audio/speech/stream``: stream text in and audio out.

The client sends JSON: ``session.config`` (a request's fields without its text), any number of ``input.text``, then
``input.done``; ``cancel`` ends the speech. It gets ``audio.start``, binary messages, ``audio.timestamps`` before the
audio of their words if requested, ``audio.done`` and ``session.done``, or ``error``.
"""

import asyncio
import json
import logging
import queue
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

import anyio
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from ...morph.options import LAYOUTS
from ..api.errors import ApiError
from ..api.middleware import admit, may_pass, slow_down, unauthorized
from ..api.options import Access
from ..api.request import SessionConfig, SpeechRequest, read_settings, read_silence
from .answer import GOODBYE_S, check_end, encoded, usage_of
from .metrics import Metrics
from .speaker import Speaker, SpeechReader

log = logging.getLogger(__name__)
CONFIG = "session.config"
NORMAL, INTERNAL, POLICY = 1000, 1011, 1008  # close codes


class ArrivingText:
    """Text added by one thread and read by another; at most ``longest`` characters in all."""

    def __init__(self, longest: int):
        self._longest = self._left = longest
        self._open = ""  # after the last closing bracket: the next part may complete it
        self._silence = 0.0
        self._parts: queue.SimpleQueue[str | None] = queue.SimpleQueue()  # None: its end
        self._text: list[str] = []

    def put(self, part: str) -> None:
        """Add a part; ApiError 413 for too much text, 400 for a wrong pause or too much silence in all."""
        self._left -= len(part)
        if self._left < 0:
            raise ApiError(413, f"the text has more than {self._longest} characters: open a socket per part", "text")
        tail = self._open + part
        complete = tail.rfind("]") + 1
        self._silence = read_silence(tail[:complete], "text", self._silence)
        self._open = tail[complete:]
        self._text.append(part)
        self._parts.put(part)

    def __str__(self) -> str:
        return "".join(self._text)

    def end(self) -> None:
        """Release the reader: the text is complete, or the rest is not wanted. May be called again."""
        self._parts.put(None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts.get, None)


class _Left(Exception):
    """The client has closed the socket, or cancelled."""


class SpeechSocket:
    """One WebSocket, accepted, from its first message to its end."""

    def __init__(self, socket: WebSocket, speaker: Speaker, access: Access, metrics: Metrics):
        self._socket, self._speaker, self._access, self._metrics = socket, speaker, access, metrics
        self._text = ArrivingText(speaker.options.limits.characters)

    async def run(self) -> None:
        limits, status = self._speaker.options.limits, 499
        try:
            with anyio.fail_after(limits.seconds):
                await self._converse()
            status = 200
            await self._socket.close(NORMAL)
        except ApiError as error:
            status = error.status
            await self._fail(error)
        except TimeoutError:
            status = 504
            why = f"the socket was open for {limits.seconds:g} s: open another"
            await self._fail(ApiError(504, why, code="timeout"))
        except (_Left, WebSocketDisconnect):
            log.debug("a WebSocket's client has left")
        finally:
            self._text.end()
            self._metrics.requests.labels(str(status)).inc()
            if self._socket.application_state is not WebSocketState.DISCONNECTED:
                with suppress(WebSocketDisconnect, RuntimeError), anyio.move_on_after(GOODBYE_S):
                    await self._socket.close(NORMAL)

    async def _converse(self) -> None:
        asked = await self._read_config(await self._receive(self._speaker.options.limits.idle_seconds))
        if await self._take_text(await self._receive()):
            raise ApiError(400, "the text is empty: send input.text before input.done", "text")
        with await self._speaker.speak(asked) as reading:
            taking = asyncio.ensure_future(self._take_texts())
            sending = asyncio.ensure_future(self._send_speech(reading, asked))
            try:
                await asyncio.wait((taking, sending), return_when=asyncio.FIRST_COMPLETED)
            finally:
                taking.cancel()
                sending.cancel()
                ends = await asyncio.gather(taking, sending, return_exceptions=True)
        failed = [end for end in ends if isinstance(end, Exception)]
        if failed and ends[1] is not None:
            raise failed[0]

    # In

    async def _receive(self, idle: float | None = None) -> dict[str, Any]:
        """Return the next message; ApiError 400 if it is no JSON object, 408 if none comes for ``idle`` seconds."""
        idle = self._speaker.options.limits.pause_seconds if idle is None else idle
        try:
            with anyio.fail_after(idle):
                message = await self._socket.receive()
        except TimeoutError:
            raise ApiError(408, f"no message came for {idle:g} s: send input.done when the text is over") from None
        if message["type"] == "websocket.disconnect":
            raise _Left
        try:
            said = json.loads(message.get("text") or "")
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or not isinstance(said.get("type"), str):
            raise ApiError(400, f'a message is not JSON with a type: begin with {{"type": "{CONFIG}"}}')
        return said

    async def _read_config(self, message: dict[str, Any]) -> SpeechRequest:
        if message["type"] != CONFIG:
            raise ApiError(400, f"the first message is {message['type'][:40]!r}: send {CONFIG} first", "type")
        if not may_pass(self._access, self._socket.headers, message.get("api_key")):
            await slow_down()
            raise unauthorized()
        admit(self._socket.scope)
        fields = SessionConfig.model_validate(message)
        if fields.layout == LAYOUTS[1] and fields.pronunciation:
            why = "pronunciation needs whole sentences: choose layout sentence, or leave it out"
            raise ApiError(400, why, "pronunciation")
        how = {"layout": fields.layout, "caller": self._socket.client.host if self._socket.client else ""}
        return read_settings(fields, self._speaker.model, self._speaker.options, self._text, **how)

    async def _take_text(self, message: dict[str, Any]) -> bool:
        """Admit one message after the first; return whether the text is over. ``cancel`` raises _Left."""
        kind = message["type"]
        if kind == "input.done":
            self._text.end()
            return True
        if kind == "cancel":
            raise _Left
        part = message.get("text")
        if kind != "input.text":
            raise ApiError(400, f"message {kind[:40]!r} is not known here: send input.text with a text, or input.done")
        if not isinstance(part, str):
            raise ApiError(400, "the text of input.text is no string: send input.text with a text", "text")
        self._text.put(part)
        return False

    async def _take_texts(self) -> NoReturn:
        """Admit all text, then wait for the client; raises ApiError, or _Left."""
        while not await self._take_text(await self._receive()):
            pass
        while (await self._socket.receive())["type"] != "websocket.disconnect":
            pass
        raise _Left

    # Out

    async def _send_speech(self, reading: SpeechReader, asked: SpeechRequest) -> None:
        began, rate, is_first = time.perf_counter(), self._speaker.model.sample_rate, True
        start = {"format": asked.fields.response_format, "sample_rate": rate, "seed": asked.seed}
        await self._send("audio.start", start)
        async for words, data in encoded(self._speaker, reading, asked, self._metrics):
            if words:
                await self._send("audio.timestamps", {"timestamps": words})
            if data:
                await self._socket.send_bytes(data)
                if is_first:
                    self._metrics.first_audio_s.observe(time.perf_counter() - began)
                    is_first = False
        report = reading.report
        done = {"text": report.text, "ended": report.ended, "ignored": asked.ignored}
        await self._send("audio.done", {"samples": round(report.seconds * rate), **done})
        check_end(report, asked)
        await self._send("session.done", {"usage": usage_of(reading)})

    async def _send(self, kind: str, fields: dict[str, Any]) -> None:
        await self._socket.send_text(json.dumps({"type": kind, **fields}))

    async def _fail(self, error: ApiError) -> None:
        """Send an error, and close; give up on a client that has left or reads nothing."""
        with suppress(WebSocketDisconnect), anyio.move_on_after(GOODBYE_S):
            await self._send("error", {"message": error.message, **error.body})
            await self._socket.close(INTERNAL if error.status >= 500 else POLICY)
