"""The answer to ``POST /v1/audio/speech``: a stream of bytes, events, one file, a file between parts or in JSON."""

import asyncio
import base64
import json
import logging
import time
from contextlib import closing
from typing import Any

import anyio
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ...morph.audio.formats import SERVED
from ...morph.speech.lines import LineReport
from ...morph.speech.takes import ENDS, RetryPolicy
from ..api.errors import ApiError
from ..api.request import SpeechRequest
from .metrics import Metrics
from .speaker import Speaker, SpeechReader

BOUNDARY = b"morph-tts-part-5f0c1e"
MULTIPART = f"multipart/mixed; boundary={BOUNDARY.decode()}"
END = b"--%b--\r\n" % BOUNDARY
log = logging.getLogger(__name__)
CLIENT_LEFT, TOO_LATE = 499, 504  # the first in the metrics only
GOODBYE_S = 5.0  # for the client to be told that its time is over
CUT = ("cap", "loop")  # how a take ends that is not complete
TOLD_AS = {"sse": "text/event-stream; charset=utf-8", "multipart": MULTIPART, "json": "application/json"}


def write_part(media_type: str, content: bytes) -> bytes:
    """Return a part with its length, so that no client has to search for its end."""
    head = f"Content-Type: {media_type}\r\nContent-Length: {len(content)}\r\n\r\n"
    return b"".join((b"--", BOUNDARY, b"\r\n", head.encode(), content, b"\r\n"))


def write_json_part(kind: str, fields: dict[str, Any]) -> bytes:
    return write_part("application/json", json.dumps({"type": kind, **fields}).encode())


