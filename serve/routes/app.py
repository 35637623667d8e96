"""The server's routes. A recording is cloned on the batch thread, in idle time."""

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import anyio.to_thread
import numpy as np
from fastapi import FastAPI, Query, Request, Response, WebSocket
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from ...morph.model.model import Model
from ...morph.voice.create import CloneOptions, clone_voice
from ...morph.voice.measure import cut_part
from ...morph.voice.recording import LONGEST_READ_S, Reference, prepare_reference
from ...morph.voice.voice import Voice
from ..api.errors import ApiError, as_api_error, fault
from ..api.middleware import AccessGuard, RequestLog, allow_site
from ..api.openapi import BINARY, FAILED, SPOKEN, body_of, describe, render
from ..api.options import Limits, ServerOptions
from ..api.request import OPENAI_MODELS, STREAM_FORMATS, RecordingUpload, Speech, Upload, check_model, read_request
from ..terminal.folders import pack_version
from .answer import SpeechAnswer
from .metrics import CONTENT_TYPE, Metrics
from .speaker import Speaker
from .text_socket import SpeechSocket

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "serve" / "page"
# The page's files by address: no part of an address becomes part of a path.
FILES = {
    "/": PAGE / "index.html",
    **{f"/{path.name}": path for path in sorted(PAGE.iterdir()) if path.suffix in (".js", ".css", ".svg")},
    "/player.js": ROOT / "web" / "js" / "player.js",
}
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
OWNER = "qwen3-tts-morph"
FRAMEWORK_SAID = {
    404: "this address is not known: GET /docs lists those that are",
    405: "this address does not take this method: GET /docs lists those that it takes",
}
Json = dict[str, Any]
SPEECH_JSON = {"application/json": {"schema": {"$ref": "#/components/schemas/Speech"}}}
VOICE_TYPE = "application/octet-stream"  # pages of other sites cannot send it without asking
RECORDING_BYTES = 16 << 20  # of a recording: 60 s of two channels at 48 kHz and 24 bits
MOST_CLONES = 4  # concurrently
WAIT_S = 30.0  # of a clone, for idle time
SOUNDS = ("WAV", "WAVEX", "FLAC", "OGG", "MP3")  # libsndfile's names
RATES = (4_000, 192_000)  # of a recording, in Hz
MOST_CHANNELS = 2
CLONE_FIELDS = ("transcript", "start", "end")  # errors begin with their field


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # anyio imports its part for asyncio at the first call: 10 ms and more.
    await anyio.to_thread.run_sync(int)
    yield
    await anyio.to_thread.run_sync(app.state.speaker.close)


