"""A server as a ``Speaks`` backend: many lines in flight, each with its takes, in its own event loop thread."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, suppress
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from ...morph.batch.speech import LATER, BatchClosed, Chunk, Delivery, Outcome, Speech
from ...morph.options import AUTO_ROWS, FRAME_RATE, GenerateOptions
from ...morph.runtime.threads import WakeUpEvent
from ...morph.speech.lines import Line, LineReport, Spoken, next_seed
from ...morph.speech.pieces import text_as_spoken
from ...morph.speech.report import compose, engines_of
from ...morph.speech.takes import RetryPolicy, rank
from ...morph.text.duration import likely_frames
from ...morph.text.normalize import NormalizedText
from ...morph.text.split import without_pauses
from ...morph.voice.voice import Voice
from ...morph.words.timing import WordTime, retime_words, shown_words
from ...postprocess.ends import is_silent
from ...postprocess.join import concatenate
from .connection import WAITING, Answer, AnswerListener, Connection, Failure, LoopThread, connect, retry
from .facts import PARTS, PUBLISHED_LANGUAGES, ReportedLine, ServerFacts
from .payload import SpeechJob, make_job, uploaded_name

log = logging.getLogger(__name__)

ATTEMPTS = 8  # per take: a minute in all, longer than a server takes to start
PROGRESS_A_S = 8  # events of all offline lines in flight
SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S = 0.5, 10.0  # our server refuses a longer one
IN_FLIGHT = 64  # fills a GPU's batch, and leaves a server room for others
NO_CODES = torch.zeros(1, 16, dtype=torch.int64)  # of a frame: a server sends none


class LoopWakeUpEvent(WakeUpEvent):
    """An event that calls ``on_set`` in an event loop, unless that is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        super().__init__()
        self._loop = loop
        self.on_set: Callable[[], None] = lambda: None

    def set(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.on_set)


class RemoteLine:
    """A line in flight, used in one thread; calls ``on_full`` when its reader's queue is full."""

    def __init__(self, job: SpeechJob, speech: Speech, on_full: Callable[[], None]):
        self.job, self.speech, self._on_full = job, speech, on_full
        speech.progress.expected = likely_frames(str(job.line.text))
        self._sound: list[np.ndarray] = []  # of the first take
        self._samples = 0
        self._passed = self._start = 0  # delivered parts, and their samples
        self._looked = asyncio.Event()

    def listen(self, take: int) -> AnswerListener:
        """Return the listener of an attempt at a take; of the first take it delivers the samples that are new."""
        speech, position = self.speech, 0

        async def add(samples: np.ndarray) -> None:
            nonlocal position
            if take > 1:
                return
            while speech.is_full:
                self._looked.clear()
                self._on_full()
                await self._looked.wait()
            new = samples[max(0, self._samples - position) :]
            position += len(samples)
            if len(new):
                self._sound.append(new)
                self._samples += len(new)
                speech.progress.ended = self._frames(self._samples)
                self._pass_on()

        def note_frames(frames: int, expected: int) -> None:
            if take == 1:
                progress = speech.progress
                progress.ended = max(progress.ended, frames)
                progress.expected = max(progress.ended, expected or progress.expected)

        return AnswerListener(add, note_frames)

    def _pass_on(self) -> None:
        while self.speech.is_streamed and self._passed < len(self._sound):
            self._put(self._sound[self._passed])
            self._passed += 1

    def _put(self, samples: np.ndarray, last: bool = False) -> None:
        end = self._start + len(samples)
        codes = NO_CODES.expand(self._frames(end) - self._frames(self._start), -1)
        self.speech.put(Chunk(codes, samples, self._start, last))
        self._start = end

    def _frames(self, samples: int) -> int:
        return round(samples / self.job.sample_rate * FRAME_RATE)

    def look(self) -> None:
        """React to the reader: it took a chunk, or switched to streaming."""
        self._looked.set()
        if not self.speech.ended:
            self._pass_on()

    def finish(self, spoken: Spoken) -> None:
        speech = self.speech
        if speech.is_streamed and not speech.ended:
            self._put(np.zeros(0, dtype=np.float32), last=True)
        speech.progress.ended = speech.progress.expected = spoken.report.frames
        self._end(Outcome(spoken))

    def fail(self, error: BaseException) -> None:
        self._end(Outcome(error=error))

    def _end(self, outcome: Outcome) -> None:
        self.speech.finish(outcome)
        self.speech.wake_up = WakeUpEvent()  # the previous one refers to this object, and so to its audio

    def stop(self) -> None:
        answer = Answer(concatenate(self._sound), self.job.sample_rate, ReportedLine(ended="cancelled"))
        self.finish(self.spoken(answer, 1))

    def spoken(self, answer: Answer, take: int) -> Spoken:
        line, told = self.job.line, answer.report
        waveform, rate = answer.waveform, answer.sample_rate
        text = str(line.text)
        readings = line.find_readings(text)
        said = NormalizedText(told.spoken or without_pauses(self.job.text))
        report = LineReport(
            line.name,
            text,
            self._frames(len(waveform)) if told.frames is None else told.frames,
            len(waveform) / rate,
            told.ended or ("silent" if is_silent(waveform, rate) else "eos"),
            told.pieces,
            spoken=text_as_spoken(line, said) if readings else told.spoken,
            takes=take,
            notes=told.notes,
            readings=readings,
        )
        words = shown_words(text, readings, answer.words)
        return Spoken(waveform, rate, report, engine=" · ".join(told.made_by), words=words)