class SpeechAnswer(Response):
    """Speak one request; when its client leaves, the row is free within a frame.

    ``began``: ``time.perf_counter()`` when the request came.
    """

    def __init__(self, speaker: Speaker, asked: SpeechRequest, metrics: Metrics, began: float):
        self._speaker, self._asked, self._metrics, self._began = speaker, asked, metrics, began
        self.background = None  # FastAPI looks at it
        self._started = self._has_sound = False
        self._stopped = 0  # the status of an answer that is over before its end
        self._held = bytearray()  # of the sound, until the next event is due
        self._words: list[dict[str, Any]] = []  # that have ended, until then
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seconds, task = self._speaker.rules.limits.seconds, asyncio.current_task()
        # In this task, and no cancel scope: each takes a part of the time until the first byte.
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
            # A client that takes nothing is not told: its connection is closed for that (``Stalling``).
            with anyio.move_on_after(GOODBYE_S):
                await self._fail(scope, receive, send, ApiError(TOO_LATE, why, code="timeout"))
        self._metrics.answered(status)

    def _stop(self, answering: Any, status: int) -> None:
        self._stopped = status
        answering.cancel()

    async def _watch(self, receive: Receive, answering: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._stop(answering, CLIENT_LEFT)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> int:
        try:
            await (self._send_complete(send) if self._asked.complete else self._send_stream(send))
        except ApiError as error:
            return await self._fail(scope, receive, send, error)
        return 200

    async def _fail(self, scope: Scope, receive: Receive, send: Send, error: ApiError) -> int:
        """Send an error as it can be sent now; return its status."""
        if not self._started:
            await JSONResponse(error.body, error.status, error.headers)(scope, receive, send)
        elif self._asked.way == "sse":
            await self._add_audio(send, b"", complete=True)
            await self._send_event(send, "error", error.body)
            await self._send_bytes(send, b"", more=False)
        elif self._asked.way == "multipart":
            await self._send_bytes(send, write_json_part("error", error.body) + END, more=False)
        else:  # without the last chunk clients see that the sound is not complete
            log.warning("an answer was broken off: %s", error.message)
        return error.status

    # A stream

    async def _send_stream(self, send: Send) -> None:
        asked = self._asked
        with (
            await self._speaker.speak(asked) as reading,
            closing(self._speaker.open_stream(asked.audio)) as encoder,
        ):
            async for part in reading:
                await self._start(send)
                self._words += reading.take_timestamps()
                await self._add_audio(send, await encoder.add(part))
                self._count(len(part))  # after it: a client waits for its first sound
            note_end(self._metrics, reading.report, asked.seed)
            await self._start(send)
            self._words += reading.take_timestamps()
            await self._add_audio(send, await encoder.finish(), complete=True)
            if self._asked.way == "sse":
                await self._send_event(send, "speech.audio.done", self._told(reading))
            check_end(reading.report, asked)
            await self._send_bytes(send, b"", more=False)

    def _told(self, reading: SpeechReader) -> dict[str, Any]:
        asked = self._asked
        report = report_of(reading, self._speaker.describe(asked.generate))
        report["ignored"] = list(asked.ignored)
        wanted = asked.timestamps and asked.complete
        timestamps = {"timestamps": reading.take_timestamps()} if wanted else {}
        return {**timestamps, "usage": usage_of(reading), "report": report}

    async def _start(self, send: Send, **more: str) -> None:
        """Send the headers, once there is something to send: until then errors have a status of their own."""
        if self._started:
            return
        asked, self._started = self._asked, True
        ignored = {"x-speech-ignored": ", ".join(asked.ignored)} if asked.ignored else {}
        headers = {
            **ignored,
            "content-type": TOLD_AS.get(asked.way, SERVED[asked.audio]),
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-speech-seed": str(asked.seed),
            "x-speech-seq-groups": str(asked.generate.seq_groups),
            "x-speech-sample-rate": str(self._speaker.model.sample_rate),
            **more,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})

    async def _add_audio(self, send: Send, data: bytes, complete: bool = False) -> None:
        """Send sound with what was held and its words, or hold it until an event is due."""
        self._held += data
        now = time.perf_counter()
        if complete or now - self._sent_at >= self._asked.interval_s:
            ready, self._held, self._sent_at = bytes(self._held), bytearray(), now
            words, self._words = self._words, []
            if words:
                await self._send_event(send, "speech.audio.timestamps", {"timestamps": words})
            await self._send_audio(send, ready)

    async def _send_audio(self, send: Send, data: bytes) -> None:
        if not data:  # an encoder may hold it back
            return
        if self._asked.way == "sse":
            # As ``_send_event``, without what JSON would do to a megabyte.
            event = b'{"type": "speech.audio.delta", "audio": "%b"}' % base64.b64encode(data)
            await self._send_data(send, "speech.audio.delta", event)
        else:
            await self._send_bytes(send, data)
        self._note_sound()

    async def _send_event(self, send: Send, name: str, fields: dict[str, Any]) -> None:
        await self._send_data(send, name, json.dumps({"type": name, **fields}).encode())

    async def _send_data(self, send: Send, name: str, data: bytes) -> None:
        await self._send_bytes(send, b"event: %b\ndata: %b\n\n" % (name.encode(), data))

    @staticmethod
    async def _send_bytes(send: Send, data: bytes, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": more})

    def _count(self, samples: int) -> None:
        self._metrics.sent(samples / self._speaker.model.sample_rate)

    def _note_sound(self) -> None:
        if not self._has_sound:
            self._has_sound = True
            self._metrics.first_audio(time.perf_counter() - self._began)

    # A complete sound

    async def _send_complete(self, send: Send) -> None:
        asked = self._asked
        with await self._speaker.speak(asked) as reading:
            while not await reading.wait_end(asked.interval_s or None):
                frames, expected = reading.frames
                if frames:  # errors of a line that waits have a status of their own
                    await self._start(send)
                    progress = {"frames": frames, "expected": expected}
                    await self._send_bytes(send, write_json_part("speech.audio.progress", progress))
            whole = await self._speaker.encode(reading, asked.audio)
            told = self._told(reading) if asked.way in TOLD_AS else {}
            ended = reading.report.ended
            note_end(self._metrics, reading.report, asked.seed)
        self._note_sound()
        self._count(whole.samples)
        if asked.way == "multipart":
            done = write_json_part("speech.audio.done", told)
            await self._start(send)
            await self._send_bytes(send, write_part(SERVED[asked.audio], whole.content))
            await self._send_bytes(send, done + END, more=False)
            return
        content = as_json(whole.content, SERVED[asked.audio], told) if asked.way == "json" else whole.content
        await self._start(send, **{"content-length": str(len(content)), "x-speech-ended": ended})
        await self._send_bytes(send, content, more=False)


def as_json(content: bytes, kind: str, told: dict[str, Any]) -> bytes:
    """Return an answer as JSON; the first fields are those of Kokoro-FastAPI's captioned speech."""
    return json.dumps({"audio": base64.b64encode(content).decode(), "audio_format": kind, **told}).encode()


def note_end(metrics: Metrics, report: LineReport, seed: int) -> None:
    """Count how a take ended, and log one that did not end by itself: raw bytes cannot say it. Texts are not logged."""
    metrics.took(report.ended)
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
    """Return OpenAI's counts: tokens of the text, and frames of 80 ms as the tokens of the sound."""
    text, frames = reading.text_tokens, reading.report.frames
    details = {"text_tokens": text, "audio_tokens": 0}
    return {
        "input_tokens": text,
        "output_tokens": frames,
        "total_tokens": text + frames,
        "input_token_details": details,
    }


def report_of(reading: SpeechReader, made_by: tuple[str, ...]) -> dict[str, Any]:
    report = reading.report
    same = {name: getattr(report, name) for name in ("frames", "seconds", "ended", "pieces", "spoken")}
    readings = {one.shown: one.read for one in report.readings}
    return {**same, "notes": list(report.notes), "made_by": list(made_by), "readings": readings}
