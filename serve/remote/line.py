"""A line at a server, from the queue to its end, as its reader sees it."""

import asyncio
from collections.abc import Callable

import numpy as np
import torch

from ...morph.batch.speech import Chunk, Outcome, Speech
from ...morph.options import FRAME_RATE
from ...morph.runtime.bell import Bell
from ...morph.speech.lines import LineReport, Spoken
from ...morph.speech.pieces import text_as_spoken
from ...morph.speech.takes import is_silent
from ...morph.text.duration import likely_frames
from ...morph.text.normalize import SpokenText
from ...morph.text.pauses import without_pauses
from ...morph.words.timing import shown_words
from .connection import Answer, Hearer
from .payload import Job
from .told import LineTold

NO_CODES = torch.zeros(1, 16, dtype=torch.int64)  # of a frame: a server sends none


class RemoteLine:
    """A line in flight, used in one thread; calls ``on_full`` when its reader has enough for now."""

    def __init__(self, job: Job, speech: Speech, on_full: Callable[[], None]):
        self.job, self.speech, self._on_full = job, speech, on_full
        speech.progress.expected = likely_frames(str(job.line.text))
        self._sound: list[np.ndarray] = []  # of the first take
        self._samples = 0
        self._passed = self._start = 0  # delivered parts, and their samples
        self._looked = asyncio.Event()

    def listen(self, number: int) -> Hearer:
        """Return the listener of an attempt at a take: of the first take it passes on what no earlier attempt sent."""
        speech, position = self.speech, 0

        async def take(samples: np.ndarray) -> None:
            nonlocal position
            if number > 1:
                return
            while speech.is_full:
                self._looked.clear()
                self._on_full()
                await self._looked.wait()
            new = samples[max(0, self._samples - position) :]
            position += len(samples)
            if len(new):
                self._add(new)

        def tell(frames: int, expected: int) -> None:
            if number == 1:
                made = speech.progress
                made.done = max(made.done, frames)
                made.expected = max(made.done, expected or made.expected)

        return Hearer(take, tell)

    def _add(self, samples: np.ndarray) -> None:
        self._sound.append(samples)
        self._samples += len(samples)
        self.speech.progress.done = self._frames(self._samples)
        self._pass_on()

    def _pass_on(self) -> None:
        while self.speech.is_heard and self._passed < len(self._sound):
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
        """Check what the reader has done: taken a chunk, or switched to streaming."""
        self._looked.set()
        if not self.speech.ended:
            self._pass_on()

    def finish(self, spoken: Spoken) -> None:
        speech, report = self.speech, spoken.report
        if speech.is_heard and not speech.ended:
            self._put(np.zeros(0, dtype=np.float32), last=True)
        speech.progress.done = speech.progress.expected = report.frames
        self._end(Outcome(report, spoken if speech.delivery.keep else None))

    def fail(self, error: BaseException) -> None:
        self._end(Outcome(error=error))

    def _end(self, outcome: Outcome) -> None:
        self.speech.finish(outcome)
        self.speech.bell = Bell()  # the previous one refers to this object, and so to its audio

    def stop(self) -> None:
        told = LineTold(ended="cancelled")
        sound = np.concatenate([np.zeros(0, dtype=np.float32), *self._sound])
        self.finish(self.spoken(Answer(sound, self.job.sample_rate, told), 1))

    def spoken(self, answer: Answer, take: int) -> Spoken:
        line, told = self.job.line, answer.told
        waveform, rate = answer.waveform, answer.sample_rate
        text = str(line.text)
        readings = line.find_readings(text)
        said = SpokenText(told.spoken or without_pauses(self.job.text))
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
