"""A line until it is made: attempts, other takes, and many lines in flight."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...morph.options import FRAME_RATE, GenerateOptions
from ...morph.speech.lines import LineReport, Spoken
from ...morph.speech.takes import WRONG, is_silent
from .connection import Answer, Connection, connect
from .facts import ServerFacts
from .failure import Failure
from .payload import Job, uploaded_name
from .servers import Server

log = logging.getLogger(__name__)

# At a take, or the first question, where another may help: a minute together, longer than a server takes to start.
ATTEMPTS = 8
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
TOLD_AT = 3  # the attempt whose failure is logged: people wait from then on
WAITING = "%s; it is asked again for about a minute"


def wait_s(attempt: int, error: Failure) -> float:
    """Return the seconds to wait after a failed attempt, counted from 1."""
    after = error.remedy.after_s
    return min(FIRST_WAIT_S * 2 ** (attempt - 1) if after is None else after, LONGEST_WAIT_S)


async def ask(server: Server, attempts: int = 1) -> ServerFacts:
    """Return what a server says of itself; ask again where nobody listens yet.

    Raises:
        Failure: if it cannot be reached by the last attempt, or answers otherwise than a speech server.
    """
    attempt = 1
    while True:
        try:
            async with connect(server) as connection:
                return await connection.ask()
        except Failure as error:
            if error.remedy.listens or attempt >= attempts:
                raise
            if attempt == TOLD_AT:
                log.warning(WAITING, error)
            wait = wait_s(attempt, error)
        await asyncio.sleep(wait)
        attempt += 1


@dataclass(frozen=True)
class Sound:
    """Samples of a line's first take, float32 ``[n]``, in their order."""

    index: int
    samples: np.ndarray


@dataclass(frozen=True)
class Made:
    """A line is made."""

    index: int
    spoken: Spoken


@dataclass(frozen=True)
class Lost:
    """A line cannot be made."""

    index: int
    error: Failure


News = Sound | Made | Lost
Tell = Callable[[News], None]


class Speaking:
    """Speaks jobs at one server, some at a time, the first ones first.

    Args:
        facts: of the server.
        options: ``batch_size`` lines are in flight; ``retries`` and ``trim_ends`` as ever.
        tell: gets the news.
    """

    def __init__(self, facts: ServerFacts, options: GenerateOptions, tell: Tell):
        self._facts, self._options, self._tell = facts, options, tell
        self._uploads: dict[str, asyncio.Task[None]] = {}
        self._has_said = False

    async def run(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """Speak all jobs, each with the index that its news have.

        Raises:
            Failure: if no line can be made there any more.
        """
        in_flight = min(self._options.batch_size, self._facts.most_lines, len(jobs))
        waiting = iter(jobs)
        async with connect(self._facts.server, in_flight) as connection:
            workers = [asyncio.create_task(self._work(connection, waiting)) for _ in range(in_flight)]
            try:
                await asyncio.gather(*workers)
            finally:
                for one in (*workers, *self._uploads.values()):
                    one.cancel()
                await asyncio.gather(*workers, *self._uploads.values(), return_exceptions=True)

    async def _work(self, connection: Connection, waiting: Iterator[tuple[int, Job]]) -> None:
        for index, job in waiting:
            try:
                spoken = await self._speak(connection, index, job)
            except Failure as error:
                if error.remedy.ends_all:
                    raise
                self._tell(Lost(index, error))
            else:
                self._tell(Made(index, spoken))

    async def _speak(self, connection: Connection, index: int, job: Job) -> Spoken:
        """Return the best of as many takes as the options allow."""
        best: Spoken | None = None
        seed = job.line.seed
        for take in range(1, self._options.retries + 2):
            heard = _Heard(lambda samples: self._tell(Sound(index, samples))) if take == 1 else None
            try:
                answer = await self._attempt(connection, job.with_seed(seed), heard)
            except Failure as error:
                if not error.remedy.new_seed or take > self._options.retries:
                    if best is not None:
                        break
                    raise
                seed += 1
                continue
            made = self._spoken(job, answer, take)
            if best is None or _rank(made) < _rank(best):
                best = made
            best = replace(best, report=replace(best.report, takes=take))
            if not self._can_improve(made):
                break
            seed += max(1, made.report.pieces)
        if best is None:
            raise Failure(self._facts.server, "made no take that ended: try another seed")
        return best

    def _can_improve(self, spoken: Spoken) -> bool:
        """Return whether another seed may help: not if the user's own limit ended the line."""
        sampling, ended = self._options.sampling, spoken.report.ended
        return ended in WRONG and not (ended == "cap" and sampling is not None and sampling.max_seconds)

    async def _attempt(self, connection: Connection, job: Job, heard: _Heard | None) -> Answer:
        """Return an answer, after as many attempts as it takes and ATTEMPTS allow."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if job.upload is not None:
                    await self._uploaded(connection, job)
                return await connection.speak(job, heard.begin() if heard else lambda _: None)
            except Failure as error:
                if (
                    error.remedy.upload and job.upload is not None
                ):  # the server has begun anew, or has too many
                    self._uploads.pop(uploaded_name(job.upload), None)
                elif not error.remedy.again:
                    raise
                if attempt == ATTEMPTS:
                    raise
                if attempt == TOLD_AT and error.remedy.ends_all:
                    self._say_waiting(error)
                wait = wait_s(attempt, error)
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _say_waiting(self, error: Failure) -> None:
        """Log once that the server is waited for."""
        if not self._has_said:
            log.warning(WAITING, error)
            self._has_said = True

    async def _uploaded(self, connection: Connection, job: Job) -> None:
        """Upload a job's voice once for all lines."""
        if job.upload is None:
            return
        name = uploaded_name(job.upload)
        task = self._uploads.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._uploads[name] = asyncio.create_task(connection.upload(job.upload))
        await asyncio.shield(task)

    def _spoken(self, job: Job, answer: Answer, take: int) -> Spoken:
        line, told = job.line, answer.told
        waveform, rate = answer.waveform, answer.sample_rate
        seconds = len(waveform) / rate
        report = LineReport(
            line.name,
            str(line.text),
            round(seconds * FRAME_RATE) if told.frames is None else told.frames,
            seconds,
            told.ended or ("silent" if is_silent(waveform, rate) else "eos"),
            told.pieces,
            spoken=told.spoken,
            takes=take,
            notes=told.notes,
        )
        return Spoken(waveform, rate, report, engine=" · ".join(told.made_by))


class _Heard:
    """Passes on the sound of a take; of an attempt that repeats it, only what has not been heard yet.

    Args:
        tell: gets the samples.
    """

    def __init__(self, tell: Callable[[np.ndarray], None]):
        self._tell, self._told = tell, 0

    def begin(self) -> Callable[[np.ndarray], None]:
        """Return what takes the sound of the next attempt."""
        position = 0

        def take(samples: np.ndarray) -> None:
            nonlocal position
            new = samples[max(0, self._told - position) :]
            position += len(samples)
            if len(new):
                self._told = position
                self._tell(new)

        return take


def _rank(spoken: Spoken) -> int:
    ends = ("eos", *WRONG)
    return ends.index(spoken.report.ended) if spoken.report.ended in ends else len(ends)