class App(FastAPI):
    """The ASGI application, behind the request log and admission. Its shutdown closes the speaker."""

    def __init__(self, speaker: Speaker, options: ServerOptions):
        self._speaker, self._options = speaker, options
        self._metrics, self._cloner = Metrics(speaker), Cloner(speaker)
        self._began = int(time.time())
        super().__init__(
            title="Qwen3-TTS Morph speech server",
            version=pack_version(),
            docs_url=None,  # its pages load scripts from elsewhere
            redoc_url=None,
            responses=FAILED,
            exception_handlers=dict.fromkeys((ApiError, HTTPException, Exception), on_error),
            lifespan=lifespan,
        )
        self.state.speaker = speaker  # for ``UvicornServer``
        self._add_routes()
        front = RequestLog(AccessGuard(super().__call__, options.access), options.access_log)
        self._front = front if options.access.origin is None else allow_site(front, options.access.origin)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        front = super().__call__ if scope["type"] == "lifespan" else self._front
        await front(scope, receive, send)

    def openapi(self) -> Json:
        if self.openapi_schema is None:
            self.openapi_schema = describe(super().openapi(), self._speaker.model, self._options)
        return self.openapi_schema

    def _add_routes(self) -> None:
        # FastAPI's way to these endpoints, which it describes, takes 0.1 ms more.
        self.add_route("/v1/audio/speech", self.speech, ["POST"], include_in_schema=False)
        self.add_route("/health", self.health, include_in_schema=False)
        asked = body_of(SPEECH_JSON)
        self.post("/v1/audio/speech", response_class=Response, responses=SPOKEN, openapi_extra=asked)(self.speech)
        self.add_api_websocket_route("/v1/audio/speech/stream", self.socket)
        self.get("/v1/audio/voices")(self.voices)
        self.post("/v1/audio/voices", openapi_extra=body_of({VOICE_TYPE: BINARY}))(self.add_voice)
        recording = body_of({"audio/*": BINARY, VOICE_TYPE: BINARY})
        self.post("/v1/audio/voices/clone", openapi_extra=recording)(self.clone_voice)
        self.delete("/v1/audio/voices/{name}")(self.remove_voice)
        self.get("/v1/models")(self.models)
        self.get("/v1/audio/models")(self.models)
        self.get("/v1/models/{id:path}")(self.model)
        self.get("/v1/status")(self.status)
        self.get("/health", response_model=Json)(self.health)
        self.get("/ready", responses={503: {"model": dict[str, bool], "description": "Not yet."}})(self.ready)
        self.get("/metrics", response_class=PlainTextResponse)(self.metrics)
        self.get("/page.json")(self.page_facts)
        self.get("/docs", response_class=HTMLResponse)(self.docs)
        for path in FILES:
            self.add_route(path, self.page)

    async def speech(self, request: Request) -> Response:
        """Speak a text. Text that comes in parts goes to the WebSocket /v1/audio/speech/stream."""
        began = time.perf_counter()
        try:
            fields = Speech.model_validate(await read_json(request, self._options.limits))
            caller = request.client.host if request.client else ""
            read = partial(read_request, fields, self._speaker.model, self._speaker.options, caller)
            # 500 words take 20 ms.
            asked = await anyio.to_thread.run_sync(read) if fields.pronunciation else read()
        except ApiError as error:
            self._metrics.requests.labels(str(error.status)).inc()
            raise
        return SpeechAnswer(self._speaker, asked, self._metrics, began)

    async def socket(self, socket: WebSocket) -> None:
        await socket.accept()
        await SpeechSocket(socket, self._speaker, self._options.access, self._metrics).run()

    async def voices(self) -> Json:
        """The names that a request's voice may have, presets first."""
        data = await anyio.to_thread.run_sync(self._speaker.voices.entries)
        # Open WebUI reads the one, others the other.
        return {"object": "list", "voices": data, "data": data}

    async def add_voice(self, request: Request, query: Annotated[Upload, Query()]) -> Json:
        """Take a voice file (Save Voice writes it) until the server ends."""
        if media_type(request) != VOICE_TYPE:
            raise ApiError(415, f"the content type is not {VOICE_TYPE}: send a voice file's bytes")
        limits = self._options.limits
        content = await read_body(request, limits.voice_bytes, limits.idle_seconds)
        add = self._speaker.voices.add
        name = await anyio.to_thread.run_sync(add, query.name, content, query.replace)
        return {"id": name, "name": name, "kind": "uploaded"}

    async def clone_voice(self, request: Request, query: Annotated[RecordingUpload, Query()]) -> Json:
        """Take the voice of a recording, or of a part of it; with a transcript also the manner of speaking."""
        kind = media_type(request)
        if kind != VOICE_TYPE and not kind.startswith("audio/"):
            raise ApiError(415, f"the content type is neither audio/... nor {VOICE_TYPE}: send a recording")
        if query.best and (query.start or query.end):
            raise ApiError(400, "best chooses the part itself: leave out start and end", "best")
        async with self._cloner.place(query) as name:
            content = await read_body(request, RECORDING_BYTES, self._options.limits.idle_seconds)
            voice = await self._cloner.clone(name, content, query)
        return {"id": name, "name": name, "kind": "uploaded", "notes": list(voice.notes)}

    async def remove_voice(self, name: str) -> Json:
        """Forget an uploaded voice."""
        self._speaker.voices.remove(name)
        return {"id": name, "deleted": True}

    async def models(self) -> Json:
        """The model that is loaded, and OpenAI's names for it."""
        data = [self._model(name) for name in (self._speaker.model.name, *OPENAI_MODELS)]
        return {"object": "list", "data": data, "models": data}  # the second is for Open WebUI

    async def model(self, id: str) -> Json:
        """One of the names that a request's model may have."""
        check_model(id, self._speaker.model)
        return self._model(id)

    def _model(self, name: str) -> Json:
        return {"id": name, "object": "model", "created": self._began, "owned_by": OWNER}

    async def status(self) -> Json:
        """The server's state and abilities, for its page and for clients."""
        status, model = self._speaker.status, self._speaker.model
        return {
            "server": OWNER,
            "model": model.name,
            "kind": model.type,
            "size": model.size,
            "adapters": [{"name": one.name, "strength": one.strength} for one in model.adapters],
            "fingerprint": self._speaker.fingerprint,
            "width": model.width,
            "speakers": model.speakers,
            "languages": model.languages,
            "follows_instructions": model.follows_instructions,
            "sample_rate": model.sample_rate,
            "seq_groups": self._options.seq_groups,
            "rows": status.rows,
            "rows_in_use": status.speaking,
            "waiting": status.waiting,
            "most_lines": self._options.most_lines(status.rows),
            "fields": tuple(Speech.model_fields),
            "stream_formats": STREAM_FORMATS,
            "word_times": model.alignment is not None,
            "can_clone": model.can_clone,
            "most_characters": self._options.limits.characters,
            "most_voice_bytes": self._options.limits.voice_bytes,
            "most_recording_bytes": RECORDING_BYTES,
        }

    async def health(self, _: Request) -> Response:
        """The process answers."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> Response:
        """200 once a line has been spoken, 503 before."""
        ready = self._speaker.is_ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def metrics(self) -> Response:
        """Prometheus' text."""
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def docs(self) -> Response:
        """This API for people, as a page."""
        return HTMLResponse(render(self.openapi()), headers=PAGE_HEADERS)

    async def page_facts(self) -> Json:
        """The facts that the page needs before it has a key."""
        return {"wants_key": bool(self._options.access.key)}

    async def page(self, request: Request) -> Response:
        return FileResponse(FILES[request.url.path], headers=PAGE_HEADERS)


