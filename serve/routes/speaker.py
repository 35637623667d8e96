"""The model behind the routes: requests become lines of a ``Batch``, whose chunks an event loop reads.

The warm-up compiles, captures and loads everything before the first request.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import torch

from ...morph.audio.formats import FORMATS
from ...morph.batch.batch import ROWS, Batch, BatchStatus, Fleet
from ...morph.batch.key import common_key
from ...morph.batch.scheduler import Busy
from ...morph.batch.speech import BatchClosed, Chunk, Delivery, Speech
from ...morph.decode.rows import NOTHING_AHEAD, Ahead
from ...morph.graph.pool import roomy_context
from ...morph.model.model import Model
from ...morph.model.tail import describe_groups
from ...morph.options import PREDICTED_GROUPS, GenerateOptions
from ...morph.runtime.capture import WarmUps
from ...morph.runtime.collector import CollectorPauses
from ...morph.speech.lines import Line, LineReport, Spoken
from ...morph.speech.takes import check_word_times, word_times
from ...morph.synthesizer import Synthesizer
from ...morph.voice.voice import Voice
from ...morph.words.timing import LiveWords, WordTime, without_quiet
from ...postprocess.ends import quiet_times
from ..api.errors import ApiError, as_api_error, shutting_down
from ..api.options import ServerOptions
from ..api.request import SpeechRequest
from ..encoding import Encoders, SpeedChange, Whole, changed_length, encode_all, encode_whole
from .voices import VoiceBook

log = logging.getLogger(__name__)

DIGITS = 3  # milliseconds
SEARCHED_S = 5.0  # of the last audio, for the silence before a word
ROWS_ON_CPU = 2
USUAL_SECONDS = 4.0  # a typical line holds its row so long
WARM_TEXT = "The speech server is ready."
WARM_SECONDS = 2.0
SHORT_SECONDS = 0.16  # of a line that only prepares a voice
WARM_VOICES = 8  # the codec caches as many states after references
MOST_RETRY_S = 60  # OpenAI's clients ignore a longer Retry-After and retry at once
LONGEST_PART = 24_000  # samples of one part of a stream
LONG_TEXT = 1000  # characters: longer texts are searched for readings in a thread
BEFORE_RETRY = 0.45  # part of a request's time limit: a retry that begins later may not end within it
LINGER_S = 600.0  # nothing else uses the model, and a new batch delays the next request by a few ms


class Timestamps:
    """The finished words of one line that were not sent yet; ValueError if the model cannot time words.

    ``str(line.text)`` is the text so far; ``speed`` is that of the delivered audio.
    """

    def __init__(self, model: Model, line: Line, speed: float):
        check_word_times(model)
        assert model.alignment is not None
        self._model, self._text, self._speed = model, line.text, speed
        self._live = LiveWords(str(line.text), model.texts.spans, model.alignment.lead_s, line.find_readings)
        self._sound = np.zeros(0, dtype=np.float32)  # the last SEARCHED_S
        self._samples = 0
        self._ended: list[WordTime] = []

    def add(self, chunk: Chunk | None) -> None:
        """Add the next chunk of a streamed line; None after the last one."""
        self._live.text = str(self._text)
        rate = self._model.sample_rate
        if chunk is None:
            self._ended += self._live.end(self._samples / rate)
            return
        self._samples = chunk.start + len(chunk.samples)
        self._sound = np.concatenate((self._sound, chunk.samples))[-round(SEARCHED_S * rate) :]
        if (said := chunk.words) is not None:
            ended = self._live.add(said.piece, said.text, said.begin / rate, said.trace)
            self._ended += self._trimmed(ended) if ended else ()

    def _trimmed(self, words: Sequence[WordTime]) -> Iterator[WordTime]:
        """Yield words without the silence around them, and within the audio so far: held silence may be cut."""
        rate = self._model.sample_rate
        now_s, begin_s = self._samples / rate, (self._samples - len(self._sound)) / rate
        quiet = [(begin_s + start, begin_s + end) for start, end in quiet_times(self._sound, rate)]
        for word in words:
            start_s, end_s = without_quiet(word.start_s, word.end_s, quiet)
            yield replace(word, start_s=min(start_s, now_s), end_s=min(max(start_s, end_s), now_s))

    def set_offline(self, spoken: Spoken) -> None:
        self._ended = list(word_times(self._model, spoken))

    def take(self) -> list[dict[str, Any]]:
        """Return the new words as JSON objects."""
        ended, self._ended = self._ended, []
        return [
            {
                "word": word.text,
                "start_time": round(word.start_s / self._speed, DIGITS),
                "end_time": round(word.end_s / self._speed, DIGITS),
                "first_char": word.first_char,
                "last_char": word.last_char,
            }
            for word in ended
        ]


class News:
    """Wakes the readers of an event loop: one call of the loop serves all that a frame has chunks for."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self._changed: deque[asyncio.Event] = deque()
        self._is_called = False

    def tell(self, reader: asyncio.Event) -> None:
        """Wake a reader, from another thread."""
        self._changed.append(reader)
        if self._is_called:  # ``_wake`` clears it before it reads ``_changed``
            return
        self._is_called = True
        try:
            self.loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop has ended, and its readers too
            log.debug("the readers' event loop has ended")

    def _wake(self) -> None:
        self._is_called = False
        while self._changed:
            self._changed.popleft().set()


