"""The answer to ``POST /v1/audio/speech``: a stream of bytes, events, one file, a file between parts or in JSON."""

import asyncio
import base64
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from typing import Any

import anyio
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ...morph.audio.formats import SERVED
from ...morph.speech.lines import ENDS, LineReport
from ...morph.speech.takes import RetryPolicy
from ..api.errors import ApiError
from ..api.request import SpeechRequest
from .metrics import Metrics
from .speaker import Speaker, SpeechReader

BOUNDARY = b"morph-tts-part-5f0c1e"
MULTIPART = f"multipart/mixed; boundary={BOUNDARY.decode()}"
END = b"--%b--\r\n" % BOUNDARY
log = logging.getLogger(__name__)
CLIENT_LEFT, TOO_LATE = 499, 504  # the first in the metrics only
GOODBYE_S = 5.0  # to send a client the error that its time is over
CUT = ("cap", "loop")  # ends of a take that was cut off
MEDIA_TYPES = {"sse": "text/event-stream; charset=utf-8", "multipart": MULTIPART, "json": "application/json"}


def write_part(media_type: str, content: bytes) -> bytes:
    """Return a part with its length: clients need not search for its end."""
    head = f"Content-Type: {media_type}\r\nContent-Length: {len(content)}\r\n\r\n"
    return b"".join((b"--", BOUNDARY, b"\r\n", head.encode(), content, b"\r\n"))


def write_json_part(kind: str, fields: dict[str, Any]) -> bytes:
    return write_part("application/json", json.dumps({"type": kind, **fields}).encode())


def write_event(name: str, fields: dict[str, Any]) -> bytes:
    return _event(name, json.dumps({"type": name, **fields}).encode())


def _event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


