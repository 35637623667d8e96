"""HTTP with one server: its facts, uploads, one attempt at a line, errors, and retries. Redirects are not followed."""

import asyncio
import base64
import io
import logging
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from concurrent import futures
from concurrent.futures import Future
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import aiohttp
import numpy as np
import soundfile
from aiohttp.http_exceptions import HttpProcessingError

from ...morph.batch.speech import OutOfService
from ...morph.options import FRAME_RATE
from ...morph.voice.file import save_voice
from ...morph.voice.voice import Voice
from ...morph.words.timing import WordTime
from ...postprocess.convert import resample
from ...postprocess.ends import trim_ends
from ...postprocess.join import concatenate
from ..terminal.console import one_line
from .facts import RATES, SAMPLE_RATE, Event, ReportedLine, ServerFacts, header_number, parse, read, read_facts
from .payload import SpeechJob, uploaded_name
from .servers import Server, key_variable

log = logging.getLogger(__name__)

CONNECT_S = 10.0
SILENT_S = 600.0  # without a byte: a line may be queued at the server
ASKED_S = 15.0  # for a question without speech
MOST_ERROR = 1 << 16  # bytes of an answer without audio
MOST_FACTS = 1 << 22  # bytes of a server's facts
MOST_BYTES = 1 << 30  # of a line's audio: hours
MOST_SAMPLES = 1 << 28  # of all channels, in memory: three hours
MOST_EVENT = 1 << 26  # bytes: a minute of silence as base64 has 4 MB
TOKENS_HEADER = "x-vllm-omni-output-tokens"  # frames
UPDATE = "update the program there, or the pack here"
FRAMES_OFF = 3  # between the tokens and the length of the sound
MOST_HEADERS = 20  # of a part, with its boundary
JSON, MOST_JSON = "application/json", 1 << 22  # bytes

TRY_AGAIN = (408, 429, 502, 503, 504)
NO_KEY, FORBIDDEN, NOT_FOUND, FAILED = 401, 403, 404, 500
NO_END = "codec EOS"  # vLLM-Omni's words for a line that did not end; another seed helps
LONGEST = 300  # characters of a server's words

FIRST_ATTEMPTS = 4  # of the first question: 3.5 s in all, because rarely a server is just starting
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
TOLD_AT = 3  # the attempt whose failure is logged: the wait gets noticeable
WAITING = "%s; it is asked again for %s"
LOOKS_EVERY_S = 0.02

TO_FLOAT = np.float32(1 / 32768)
AUDIO = ("speech.audio.delta", "speech.audio.timestamps")  # types of events
T = TypeVar("T")
Items: TypeAlias = AsyncIterator[Any]
"""The items of an answer: JSON of events and parts, and the bytes of a part that is audio."""


class ServerGone(OutOfService, ConnectionError):
    """No line can be spoken at the server any more; the message is that of a ``Failure``."""


@dataclass(eq=False)
class Failure(Exception):
    """A failed attempt, and what helps. Its text is one sentence: the server, and ``what`` with the fix."""

    server: Server
    what: str
    again: bool = False  # the same request later
    after_s: float | None = None  # the wait that the server asks for
    new_seed: bool = False
    upload: bool = False  # upload the voice: the server does not know it (any more)
    ends_all: bool = False  # no line can be spoken: after the attempts the whole run ends
    listens: bool = True  # False if nothing listens at the address, as while a server starts

    def __str__(self) -> str:
        return one_line(f"server {self.server} {self.what}")

    def for_people(self) -> ConnectionError:
        error = (ServerGone if self.ends_all else ConnectionError)(str(self))
        error.__cause__ = self
        return error


def of_status(server: Server, status: int, body: Any, headers: Mapping[str, str]) -> Failure:
    """Return the failure of an answer other than 200; ``body`` is its JSON, or None."""
    words, code = read_error(body)
    said = f": {words}" if words else ""
    if status == NO_KEY:
        fix = f"set {key_variable(server.name)} in the environment and restart"
        return Failure(server, f"does not accept the key, or wants one: {fix}", ends_all=True)
    if status == FORBIDDEN:
        return Failure(server, f"refused this computer (403){said}", ends_all=True)
    if status in TRY_AGAIN:
        why = "is busy" if status == 429 else f"could not answer ({status})"
        after = header_number(headers.get("Retry-After"))
        return Failure(server, why + said, again=True, after_s=after)
    if status == NOT_FOUND and not words:
        return Failure(server, "has no /v1/audio/speech (404): correct its address", ends_all=True)
    if status == NOT_FOUND:
        return Failure(server, f"refused the line{said}", upload=code == "voice_not_found")
    if status == FAILED and body is None:  # from its proxy: a replica has died
        return Failure(server, "could not answer (500)", again=True)
    if status == FAILED and NO_END in words:
        return Failure(server, f"did not end the line{said}: try another seed", new_seed=True)
    did = "failed at" if status >= FAILED else "refused"
    return Failure(server, f"{did} the line ({status}){said}")


