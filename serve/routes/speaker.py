"""The model behind the routes: requests become lines of a ``Batch``, whose chunks an event loop reads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import anyio.to_thread
import numpy as np
import torch

from ...morph.audio.formats import FORMATS
from ...morph.batch.batch import ROWS, Batch, BatchStatus, Result
from ...morph.batch.fleet import Fleet
from ...morph.batch.inbox import BatchClosed
from ...morph.batch.key import common_key
from ...morph.batch.scheduler import Busy
from ...morph.batch.speech import Chunk, Delivery, Speech
from ...morph.engine import Engine
from ...morph.model.model import Model
from ...morph.options import PREDICTED_GROUPS, GenerateOptions
from ...morph.runtime.collector import CollectorPauses
from ...morph.speech.lines import Line, LineReport, Spoken
from ...morph.speech.pieces import concatenate
from ...morph.speech.report import describe_groups
from ...morph.speech.word_times import check_word_times, quiet_times, word_times
from ...morph.synthesizer import Synthesizer
from ...morph.text.pronunciation import Reading as ReadWord
from ...morph.voice.voice import Voice
from ...morph.words.live import LiveWords
from ...morph.words.timing import WordTime, without_quiet
from ..api.errors import ApiError, shutting_down
from ..api.options import ServerOptions
from ..api.request import Rules, SpeechRequest
from ..audio.speed import SpeedChange, changed_length
from ..audio.whole import Encoders, StreamEncoder, Whole, encode_whole
from .voices import VoiceBook
from .warming import WARM_TEXT, ahead_of, encode_all, lines_beside, speak

DIGITS = 3  # milliseconds
LOOKED_AT_S = 5.0  # of the sound so far, for the silence before a word


class Timestamps:
    """The words of one line that have ended and were not taken yet; ValueError if the model cannot time words.

    ``str(text)`` is the text so far; ``speed`` is that of the sound that is given out.
    """

    def __init__(
        self,
        model: Model,
        text: object,
        speed: float,
        find_readings: Callable[[str], Sequence[ReadWord]] | None = None,
    ):
        check_word_times(model)
        assert model.alignment is not None
        self._model, self._text, self._speed = model, text, speed
        self._known = str(text)
        self._live = LiveWords(self._known, model.texts.spans, model.alignment.lead_s, find_readings)
        self._sound = np.zeros(0, dtype=np.float32)  # the last LOOKED_AT_S
        self._samples = 0
        self._ended: list[WordTime] = []

    def add(self, chunk: Chunk | None) -> None:
        """Add the next chunk of a streamed line; None after the last one."""
        if more := str(self._text)[len(self._known) :]:
            self._known += more
            self._live.extend(more)
        if chunk is None:
            self._ended += self._live.end(self._now_s)
            return
        self._samples = chunk.start + len(chunk.samples)
        looked_at = round(LOOKED_AT_S * self._model.sample_rate)
        self._sound = np.concatenate((self._sound, chunk.samples))[-looked_at:]
        if (said := chunk.words) is None:
            return
        ended = self._live.add(said.piece, said.text, said.begin / self._model.sample_rate, said.trace)
        self._ended += self._within_sound(ended) if ended else ()

    def _within_sound(self, words: Sequence[WordTime]) -> list[WordTime]:
        """Return words without the quiet around them, and within the sound so far: silence that is held may be cut."""
        rate, now_s = self._model.sample_rate, self._now_s
        begin_s = now_s - len(self._sound) / rate
        quiet = [(begin_s + start, begin_s + end) for start, end in quiet_times(self._sound, rate)]
        placed = []
        for word in words:
            start_s, end_s = without_quiet(word.start_s, word.end_s, quiet)
            placed.append(replace(word, start_s=min(start_s, now_s), end_s=min(max(start_s, end_s), now_s)))
        return placed

    @property
    def _now_s(self) -> float:
        return self._samples / self._model.sample_rate

    def set_whole(self, spoken: Spoken) -> None:
        self._ended = list(word_times(self._model, spoken))

    def take(self) -> list[dict[str, Any]]:
        ended, self._ended = self._ended, []
        return [self._as_json(word) for word in ended]

    def _as_json(self, word: WordTime) -> dict[str, Any]:
        start_s, end_s = (round(time / self._speed, DIGITS) for time in (word.start_s, word.end_s))
        times = {"word": word.text, "start_time": start_s, "end_time": end_s}
        return {**times, "first_char": word.first_char, "last_char": word.last_char}


log = logging.getLogger(__name__)

ROWS_ON_CPU = 2
USUAL_SECONDS = 4.0  # that a line holds a row
WARM_SECONDS = 2.0
SHORT_SECONDS = 0.16  # of a line that is spoken for its voice's sake
WARM_VOICES = 8  # of the server's own, and as many states after references as the codec keeps
MOST_RETRY_S = 60  # OpenAI's clients come back at once if they are told more
LONGEST_PART = 24_000  # samples that are sent at once
LONG_TEXT = 1000  # characters that are searched in a thread
BEFORE_RETRY = 0.45  # of a request's time: a retry that begins later may not end in it
LINGER_S = 600.0  # nobody else wants the model, and to start another batch costs the next request a few ms


def default_rows(device: torch.device) -> int:
    return ROWS if device.type == "cuda" else ROWS_ON_CPU


class News:
    """Signals the readers of an event loop: a model step has news for many, and one call of the loop is enough."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self._changed: deque[asyncio.Event] = deque()
        self._is_called = False

    def tell(self, reader: asyncio.Event) -> None:
        """Wake a reader, from another thread."""
        self._changed.append(reader)
        if self._is_called:  # then ``_wake`` has not looked yet: it says so before it does
            return
        self._is_called = True
        try:
            self.loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop has ended, and with it whoever read
            log.debug("the readers' event loop has ended")

    def _wake(self) -> None:
        self._is_called = False
        while self._changed:
            self._changed.popleft().set()