async def on_error(_: Request, error: Any) -> Response:
    """Answer any error in OpenAI's shape, also one of the framework, such as 404."""
    if isinstance(error, HTTPException):
        said = FRAMEWORK_SAID.get(error.status_code, str(error.detail))
        error = ApiError(error.status_code, said, headers=error.headers)
    elif not isinstance(error, ApiError):
        error = fault(error)
    return JSONResponse(error.body, error.status, error.headers)


def media_type(request: Request) -> str:
    """Return a request's content type without its parameters, in lower case; "" if it has none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request, limits: Limits) -> object:
    """Return a request's JSON; ApiError as ``read_body``, 400 for invalid JSON.

    ApiError 415 for another content type: pages of other sites could send it.
    """
    if media_type(request) != "application/json":
        raise ApiError(415, "the content type is not application/json: send JSON")
    try:
        return json.loads(await read_body(request, limits.body_bytes, limits.idle_seconds))
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not JSON: send an object with input and voice") from None


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """Return a body of at most ``most`` bytes; ApiError 413, 408 after ``seconds``, or 400 for half a body."""
    body = bytearray()
    try:
        with anyio.fail_after(seconds):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise ApiError(413, f"the body has more than {most} bytes: send a shorter one")
    except ClientDisconnect:
        raise ApiError(400, "the body ended early") from None
    except TimeoutError:
        raise ApiError(408, f"the body was not complete after {seconds:g} s: send it at once") from None
    return bytes(body)


class Cloner:
    """Clone recordings for clients: a few concurrently, between lines."""

    def __init__(self, speaker: Speaker):
        self._speaker = speaker
        self._places = asyncio.Semaphore(MOST_CLONES)

    @asynccontextmanager
    async def place(self, asked: RecordingUpload) -> AsyncIterator[str]:
        """Reserve one of the clones before a recording is read; yield the name of its voice.

        ApiError 400 for a bad name, or a checkpoint that cannot clone; 409 for a name of the server's own voices; 503
        while others clone, or before the server is ready.
        """
        model = self._speaker.model
        if not model.can_clone:
            raise ApiError(400, f"{model.name} cannot clone voices: start the server with a Base checkpoint")
        if not self._speaker.is_ready or self._places.locked():
            raise _busy()
        async with self._places:
            yield await anyio.to_thread.run_sync(self._speaker.voices.free_name, asked.name, asked.replace)

    async def clone(self, name: str, content: bytes, asked: RecordingUpload) -> Voice:
        """Return the voice of a sound file (``SOUNDS``) and add it to the server's voices.

        A transcript of the requested part clones the manner of speaking too (ICL). ApiError 400 for an unusable
        recording, part or transcript; 503 if the server is never idle.
        """
        model, words = self._speaker.model, asked.transcript.strip()
        try:
            options = CloneOptions("icl" if words else "x_vector", words or None, name=name)
            # All that needs no model comes before the model.
            reference = await anyio.to_thread.run_sync(read_reference, content, asked, model.sample_rate)
            voice = await self._between_lines(model, reference, options)
        except ValueError as error:
            first = str(error).partition(" ")[0]
            raise ApiError(400, str(error), first if first in CLONE_FIELDS else None) from error
        await anyio.to_thread.run_sync(self._speaker.voices.add, name, voice, asked.replace)
        return voice

    async def _between_lines(self, model: Model, reference: Reference, options: CloneOptions) -> Voice:
        work = partial(clone_voice, model, reference.waveform, model.sample_rate, options)
        asked = self._speaker.between_lines(work)
        waiting = asyncio.wrap_future(asked)
        await asyncio.wait((waiting,), timeout=WAIT_S)
        if not waiting.done() and asked.cancel():
            raise _busy()
        try:
            voice = await waiting
        except ValueError:
            raise
        except Exception as error:
            raise as_api_error(error) from error
        return replace(voice, notes=tuple(dict.fromkeys((*reference.notes, *voice.notes))))


def _busy() -> ApiError:
    words = "the server speaks or clones all the time now, and a voice is made between lines: try again"
    return ApiError(503, words, headers={"Retry-After": "10"})


def read_reference(content: bytes, asked: RecordingUpload, sample_rate: int) -> Reference:
    sound, rate = read_sound(content)
    sound, told = cut_part(sound, rate, asked.start, asked.end, asked.best)
    reference = prepare_reference(sound, rate, sample_rate, bool(asked.transcript.strip()))
    return replace(reference, notes=(*told, *reference.notes))


def read_sound(content: bytes) -> tuple[np.ndarray, int]:
    """Return the first 60 s of a sound file as float32 ``[C, T]``, and its rate in Hz.

    ValueError for another kind of file, and for the rate or channels of no real recording: a few bytes may claim to be
    very long audio.
    """
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            if file.format not in SOUNDS:
                raise ValueError(f"the recording is {file.format}: send wav, flac, ogg or mp3")
            if not RATES[0] <= rate <= RATES[1] or channels > MOST_CHANNELS:
                most = f"at most {MOST_CHANNELS} at {RATES[0]} to {RATES[1]} Hz"
                raise ValueError(f"the recording has {channels} channels at {rate} Hz: send {most}")
            return file.read(round(LONGEST_READ_S * rate), dtype="float32", always_2d=True).T, rate
    except (OSError, soundfile.SoundFileError) as error:
        raise ValueError("the recording cannot be read as a sound: send a wav, flac, ogg or mp3 file") from error