def read_error(body: Any) -> tuple[str, str]:
    """Return message and code of an error: OpenAI's, a string (vLLM's 401), or FastAPI's ``detail``."""
    error = body.get("error", body.get("detail")) if isinstance(body, dict) else None
    code = error.get("code") if isinstance(error, dict) else ""
    words = error.get("message") if isinstance(error, dict) else error
    return one_line(str(words or ""))[:LONGEST], str(code or "")


@dataclass(frozen=True)
class AnswerListener:
    """Gets a line's audio and progress before its end."""

    # Each chunk, float32 ``[n]``; the next one is read after it returns: the server waits for slow listeners.
    on_audio: Callable[[np.ndarray], Awaitable[None]]
    on_frames: Callable[[int, int], None]  # finished and expected frames of an offline line


@dataclass(frozen=True)
class Answer:
    """A line as the server spoke it."""

    waveform: np.ndarray  # float32 ``[T]``
    sample_rate: int
    report: ReportedLine  # of our server, or an empty one
    words: tuple[WordTime, ...] = ()


class Connection:
    """Requests to one server. Use it inside ``connect``."""

    def __init__(self, server: Server, session: aiohttp.ClientSession):
        self._server, self._session = server, session

    async def ask(self) -> ServerFacts:
        """Return the server's facts; ``Failure`` if it cannot be reached, or is no speech server."""
        status = await self._get("/v1/status")
        voices, models = await self._get("/v1/audio/voices"), await self._get("/v1/models")
        if voices is None and models is None:
            raise self._failure("is no speech server: correct its address", ends_all=True)
        # Many frameworks write an OpenAPI document.
        schema = None if status else await self._get("/openapi.json", range(201, 600))
        try:
            return read_facts(self._server, status, voices, models, schema)
        except ValueError as error:
            raise self._failure(f"sent a status that this version cannot read ({error}): {UPDATE}") from error

    async def _get(self, path: str, missing: Collection[int] = (404, 405, 501)) -> dict[str, Any] | None:
        limit = aiohttp.ClientTimeout(total=ASKED_S, connect=CONNECT_S)
        async with self._request("GET", path, missing, timeout=limit) as answer:
            body = await _read_json(answer, MOST_FACTS) if answer.status == 200 else None
            return body if isinstance(body, dict) else None

    async def upload(self, voice: Voice) -> None:
        """Send a voice; the caller has the consent of the person whose voice it is."""
        query = {"name": uploaded_name(voice), "consent": "true"}
        kind = {"Content-Type": "application/octet-stream"}
        with tempfile.TemporaryDirectory(prefix="morph-voice-") as folder:
            path = Path(folder, "voice.safetensors")
            save_voice(voice, path)
            content = path.read_bytes()
        async with self._request("POST", "/v1/audio/voices", params=query, data=content, headers=kind):
            pass

    async def speak(self, job: SpeechJob, listener: AnswerListener) -> Answer:
        """Make one attempt at a line; ``Failure`` for any error, also for incomplete audio."""
        async with self._request("POST", "/v1/audio/speech", json=job.request) as answer:
            try:
                if not job.streams:
                    return await self._read_file(answer, job, listener)
                items = _parts(answer) if job.offline else _events(answer)
                return await self._read_items(answer.headers.get("x-speech-sample-rate"), items, job, listener)
            except ValueError as error:
                raise self._failure(f"sent what cannot be read ({error}): {UPDATE}") from error

    async def _read_items(self, rate: str | None, items: Items, job: SpeechJob, listener: AnswerListener) -> Answer:
        """Read an answer of our server: events, or parts."""
        if rate is not None and header_number(rate) != job.sample_rate:
            raise self._failure(f"sends {rate[:20]} Hz and says {job.sample_rate} Hz of itself: {UPDATE}")
        chunks: list[np.ndarray] = []
        words: tuple[WordTime, ...] = ()
        size = 0
        async for item in items:
            event = Event(type=AUDIO[0]) if isinstance(item, bytes) else read(Event, item)
            pcm = item if isinstance(item, bytes) else base64.b64decode(event.audio, validate=True)
            if pcm:
                size += len(pcm)
                if size > MOST_BYTES:
                    raise ValueError("the line does not end")
                chunks.append(np.frombuffer(pcm, "<i2") * TO_FLOAT)
                await listener.on_audio(chunks[-1])
            words += event.words(job.text, words[-1].end_s if words else 0.0)
            if event.type == "speech.audio.progress":
                listener.on_frames(event.frames, event.expected)
            elif event.type == "speech.audio.done":
                return self._answer(concatenate(chunks), job.sample_rate, event.report, words)
            elif event.type not in AUDIO:
                raise of_status(self._server, 500, item, {})
        raise self._failure("broke off the line before its end", again=True)

    async def _read_file(self, answer: aiohttp.ClientResponse, job: SpeechJob, listener: AnswerListener) -> Answer:
        tokens = header_number(answer.headers.get(TOKENS_HEADER))
        try:
            samples, rate = _samples(await _read_most(answer, MOST_BYTES))
        except soundfile.SoundFileError as error:
            raise self._failure("sent a sound that cannot be read", again=True) from error
        seconds = len(samples) / rate
        if tokens and abs(tokens / FRAME_RATE - seconds) > FRAMES_OFF / FRAME_RATE:
            raise self._failure(f"sent {seconds:.1f} s of a sound of {tokens / FRAME_RATE:.1f} s", again=True)
        waveform = resample(samples.mean(axis=1), rate, SAMPLE_RATE)
        if job.trim_ends:
            waveform = trim_ends(waveform, SAMPLE_RATE)[0]
        await listener.on_audio(waveform)
        return self._answer(waveform, SAMPLE_RATE, ReportedLine())

    def _answer(self, waveform: np.ndarray, *more: Any) -> Answer:
        if not len(waveform):
            raise self._failure("sent no sound: try another seed", new_seed=True)
        return Answer(waveform, *more)

    def _failure(self, what: str, **remedy: bool) -> Failure:
        return Failure(self._server, what, **remedy)

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, passed: Collection[int] = (), **more: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield an answer with status 200, or one of ``passed``; ``Failure`` for any other."""
        try:
            url = self._server.url + path
            async with self._session.request(method, url, allow_redirects=False, **more) as answer:
                if answer.status != 200 and answer.status not in passed:
                    raise of_status(self._server, answer.status, await _read_json(answer), answer.headers)
                yield answer
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            what = f"cannot be reached ({reason}): start it, or correct its address"
            refused = isinstance(getattr(error, "os_error", None), ConnectionRefusedError)
            raise self._failure(what, again=True, ends_all=True, listens=not refused) from error
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            what = f"broke the connection ({type(error).__name__}): try again"
            raise self._failure(what, again=True) from error


@asynccontextmanager
async def connect(server: Server, in_flight: int = 4) -> AsyncIterator[Connection]:
    """Yield the connection to a server, with ``in_flight`` concurrent requests."""
    headers = {"User-Agent": "qwen3-tts-morph"}
    if server.key:
        headers["Authorization"] = f"Bearer {server.key}"
    limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S)
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(headers=headers, timeout=limits, connector=connector) as session:
        yield Connection(server, session)


async def _read_json(answer: aiohttp.ClientResponse, most: int = MOST_ERROR) -> Any:
    try:
        return parse(await _read_most(answer, most))
    except ValueError:
        return None


async def _read_most(answer: aiohttp.ClientResponse, most: int) -> bytes:
    content = bytearray()
    async for part in answer.content.iter_any():
        content += part
        if len(content) > most:
            raise ValueError(f"more than {most} bytes")
    return bytes(content)


async def _events(answer: aiohttp.ClientResponse) -> Items:
    """Yield the JSON of server-sent events; ValueError for invalid ones.

    Every byte is searched only once: audio events have a megabyte.
    """
    data: list[bytes] = []  # of this event
    begun: list[bytes] = []  # parts of a line
    size = 0
    async for part in answer.content.iter_any():
        *ends, rest = part.split(b"\n")
        size += len(part)
        for end in ends:
            line, begun = b"".join((*begun, end)), []
            if line.startswith(b"data:"):
                data.append(line[5:])
            elif not line.strip() and data:
                yield parse(b"".join(data))
                data, size = [], len(rest)
        begun.append(rest)
        if size > MOST_EVENT:
            raise ValueError("an event does not end")


def _samples(content: bytes) -> tuple[np.ndarray, int]:
    """Return a sound file's samples, float32 ``[T, C]``, and its rate in Hz; SoundFileError for a damaged one.

    Raises ValueError for a file that is no speech: its header may claim more samples than memory holds.
    """
    with soundfile.SoundFile(io.BytesIO(content)) as file:
        if not RATES[0] <= file.samplerate <= RATES[1]:
            raise ValueError(f"its rate is {file.samplerate} Hz")
        if file.frames * file.channels > MOST_SAMPLES:
            raise ValueError(f"it has {file.frames} samples")
        samples: np.ndarray = file.read(dtype="float32", always_2d=True)
    if not np.isfinite(samples).all():
        raise ValueError("some of its samples are no numbers")
    return samples, file.samplerate


async def _parts(answer: aiohttp.ClientResponse) -> Items:
    """Yield the JSON or the bytes of each complete part; ValueError if invalid."""
    content = answer.content
    while not content.at_eof():
        headers = await _read_headers(content)
        kind, size = headers.get("content-type", ""), header_number(headers.get("content-length"))
        if size is None and content.at_eof():
            return
        if size is None or size > (MOST_JSON if kind == JSON else MOST_BYTES):
            raise ValueError(f"a part has {headers.get('content-length', 'no number of')!r:.40} bytes")
        try:
            part = await content.readexactly(size)
            await content.readexactly(len(b"\r\n"))
        except asyncio.IncompleteReadError:
            return
        yield parse(part) if kind == JSON else part


async def _read_headers(content: aiohttp.StreamReader) -> dict[str, str]:
    """Return a part's headers, after its boundary; ValueError for more than MOST_HEADERS, or one that does not end."""
    headers: dict[str, str] = {}
    for _ in range(MOST_HEADERS):
        try:
            line = await content.readline()
        except HttpProcessingError as error:
            raise ValueError("a line of a part does not end") from error
        if not line.strip():
            return headers
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    raise ValueError("a part has too many headers")


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="remote speech", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def close(self) -> None:
        """Cancel all tasks, and wait for the thread's end."""
        with suppress(RuntimeError):  # it is closed
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self.loop.run_forever()
        if tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(tasks))
        self.loop.close()