class SpeechReader:
    """One speech, read in an event loop. Use it in a ``with``: leaving it frees the row.

    ``news`` is set when there is more to read; ``speed`` is that of the sound given out.
    """

    def __init__(
        self,
        speech: Speech,
        news: asyncio.Event,
        speaker: Speaker,
        speed: float,
        timestamps: Timestamps | None = None,
    ) -> None:
        self._speech, self._news, self._timestamps = speech, news, timestamps
        self._others, self._sample_rate, self._speed = speaker.readings, speaker.model.sample_rate, speed
        self._failure: ApiError | None = None
        self._has_sound = False

    def fail(self, error: ApiError) -> None:
        """Have its reader get an error instead of more sound; from the event loop."""
        self._failure = error
        self._news.set()

    @property
    def has_begun(self) -> bool:
        """Whether there is sound; for an offline line, whether frames are made."""
        return self._has_sound or (not self._speech.is_streamed and self._speech.progress.done > 0)

    async def __aiter__(self) -> AsyncIterator[np.ndarray]:
        """Yield samples as they come, float32, at most LONGEST_PART each: a pause is one chunk of the engine.

        ApiError comes after the samples made before the failure.
        """
        speed = SpeedChange(self._speed, self._sample_rate)
        while True:
            self._news.clear()
            while self._failure is None and (self._speech.unread or self._speech.ended):
                try:
                    chunk = self._speech.take()
                except Exception as error:
                    raise as_api_error(error) from error
                if self._timestamps is not None:
                    self._timestamps.add(chunk)
                if chunk is None:
                    for part in _parts(speed.finish()):
                        yield part
                    return
                self._has_sound = True
                for made in _parts(chunk.samples):
                    for part in _parts(speed.add(made)):
                        yield part
            if self._failure is not None:
                raise self._failure
            await self._news.wait()

    async def wait_end(self, seconds: float | None = None) -> bool:
        """Wait for the end of an offline line, at most so long; return whether it has come."""
        try:
            await asyncio.wait_for(self._ended(), seconds)
        except asyncio.TimeoutError:
            return False
        return True

    async def _ended(self) -> None:
        self._news.clear()
        while not self._speech.ended and self._failure is None:
            await self._news.wait()
            self._news.clear()

    @property
    def frames(self) -> tuple[int, int]:
        """How many frames are made, and how many are expected."""
        return self._speech.progress.done, self._speech.progress.expected

    def encode(self, name: str) -> Whole:
        """Return an offline line that has ended as a file of a format, and find its words; ApiError if it failed."""
        if self._failure is not None:
            raise self._failure
        try:
            sounds = [chunk.samples for chunk in self._speech]
        except Exception as error:
            raise as_api_error(error) from error
        if self._timestamps is not None:
            waveform, report = concatenate(sounds), self._speech.report
            spans = self._speech.outcome.spans if self._speech.outcome else ()
            self._timestamps.set_whole(Spoken(waveform, self._sample_rate, report, spans))
        return encode_whole(sounds, self._sample_rate, self._speed, name)

    def take_timestamps(self) -> list[dict[str, Any]]:
        """Return the words that have ended since the last call; of an offline line, after ``encode``."""
        return [] if self._timestamps is None else self._timestamps.take()

    @property
    def report(self) -> LineReport:
        """How the line went, after the last chunk; its seconds are those of the sound that was given out."""
        report, rate = self._speech.report, self._sample_rate
        if self._speed == 1:
            return report
        samples = changed_length(round(report.seconds * rate), self._speed)
        return replace(report, seconds=samples / rate)

    @property
    def text_tokens(self) -> int:
        """The tokens of the text, after the last chunk."""
        return self._speech.outcome.text_tokens if self._speech.outcome else 0

    def __enter__(self) -> SpeechReader:
        self._others.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._others.discard(self)
        self._speech.close()