class SpeechAnswer(Response):
    """Speak one request; when its client leaves, the row is free within a frame.

    ``began``: ``time.perf_counter()`` when the request came.
    """

    def __init__(self, speaker: Speaker, asked: SpeechRequest, metrics: Metrics, began: float):
        self._speaker, self._asked, self._metrics, self._began = speaker, asked, metrics, began
        self.background = None  # FastAPI looks at it
        self._started = self._has_sound = False
        self._stopped = 0  # the status of a stopped answer
        self._held, self._words = bytearray(), list[dict[str, Any]]()  # until the next event is due
        self._head = {
            **({"x-speech-ignored": ", ".join(asked.ignored)} if asked.ignored else {}),
            "content-type": MEDIA_TYPES.get(asked.fields.stream_format, SERVED[asked.fields.response_format]),
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-speech-seed": str(asked.seed),
            "x-speech-seq-groups": str(asked.generate.seq_groups),
            "x-speech-sample-rate": str(speaker.model.sample_rate),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seconds, task = self._speaker.options.limits.seconds, asyncio.current_task()
        # Another task or a cancel scope would delay the first byte.
        late = asyncio.get_running_loop().call_later(seconds, self._stop, task, TOO_LATE)
        leaving = asyncio.ensure_future(self._watch(receive, task))
        try:
            status = await self._answer(scope, receive, send)
        except asyncio.CancelledError:
            if not self._stopped:  # the server's end
                raise
            status = self._stopped
        finally:
            late.cancel()
            leaving.cancel()
        if self._stopped == TOO_LATE:
            why = f"the answer took longer than {seconds:g} s: send the text in parts"
            # ``Stalling`` disconnects a client that reads nothing.
            with anyio.move_on_after(GOODBYE_S):
                await self._fail(scope, receive, send, ApiError(TOO_LATE, why, code="timeout"))
        self._metrics.requests.labels(str(status)).inc()

    def _stop(self, answering: Any, status: int) -> None:
        self._stopped = status
        answering.cancel()

    async def _watch(self, receive: Receive, answering: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._stop(answering, CLIENT_LEFT)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> int:
        try:
            with await self._speaker.speak(self._asked) as reading:
                async for data in (self._complete if self._asked.complete else self._stream)(reading):
                    await self._send(send, data)
                await self._send(send, b"", more=False)
        except ApiError as error:
            return await self._fail(scope, receive, send, error)
        return 200

    async def _fail(self, scope: Scope, receive: Receive, send: Send, error: ApiError) -> int:
        """Send an error, in the stream if that has begun; return its status."""
        if not self._started:
            await JSONResponse(error.body, error.status, error.headers)(scope, receive, send)
        elif self._asked.fields.stream_format == "sse":
            await self._send(send, self._take_held() + write_event("error", error.body), more=False)
        elif self._asked.fields.stream_format == "multipart":
            await self._send(send, write_json_part("error", error.body) + END, more=False)
        else:  # clients notice that the last chunk is missing
            log.warning("an answer was broken off: %s", error.message)
        return error.status

    async def _send(self, send: Send, data: bytes, more: bool = True) -> None:
        """Send data, after the headers with the first of it: errors before it have their own status."""
        if not self._started:
            self._started = True
            raw = [(name.encode(), value.encode()) for name, value in self._head.items()]
            await send({"type": "http.response.start", "status": 200, "headers": raw})
        if data or not more:
            await send({"type": "http.response.body", "body": data, "more_body": more})

    def _result(self, reading: SpeechReader) -> dict[str, Any]:
        asked, report = self._asked, reading.report
        same = ("frames", "seconds", "ended", "pieces", "spoken", "notes")
        told = {
            **{name: getattr(report, name) for name in same},
            "made_by": self._speaker.describe(asked.generate),
            "readings": {one.shown: one.read for one in report.readings},
            "ignored": asked.ignored,
        }
        words = {"timestamps": reading.take_timestamps()} if asked.fields.return_timestamps and asked.complete else {}
        return {**words, "usage": usage_of(reading), "report": told}

    def _note_audio(self) -> None:
        if not self._has_sound:
            self._has_sound = True
            self._metrics.first_audio_s.observe(time.perf_counter() - self._began)

    async def _stream(self, reading: SpeechReader) -> AsyncIterator[bytes]:
        """Yield a stream's audio, or its events, which wait until they are due."""
        asked, sent_at = self._asked, 0.0
        async for words, data in encoded(self._speaker, reading, asked, self._metrics):
            self._words += words
            self._held += data
            if (now := time.perf_counter()) - sent_at >= asked.fields.event_interval:
                sent_at = now if self._held else sent_at  # an encoder may hold the audio back
                yield self._take_held()
        yield self._take_held()
        if asked.fields.stream_format == "sse":
            yield write_event("speech.audio.done", self._result(reading))
        check_end(reading.report, asked)

    def _take_held(self) -> bytes:
        """Return the audio and the words that were not sent yet."""
        if self._held:
            self._note_audio()
        ready = write_event("speech.audio.timestamps", {"timestamps": self._words}) if self._words else b""
        if self._asked.fields.stream_format != "sse":
            ready += self._held
        elif self._held:
            # JSON's encoder would search a megabyte of base64 for characters to escape.
            audio = b'{"type": "speech.audio.delta", "audio": "%b"}' % base64.b64encode(self._held)
            ready += _event("speech.audio.delta", audio)
        self._held.clear()
        self._words.clear()
        return ready

    async def _complete(self, reading: SpeechReader) -> AsyncIterator[bytes]:
        """Yield a complete file, with the progress before it and the report after it if it comes in parts."""
        asked, fields = self._asked, self._asked.fields
        while not await reading.wait_end(fields.event_interval or None):
            frames, expected = reading.frames
            if frames:  # errors of a queued line have their own status
                yield write_json_part("speech.audio.progress", {"frames": frames, "expected": expected})
        encode = partial(reading.encode, fields.response_format)
        content, samples = await self._speaker.encoders.run(fields.response_format, encode)
        result = self._result(reading) if fields.stream_format in MEDIA_TYPES else {}
        kind = SERVED[fields.response_format]
        note_end(self._metrics, reading.report, asked.seed)
        self._note_audio()
        self._metrics.audio_s.inc(samples / self._speaker.model.sample_rate)
        if fields.stream_format == "multipart":
            yield write_part(kind, content)
            yield write_json_part("speech.audio.done", result) + END
            return
        if fields.stream_format == "json":  # the first two fields are those of Kokoro-FastAPI's captioned speech
            audio = base64.b64encode(content).decode()
            content = json.dumps({"audio": audio, "audio_format": kind, **result}).encode()
        self._head.update({"content-length": str(len(content)), "x-speech-ended": reading.report.ended})
        yield content


async def encoded(
    speaker: Speaker, reading: SpeechReader, asked: SpeechRequest, metrics: Metrics
) -> AsyncIterator[tuple[list[dict[str, Any]], bytes]]:
    """Yield the new words and the encoded audio of a stream, and count them."""
    with closing(speaker.encoders.open_stream(asked.fields.response_format, speaker.model.sample_rate)) as encoder:
        async for part in reading:
            yield reading.take_timestamps(), await encoder.add(part)
            metrics.audio_s.inc(len(part) / speaker.model.sample_rate)
        note_end(metrics, reading.report, asked.seed)
        yield reading.take_timestamps(), await encoder.finish()


def note_end(metrics: Metrics, report: LineReport, seed: int) -> None:
    """Count how a take ended; log an unusual end, without its text: a stream of raw bytes cannot report it."""
    metrics.takes.labels(report.ended).inc()
    if report.ended != ENDS[0]:
        log.info("a take ended as %r after %.2f s, seed %d", report.ended, report.seconds, seed)


def check_end(report: LineReport, asked: SpeechRequest) -> None:
    """Raise ApiError for a stream whose speech was cut off, unless the request's own limit did it."""
    sampling = asked.generate.sampling
    own_limit = None if sampling is None else sampling.line_frames
    if report.ended in CUT and RetryPolicy(0, own_limit).is_wrong(report.ended, report.frames):
        message = f"the speech was cut off ({report.ended}): send another seed, or the text in parts"
        raise ApiError(500, message, "input", "speech_cut")


def usage_of(reading: SpeechReader) -> dict[str, Any]:
    """Return OpenAI's counts: tokens of the text, and frames of 80 ms as audio tokens."""
    text, frames = reading.text_tokens, reading.report.frames
    return {
        "input_tokens": text,
        "output_tokens": frames,
        "total_tokens": text + frames,
        "input_token_details": {"text_tokens": text, "audio_tokens": 0},
    }