async def retry(
    work: Callable[[], Awaitable[T]],
    attempts: int,
    may_help: Callable[[Failure], bool],
    warn: Callable[[Failure], None],
) -> T:
    """Return the result of ``work``, after up to ``attempts`` attempts; raise the last ``Failure``."""
    for attempt in range(1, attempts):
        try:
            return await work()
        except Failure as error:
            if not may_help(error):
                raise
            if attempt == TOLD_AT:
                warn(error)
            after_s = error.after_s
        wait_s = FIRST_WAIT_S * 2 ** (attempt - 1) if after_s is None else after_s
        await asyncio.sleep(min(wait_s, LONGEST_WAIT_S))
    return await work()


def ask_server(server: Server, on_wait: Callable[[], None] = lambda: None, attempts: int = 1) -> ServerFacts:
    """Return a server's facts; ConnectionError, with its name and the fix, if it is no reachable speech server.

    ``on_wait`` is called meanwhile, and ends the wait if it raises. ``attempts``: while nothing listens there.
    """
    with closing(LoopThread()) as thread:
        asked = thread.run(ask(server, attempts))
        while not futures.wait([asked], LOOKS_EVERY_S).done:
            on_wait()
    try:
        return asked.result()
    except Failure as error:
        raise error.for_people() from error


async def ask(server: Server, attempts: int = 1) -> ServerFacts:
    """Return a server's facts; ``Failure`` if it does not answer. Retry while nothing listens at its address."""

    async def attempt() -> ServerFacts:
        async with connect(server) as connection:
            return await connection.ask()

    return await retry(
        attempt,
        attempts,
        lambda error: error.again and not error.listens,
        lambda error: log.warning(WAITING, error, "a few seconds"),
    )