def _parts(samples: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(samples), LONGEST_PART):
        yield samples[start : start + LONGEST_PART]


class Speaker:
    """Speaks the requests of all routes; ``others`` are the same checkpoint on other devices."""

    def __init__(self, synthesizer: Synthesizer, options: ServerOptions, others: Sequence[Synthesizer] = ()):
        self._synthesizer, self._others = synthesizer, others
        self.voices = VoiceBook(synthesizer.model, options.voices)
        self._lists = options.pronunciation
        self.rules = Rules(synthesizer.model, options.seq_groups, options.limits, options.strict)
        rows = options.rows or default_rows(synthesizer.model.device)
        self._batches = [
            Batch(one, rows, options.waiting, LINGER_S, ahead_of(one.model, rows))
            for one in (synthesizer, *others)
        ]
        self._batch = Fleet(self._batches) if others else self._batches[0]
        self._news: News | None = None
        self.readings: set[SpeechReader] = set()
        self._encoders = Encoders()
        self._is_ending = False
        self._ready = threading.Event()
        self._options = options
        self.pauses = CollectorPauses()
        self._summary = synthesizer.model.summary()  # looks at every tensor: milliseconds

    @property
    def model(self) -> Model:
        """The checkpoint, on the first device."""
        return self._synthesizer.model

    @property
    def fingerprint(self) -> str:
        """What changes with code, machine and checkpoint, for clients that cache lines; "" if unknown."""
        key = common_key(self._synthesizer, GenerateOptions(PREDICTED_GROUPS))
        if not (key and self._lists):
            return key
        words = json.dumps([one.words for one in self._lists])
        return hashlib.sha256(f"{key} {words}".encode()).hexdigest()

    @property
    def status(self) -> BatchStatus:
        return self._batch.status

    @property
    def gpu_bytes(self) -> Callable[[], int] | None:
        """Return a reader of the memory that torch has reserved on the models' GPUs; None on a CPU."""
        devices = [one.model.device for one in (self._synthesizer, *self._others)]
        if devices[0].type != "cuda":
            return None
        return lambda: sum(torch.cuda.memory_reserved(device) for device in devices)

    @property
    def slow_moments(self) -> dict[str, float]:
        """How often things happened that hold up all requests, by their names in the metrics."""
        done, pauses = [one.warm_ups for one in self._engines], self.pauses
        allocations = Counter[str]()
        for batch in self._batches:
            allocations.update(count_allocations(batch.synthesizer.model.device))
        return {
            "captures": sum(one.captures for one in done),
            "captures_planned": sum(one.planned for one in done),
            "late_captures": sum(one.late for one in done),
            "collections": pauses.count,
            "collection_seconds": pauses.seconds,
            "collection_longest_seconds": pauses.longest,
            **allocations,
        }

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set() and not self._is_ending

    def warm(self, before_ready: Callable[[], None] = lambda: None) -> None:
        """Warm up for a line alone, then admit requests; ``before_ready`` is called between the two."""
        began = time.perf_counter()
        with ThreadPoolExecutor(1, "speech warm-up") as meanwhile:
            encoded = meanwhile.submit(encode_all, self.model.sample_rate)
            for batch in self._batches:
                self._warm(batch)
            encoded.result()
        for one in self._engines:
            one.warm_ups.is_settled = True
        before_ready()
        self.pauses.begin()
        self._ready.set()
        self._tell("ready", time.perf_counter() - began)

    def prepare_rest(self) -> None:
        """Prepare for several requests at once, long and complete ones, while none is spoken; BatchClosed."""
        began = time.perf_counter()
        for batch in self._batches:
            while batch.between_lines(batch.synthesizer.engine.prepare_next).result():
                pass
            if batch.ahead.lines:  # a CPU captures nothing
                self._speak_several(batch)
        self._tell("all is prepared", time.perf_counter() - began)

    def _speak_several(self, batch: Batch) -> None:
        voice, options = self._warm_voice(), self._warm_options(self.rules.seq_groups, WARM_SECONDS)
        try:
            speak(batch, [Line(WARM_TEXT, voice)], options, live=False)
            speak(batch, lines_beside(batch, voice, self._options.waiting), options)
        except Busy:
            log.debug("requests have prepared what these lines would")

    def _warm(self, batch: Batch) -> None:
        voice, usual = self._warm_voice(), self.rules.seq_groups
        others = dict.fromkeys(groups for groups in self._options.warm_groups if groups != usual)
        for seq_groups in (*others, usual):
            speak(batch, [Line(WARM_TEXT, voice)], self._warm_options(seq_groups, WARM_SECONDS))
        # Prompts and references of voices are cached from then on.
        for entry in self.voices.entries()[:WARM_VOICES] if batch.ahead.lines else ():
            line = Line(WARM_TEXT, self.voices.find(entry.name))
            speak(batch, [line], self._warm_options(usual, SHORT_SECONDS))

    def _warm_options(self, seq_groups: int, seconds: float) -> GenerateOptions:
        return GenerateOptions(seq_groups, replace(self.model.sampling, max_seconds=seconds), retries=0)

    def _tell(self, what: str, seconds: float) -> None:
        done = [one.warm_ups for one in self._engines]
        positions = self._batches[0].ahead.positions
        log.info(
            "%s: %s, prepared in %.1f s; %d of %d graphs captured, first calls and captures %.1f s; %d rows%s",
            what,
            self.model.name,
            seconds,
            sum(one.captures for one in done),
            sum(one.planned for one in done),
            sum(one.seconds for one in done),
            sum(batch.rows for batch in self._batches),
            f" of {positions} positions" if positions else "",
        )

    @property
    def _engines(self) -> list[Engine]:
        return [batch.synthesizer.engine for batch in self._batches]

    def _warm_voice(self) -> Voice:
        """Return the likely voice of the first request; a Base checkpoint may get one by upload only."""
        if self.voices.designs:
            return self.voices.find(None, "a calm voice")
        if self.voices.entries():
            return self.voices.find(None)
        return Voice("x_vector", self.model.size, speaker_embedding=torch.zeros(self.model.width))

    async def speak(self, asked: SpeechRequest) -> SpeechReader:
        """Queue a text; return the reader of its sound, streamed or, if offline, for ``SpeechReader.encode``.

        ApiError 400 or 404 for unusable input, 429 if too many wait, 503 before the server is ready.
        """
        if not self.is_ready and not self._is_ending:
            raise ApiError(503, "the model is still being prepared: try again", headers={"Retry-After": "2"})
        text, find = asked.text, self.voices.find
        voice = self.voices.known(asked.voice)
        if voice is None:
            voice = await anyio.to_thread.run_sync(find, asked.voice, asked.instructions)
        if asked.shift is not None:
            voice = await anyio.to_thread.run_sync(self.voices.shifted, voice, asked.shift)
        instruct = None if voice.kind == "design" else asked.instructions
        said: Any = {"layout": asked.layout, "pronunciation": (*asked.pronunciation, *self._lists)}
        line = Line(text, voice, asked.language, asked.seed, instruct, **said)
        if isinstance(text, str) and len(text) > LONG_TEXT and line.pronunciation:
            await anyio.to_thread.run_sync(line.find_readings, text)  # remembered for the check of the line
        if self._is_ending:
            raise shutting_down()
        changed, wanted = asyncio.Event(), None
        if asked.timestamps:
            wanted = Timestamps(self.model, text, asked.speed, line.find_readings)
        try:
            held_s = FORMATS[asked.audio].held_s
            last_s = time.perf_counter() + self.rules.limits.seconds * BEFORE_RETRY
            said = {"held_s": held_s, "last_retry_s": last_s, "caller": asked.caller}
            delivery = Delivery(
                not asked.complete, keep=False, on_change=partial(self._news_here().tell, changed), **said
            )
            speech = self._batch.speak(line, asked.generate, delivery)
        except Busy as error:
            after = {"Retry-After": str(self._retry_after())}
            raise ApiError(
                429, f"the server is busy: {error}", code="rate_limit_exceeded", headers=after
            ) from error
        except (ValueError, BatchClosed) as error:
            raise as_api_error(error) from error
        return SpeechReader(speech, changed, self, asked.speed, wanted)

    async def encode(self, reading: SpeechReader, name: str) -> Whole:
        """See ``SpeechReader.encode``; in another thread."""
        return await asyncio.wrap_future(self._encoders.submit(name, partial(reading.encode, name)))

    def open_stream(self, name: str) -> StreamEncoder:
        return self._encoders.open_stream(name, self.model.sample_rate)

    def _news_here(self) -> News:
        loop = asyncio.get_running_loop()
        if self._news is None or self._news.loop is not loop:
            self._news = News(loop)
        return self._news

    def describe(self, options: GenerateOptions) -> tuple[str, ...]:
        model, engine = self.model, self._synthesizer.engine
        tail = model.tails(options.tail).get(options.seq_groups)
        groups = describe_groups(options, tail, model.weights)
        return groups, engine.describe(model, engine.choose(model)), self._summary

    def _retry_after(self) -> int:
        """Return a guess of the seconds until a queued request gets a row."""
        status = self.status
        return min(MOST_RETRY_S, max(1, math.ceil(USUAL_SECONDS * status.waiting / status.rows / 2)))

    # The end. Who asks is told by the event loop, whatever the thread that speaks is doing.

    @property
    def is_speaking(self) -> bool:
        return bool(self.readings)

    def stop_taking(self) -> None:
        """Admit no more requests; end those that have no sound yet."""
        self._is_ending = True
        for reading in self.readings:
            if not reading.has_begun:
                reading.fail(shutting_down())

    def end_all(self) -> None:
        for reading in self.readings:
            reading.fail(shutting_down())

    def between_lines(self, work: Callable[[], Result]) -> Future[Result]:
        """See ``Batch.between_lines``; with the first device."""
        return self._batches[0].between_lines(work)

    def close(self) -> None:
        self.pauses.end()
        self._batch.close()
        self._encoders.close()
        for one in (self._synthesizer, *self._others):
            one.free()


def count_allocations(device: torch.device) -> dict[str, float]:
    """Return how often torch asked the driver for memory, which stops the GPU; {} for a CPU."""
    if device.type != "cuda":
        return {}
    counts = {"gpu_allocations": torch.cuda.memory_stats(device).get("segment.all.allocated", 0)}
    if hasattr(torch.cuda, "host_memory_stats"):  # not in older versions
        counts["pinned_allocations"] = torch.cuda.host_memory_stats().get("num_host_alloc", 0)
    return counts


def as_api_error(error: Exception) -> ApiError:
    """Return an engine error as clients see it: bad input in its words, a failure without details."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ValueError):
        return ApiError(400, str(error), "input")
    if isinstance(error, BatchClosed):
        return shutting_down()
    return ApiError(
        500, f"speaking failed ({type(error).__name__}): the server's log says why", code="engine_failed"
    )