class SpeechReader:
    """One speech, read in an event loop. Use it in a ``with``: leaving it frees the row.

    ``news`` is set when there is more to read; ``speed`` is that of the delivered audio.
    """

    def __init__(
        self, speech: Speech, news: asyncio.Event, speaker: Speaker, speed: float, timestamps: Timestamps | None = None
    ) -> None:
        self._speech, self._news, self._timestamps = speech, news, timestamps
        self._others, self._sample_rate, self._speed = speaker.readings, speaker.model.sample_rate, speed
        self._failure: ApiError | None = None
        self._has_sound = False

    def fail(self, error: ApiError) -> None:
        """End the audio with an error; from the event loop."""
        self._failure = error
        self._news.set()

    @property
    def has_begun(self) -> bool:
        """Whether there is audio; for an offline line, whether there are frames."""
        return self._has_sound or (not self._speech.is_streamed and self._speech.progress.done > 0)

    async def __aiter__(self) -> AsyncIterator[np.ndarray]:
        """Yield samples as they come, float32, at most LONGEST_PART each: the engine sends a pause as one chunk.

        A failure is raised as ApiError after the samples before it.
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
        """Wait for the end of an offline line for at most ``seconds``; return whether it has ended."""
        with anyio.move_on_after(seconds):
            while not self._speech.ended and self._failure is None:
                self._news.clear()
                await self._news.wait()
            return True
        return False

    @property
    def frames(self) -> tuple[int, int]:
        """The numbers of finished and of expected frames."""
        return self._speech.progress.done, self._speech.progress.expected

    def encode(self, name: str) -> Whole:
        """Return a finished offline line as a file of a format, and find its words; ApiError if it failed."""
        if self._failure is not None:
            raise self._failure
        try:
            sounds = [chunk.samples for chunk in self._speech]
        except Exception as error:
            raise as_api_error(error) from error
        if self._timestamps is not None:
            assert self._speech.outcome is not None and self._speech.outcome.spoken is not None
            self._timestamps.set_offline(self._speech.outcome.spoken)
        return encode_whole(sounds, self._sample_rate, self._speed, name)

    def take_timestamps(self) -> list[dict[str, Any]]:
        """Return the words that finished since the last call; of an offline line, after ``encode``."""
        return [] if self._timestamps is None else self._timestamps.take()

    @property
    def report(self) -> LineReport:
        """The line's report, after the last chunk; its seconds are those of the delivered audio."""
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
        self.voices = VoiceBook(synthesizer.model, options.voices)
        rows = options.rows or (ROWS if synthesizer.model.device.type == "cuda" else ROWS_ON_CPU)
        self.model = synthesizer.model  # on the first device
        self._batches = [
            Batch(one, rows, options.waiting, LINGER_S, ahead_of(one.model, rows)) for one in (synthesizer, *others)
        ]
        self.between_lines = self._batches[0].between_lines  # with the first device
        self._batch = Fleet(self._batches) if others else self._batches[0]
        self._news: News | None = None
        self.readings: set[SpeechReader] = set()
        self.encoders = Encoders()
        self._is_ending = False
        self._ready = threading.Event()
        self.options = options
        self.pauses = CollectorPauses()
        self._summary = synthesizer.model.summary()  # looks at every tensor: milliseconds

    @property
    def fingerprint(self) -> str:
        """A hash of code, machine and checkpoint, for clients that cache lines; "" if unknown."""
        key = common_key(self._batches[0].synthesizer, GenerateOptions(PREDICTED_GROUPS))
        if not (key and self.options.pronunciation):
            return key
        words = json.dumps([one.words for one in self.options.pronunciation])
        return hashlib.sha256(f"{key} {words}".encode()).hexdigest()

    @property
    def status(self) -> BatchStatus:
        return self._batch.status

    @property
    def devices(self) -> list[torch.device]:
        return [batch.synthesizer.model.device for batch in self._batches]

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set() and not self._is_ending

    def warm(self, before_ready: Callable[[], None] = lambda: None) -> None:
        """Prepare for one line alone, call ``before_ready``, then admit requests."""
        began = time.perf_counter()
        with ThreadPoolExecutor(1, "speech warm-up") as meanwhile:
            encoded = meanwhile.submit(encode_all, self.model.sample_rate)
            for batch in self._batches:
                self._warm(batch)
            encoded.result()
        for one in self.warm_ups:
            one.is_settled = True
        before_ready()
        self.pauses.begin()
        self._ready.set()
        self._tell("ready", time.perf_counter() - began)

    def prepare_rest(self) -> None:
        """Prepare for concurrent, long and offline requests in idle time; BatchClosed."""
        began, voice = time.perf_counter(), self._warm_voice()
        options = self._warm_options(self.options.seq_groups, WARM_SECONDS)
        for batch in self._batches:
            while batch.between_lines(batch.synthesizer.engine.prepare_next).result():
                pass
            if batch.ahead.lines:  # a CPU captures nothing
                with suppress(Busy):  # requests have prepared the same
                    speak_lines(batch, [Line(WARM_TEXT, voice)], options, live=False)
                    speak_lines(batch, lines_beside(batch, voice, self.options.waiting), options)
        self._tell("all is prepared", time.perf_counter() - began)

    def _warm(self, batch: Batch) -> None:
        voice, usual, is_gpu = self._warm_voice(), self.options.seq_groups, batch.ahead.lines > 0
        others = dict.fromkeys(groups for groups in self.options.warm_groups if groups != usual)
        for seq_groups in (*others, usual):
            # A CPU captures nothing, and speaks hardly faster than real time.
            options = self._warm_options(seq_groups, WARM_SECONDS if is_gpu else SHORT_SECONDS)
            speak_lines(batch, [Line(WARM_TEXT, voice)], options)
        # Prompts and references of voices are cached from then on.
        for entry in self.voices.entries()[:WARM_VOICES] if is_gpu else ():
            line = Line(WARM_TEXT, self.voices.find(entry["name"]))
            speak_lines(batch, [line], self._warm_options(usual, SHORT_SECONDS))

    def _warm_options(self, seq_groups: int, seconds: float) -> GenerateOptions:
        return GenerateOptions(seq_groups, replace(self.model.sampling, max_seconds=seconds), retries=0)

    def _tell(self, what: str, seconds: float) -> None:
        done, positions = self.warm_ups, self._batches[0].ahead.positions
        captured, planned = sum(one.captures for one in done), sum(one.planned for one in done)
        spent = f"first calls and captures {sum(one.seconds for one in done):.1f} s"
        rows = f"{sum(batch.rows for batch in self._batches)} rows"
        more = f" of {positions} positions" if positions else ""
        graphs = f"{captured} of {planned} graphs captured, {spent}; {rows}{more}"
        log.info("%s: %s, prepared in %.1f s; %s", what, self.model.name, seconds, graphs)

    @property
    def warm_ups(self) -> list[WarmUps]:
        return [batch.synthesizer.engine.warm_ups for batch in self._batches]

    def _warm_voice(self) -> Voice:
        """Return the likely voice of the first request; a Base checkpoint may have uploaded voices only."""
        if self.voices.designs:
            return self.voices.find(None, "a calm voice")
        if self.voices.entries():
            return self.voices.find(None)
        return Voice("x_vector", self.model.size, speaker_embedding=torch.zeros(self.model.width))

    async def speak(self, asked: SpeechRequest) -> SpeechReader:
        """Queue a text and return its reader; an offline one is for ``SpeechReader.encode``.

        ApiError 400 or 404 for unusable input, 429 for a full queue, 503 before the server is ready.
        """
        if not self.is_ready and not self._is_ending:
            raise ApiError(503, "the model is still being prepared: try again", headers={"Retry-After": "2"})
        text, fields, find = asked.text, asked.fields, self.voices.find
        voice = self.voices.known(fields.voice)
        if voice is None:
            voice = await anyio.to_thread.run_sync(find, fields.voice, asked.instructions)
        if fields.voice_shift is not None:
            voice = await anyio.to_thread.run_sync(self.voices.shifted, voice, fields.voice_shift)
        instruct = None if voice.kind == "design" else asked.instructions
        lists = (*asked.pronunciation, *self.options.pronunciation)
        line = Line(text, voice, asked.language, asked.seed, instruct, layout=asked.layout, pronunciation=lists)
        if isinstance(text, str) and len(text) > LONG_TEXT and line.pronunciation:
            await anyio.to_thread.run_sync(line.find_readings, text)  # cached for the check of the line
        if self._is_ending:
            raise shutting_down()
        changed = asyncio.Event()
        timestamps = Timestamps(self.model, line, fields.speed) if fields.return_timestamps else None
        delivery = Delivery(
            not asked.complete,
            keep=False,
            on_change=partial(self._news_here().tell, changed),
            held_s=FORMATS[fields.response_format].held_s,
            last_retry_s=time.perf_counter() + self.options.limits.seconds * BEFORE_RETRY,
            caller=asked.caller,
        )
        try:
            speech = self._batch.speak(line, asked.generate, delivery)
        except Busy as error:
            status = self.status
            after_s = math.ceil(USUAL_SECONDS * status.waiting / status.rows / 2)
            after = {"Retry-After": str(min(MOST_RETRY_S, max(1, after_s)))}
            raise ApiError(429, f"the server is busy: {error}", code="rate_limit_exceeded", headers=after) from error
        except (ValueError, BatchClosed) as error:
            raise as_api_error(error) from error
        return SpeechReader(speech, changed, self, fields.speed, timestamps)

    def _news_here(self) -> News:
        loop = asyncio.get_running_loop()
        if self._news is None or self._news.loop is not loop:
            self._news = News(loop)
        return self._news

    def describe(self, options: GenerateOptions) -> tuple[str, ...]:
        """Return what a report says of engine and settings."""
        model, engine = self.model, self._batches[0].synthesizer.engine
        tail = model.tails(options.tail).get(options.seq_groups)
        groups = describe_groups(options, tail, model.weights)
        return groups, engine.describe(model, engine.choose(model)), self._summary

    # Shutdown. Clients are answered by the event loop, even if the batch thread is busy.

    def stop_taking(self) -> None:
        """Admit no more requests; end those without audio so far."""
        self._is_ending = True
        for reading in self.readings:
            if not reading.has_begun:
                reading.fail(shutting_down())

    def end_all(self) -> None:
        for reading in self.readings:
            reading.fail(shutting_down())

    def close(self) -> None:
        self.pauses.end()
        self._batch.close()
        self.encoders.close()
        for batch in self._batches:
            batch.synthesizer.free()


def ahead_of(model: Model, rows: int) -> Ahead:
    """Return the preparations before the first line: all on a GPU, as far as its memory allows."""
    if model.device.type != "cuda":
        return NOTHING_AHEAD
    free, _ = torch.cuda.mem_get_info(model.device)
    return Ahead(rows, roomy_context(model, rows, free))


def speak_lines(batch: Batch, lines: Sequence[Line], options: GenerateOptions, live: bool = True) -> None:
    """Speak lines together, streamed or offline: the codec decodes offline lines in other sizes."""
    delivery = Delivery(live=live, keep=False)
    for speech in [batch.speak(line, options, delivery) for line in lines]:
        for _ in speech:
            pass


def lines_beside(batch: Batch, voice: Voice, most: int) -> list[Line]:
    """Return lines for all rows but one, which is a request's; at most ``most``, and one of them with late text."""
    lines = [Line(WARM_TEXT, voice) for _ in range(min(max(1, batch.rows - 1), most))]
    if voice.kind == "x_vector":
        lines[0] = Line((f"{word} " for word in WARM_TEXT.split()), voice, layout="token")
    return lines