class Attempts:
    """Lines and their voices at one server, each with up to ATTEMPTS attempts."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._uploads: dict[str, asyncio.Task[None]] = {}
        self._has_warned = False

    async def speak(self, job: SpeechJob, listen: Callable[[], AnswerListener]) -> Answer:
        """Return the answer to a job, or raise the last ``Failure``; ``listen`` returns an attempt's listener."""

        async def attempt() -> Answer:
            if job.upload is not None:
                await self._upload(job.upload)
            answer = await self._connection.speak(job, listen())
            self._has_warned = False
            return answer

        def may_help(error: Failure) -> bool:
            if error.upload and job.upload is not None:  # the server does not know the voice (any more)
                self._uploads.pop(uploaded_name(job.upload), None)
                return True
            return error.again

        return await retry(attempt, ATTEMPTS, may_help, self._warn)

    def _warn(self, error: Failure) -> None:
        if error.ends_all and not self._has_warned:
            log.warning(WAITING, error, "about a minute")
            self._has_warned = True

    async def _upload(self, voice: Voice) -> None:
        name = uploaded_name(voice)
        task = self._uploads.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._uploads[name] = asyncio.create_task(self._connection.upload(voice))
        await asyncio.shield(task)


class RemoteSpeaks(AbstractContextManager["RemoteSpeaks"]):
    """Speaks lines at one server. Use it in a ``with``, which ends its thread and unfinished lines.

    A server that is gone ends all lines with ``ServerGone``; any other failure ends its line with a ConnectionError.
    Chunks are from a line's first take, and their codes are zeros: a server sends none. ``in_flight`` does not count
    lines with slow readers and is at most the server's limit; ``AUTO_ROWS``: 64. ``consent``: of the people whose
    voices are sent.
    """

    def __init__(self, facts: ServerFacts, consent: bool = False, in_flight: int = AUTO_ROWS):
        self.facts, self.consent = facts, consent
        self.in_flight = min(in_flight or IN_FLIGHT, facts.most_lines)
        self._closing, self._is_closed = threading.Lock(), False
        self._numbers = itertools.count()
        self._waiting: list[tuple[int, int, RemoteLine]] = []  # a heap
        self._running: dict[RemoteLine, asyncio.Task[Spoken]] = {}
        self._thread, self._open = LoopThread(), AsyncExitStack()
        connection = connect(facts.server, facts.most_lines)
        self._attempts = Attempts(self._thread.run(self._open.enter_async_context(connection)).result())

    @property
    def name(self) -> str:
        return f"{self.facts.model or 'unnamed'} at {self.facts.server.name}"

    @property
    def rate(self) -> int:
        return self.facts.sample_rate

    @property
    def languages(self) -> Sequence[str]:
        return self.facts.languages or PUBLISHED_LANGUAGES

    def check(self, line: Line, options: GenerateOptions) -> None:
        make_job(self.facts, line, options, self.consent)

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """See ``Speaks``; None for a server without a fingerprint."""
        job = make_job(self.facts, line, options, self.consent)
        if not self.facts.fingerprint:
            return None
        # Without a seed in the request, each seed needs its own key; so does trimmed silence.
        apart: list[object] = [job.trim_ends, None if "seed" in job.body else line.seed]
        # Cached word times refer to the text, and the request has its readings.
        apart += [line.text] if job.text != line.text else []
        parts = json.dumps([self.facts.engine, self.facts.fingerprint, job.body, apart], sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()

    def speak(self, line: Line, options: GenerateOptions, delivery: Delivery | None = None) -> Speech:
        """See ``Speaks``. A line that cannot be spoken is not sent. Raises BatchClosed after ``close``."""
        job, wake_up = make_job(self.facts, line, options, self.consent), LoopWakeUpEvent(self._thread.loop)
        remote = RemoteLine(job, Speech(line, options, delivery or Delivery(), wake_up), self._start)
        wake_up.on_set = partial(self._look, remote)
        with self._closing:
            if self._is_closed:
                raise BatchClosed(f"the client of server {self.facts} is closed: make another one")
            self._thread.loop.call_soon_threadsafe(self._add, remote)
        return remote.speech

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        return [self.speak(line, options, delivery) for line, delivery in zip(lines, deliveries, strict=True)]

    def check_words(self) -> None:
        if not self.facts.word_times:
            fix = "start this pack's server there with a checkpoint that has an alignment head (the demo voice has one)"
            raise ValueError(f"server {self.facts} reports no word times: {fix}, or do without them")

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        self.check_words()
        return retime_words(spoken.words, spoken.speed)

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        flight = f"server {self.facts}, up to {self.in_flight} lines in flight"
        return compose(spoken, elapsed_s, [*engines_of(spoken), flight])

    def close(self) -> None:
        """End all lines, and wait for the thread's end."""
        with self._closing:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            self._thread.run(self._end()).result()
            self._thread.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    # In the thread

    async def _end(self) -> None:
        tasks = list(self._running.values())
        for line in self._drop():
            if line.speech.is_cancelled:
                line.stop()
            else:
                line.fail(BatchClosed(f"the client of server {self.facts} was closed before this line was spoken"))
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._open.aclose()

    def _drop(self) -> list[RemoteLine]:
        for task in self._running.values():
            task.cancel()
        dropped = [*self._running, *(line for _, _, line in self._waiting)]
        self._waiting.clear()
        return dropped

    def _add(self, line: RemoteLine) -> None:
        heapq.heappush(self._waiting, (line.speech.delivery.order, next(self._numbers), line))
        self._start()

    def _start(self) -> None:
        """Start the next lines, up to the limit; lines with slow readers do not count."""
        while self._waiting and len(self._running) < self.facts.most_lines:
            if sum(not line.speech.is_full for line in self._running) >= self.in_flight:
                return
            line = heapq.heappop(self._waiting)[2]
            if not line.speech.ended:
                task = self._thread.loop.create_task(self._best_take(line))
                self._running[line] = task
                task.add_done_callback(partial(self._done, line))

    def _look(self, line: RemoteLine) -> None:
        line.look()
        if line.speech.is_cancelled and line in self._running:
            self._running[line].cancel()
        elif line.speech.is_cancelled:
            line.stop()

    def _done(self, line: RemoteLine, task: asyncio.Task[Spoken]) -> None:
        del self._running[line]
        if task.cancelled():
            line.stop()
        elif (error := task.exception()) is None:
            line.finish(task.result())
        elif isinstance(error, Failure):
            for one in (line, *(self._drop() if error.ends_all else ())):
                one.fail(error.for_people())
        else:
            line.fail(error)
        self._start()

    async def _best_take(self, line: RemoteLine) -> Spoken:
        best: Spoken | None = None
        seed, options = line.job.line.seed, line.speech.options
        policy = RetryPolicy(options.retries, options.sampling.line_frames if options.sampling else None)
        for take in (1, *policy.further):
            job = self._job(line, take).with_seed(seed)
            try:
                answer = await self._attempts.speak(job, partial(line.listen, take))
            except Failure as error:
                if best is None and (take > policy.retries or not error.new_seed):
                    raise
                if not error.new_seed:
                    break
                seed = next_seed(seed, 1)
                continue
            made = line.spoken(answer, take)
            kept = made if best is None or rank(made.report.ended) < rank(best.report.ended) else best
            best = replace(kept, report=replace(kept.report, takes=take))
            if not policy.is_wrong(made.report.ended, made.report.frames):
                break
            seed = next_seed(seed, made.report.pieces)
        assert best is not None  # the last take succeeds or raises
        return best

    def _job(self, line: RemoteLine, take: int) -> SpeechJob:
        """Return a line's job: an offline line is sent in one piece, one that may stream later in few events."""
        is_first = take == 1  # others are offline
        if (is_first and line.speech.is_streamed) or "event_interval" not in self.facts.fields:
            return line.job
        lines = min(self.in_flight, len(self._running) + len(self._waiting))
        interval_s = min(max(SHORTEST_INTERVAL_S, lines / PROGRESS_A_S), LONGEST_INTERVAL_S)
        may_stream = is_first and line.speech.delivery.live == LATER
        offline = PARTS in self.facts.stream_formats and not may_stream
        return replace(line.job, interval_s=interval_s, offline=offline)
