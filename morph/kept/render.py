"""Speak a list of lines: reuse cached lines, isolate failures, optionally check words."""

import logging
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from ..batch.key import SOUND_VERSION
from ..batch.speaks import Speaks
from ..batch.speech import LATER, Delivery, OutOfService, Speech
from ..options import FRAME_RATE, GenerateOptions
from ..runtime.collector import frozen_objects
from ..runtime.wake_up import WakeUpEvent
from ..speech.lines import Line, Spoken, check_complete, failed_line
from ..speech.takes import ENDS
from ..text.duration import likely_frames
from .cache import DamagedLine, LineCache
from .word_check import WordCheck

log = logging.getLogger(__name__)

LOOKS_EVERY_S = 0.05  # for progress and cancelling; a line's end is noticed at once
LONG_S = 60.0  # of speech, above which length and time left are reported
MEASURED_FRAMES = 25  # needed to know the speed of a run
# Called with (frames done, frames expected) while lines are made; what it raises ends them all.
OnFrame = Callable[[int, int], None]


@dataclass(frozen=True)
class Listener:
    """Callbacks of a rendering, in the caller's thread; if one raises, the rendering ends."""

    on_frame: OnFrame = lambda _done, _expected: None  # see ``OnFrame``
    on_phase: Callable[[str], None] = lambda _: None  # a few words
    # A line's index and samples, float32 ``[n]``: all lines in order, each streamed unless it is complete by then. They
    # are of its first take.
    on_sound: Callable[[int, np.ndarray], None] = lambda _index, _samples: None
    on_line: Callable[[int, Spoken], None] = lambda _index, _spoken: None  # finished lines, in any order
    complete: Container[int] = ()  # lines of which ``on_sound`` gets the final take, when it is complete

    @property
    def wants_sound(self) -> bool:
        return self.on_sound is not Listener.on_sound


@dataclass(frozen=True)
class RenderOptions:
    cache: LineCache | None = None  # None: no line is reused or cached
    check: WordCheck | None = None  # None: words are not checked
    again: bool = False  # speak lines that are cached, too


def speak_lines(
    speaks: Speaks,
    lines: Sequence[Line],
    options: GenerateOptions,
    how: RenderOptions | None = None,
    listener: Listener | None = None,
) -> list[Spoken]:
    """Return lines in the given order: cached ones as they are, the others spoken, and cached as each ends.

    A line that fails is reported as such (``takes.ERROR``), with half a second of silence; the others go on. Texts
    must be complete.

    Raises:
        ValueError: for a line that cannot be spoken, before any is.
        Exception: the first line's error, if no line could be made.
        torch.cuda.OutOfMemoryError, OutOfService: lines that ended before are in the cache.
    """
    how, listener = how or RenderOptions(), listener or Listener()
    if not lines:
        raise ValueError("there is no line to speak: type a text")
    check_complete(lines)
    for line in lines:
        speaks.check(line, options)
    if how.cache is not None:
        how.cache.note_version(SOUND_VERSION)
    check = how.check and replace(how.check, cache=how.cache)
    # Words are recognised while other lines are spoken, and remembered.
    early = None if how.cache is None or listener.wants_sound else check
    with frozen_objects():
        run = _Run(speaks, options, replace(how, check=early), lines, listener)
        spoken = run.speak()
        if len(run.failures) == len(lines):
            raise run.failures[0]
        if check is None:
            return spoken
        silent, plain = Listener(listener.on_frame, listener.on_phase), replace(how, check=None)
        again = partial(_Run, speaks, options, plain, listener=silent)
        return check.apply(lines, spoken, lambda asked: again(lines=asked).speak(), listener.on_phase)


class _Run:
    """One rendering of a list of lines."""

    def __init__(
        self,
        speaks: Speaks,
        options: GenerateOptions,
        how: RenderOptions,
        lines: Sequence[Line],
        listener: Listener,
    ):
        self._speaks, self._options, self._how = speaks, options, how
        self._lines, self._listener = lines, listener
        self.failures: dict[int, Exception] = {}
        self._wake_up = WakeUpEvent()  # set when a line has news
        self._likely = [likely_frames(str(line.text)) for line in lines]
        self._keys: dict[int, str | None] = {}  # in the cache
        self._damage: dict[int, str] = {}  # what is wrong with cached files
        self._speeches: dict[int, Speech] = {}  # of lines in work
        self._ready: dict[int, Spoken] = {}
        self._frames = self._ended = 0  # frames of the speeches that have ended, and their number
        self._estimate, self._phase = Estimate(), ""
        # The line that plays now or next; none without a listener.
        self._turn = 0 if listener.wants_sound else len(lines)
        self._is_begun = False  # whether it has delivered audio

    def speak(self) -> list[Spoken]:
        """Return the lines in the given order."""
        for index, line in enumerate(self._lines):
            self._listener.on_frame(0, 1)  # files take time: a user may cancel here
            if (found := self._find(index, line)) is not None:
                self._take(index, found)
        try:
            self._queue([index for index in range(len(self._lines)) if index not in self._ready])
            while True:
                self._collect()
                while self._turn < len(self._lines) and self._play(self._turn):
                    self._turn, self._is_begun = self._turn + 1, False
                self._report()
                if not self._speeches:
                    break
                self._wake_up.wait(LOOKS_EVERY_S)
        finally:
            for speech in self._speeches.values():
                speech.cancel()
        return [self._ready[index] for index in range(len(self._lines))]

    def _find(self, index: int, line: Line) -> Spoken | None:
        if (cache := self._how.cache) is None:
            return None
        key = self._keys[index] = self._speaks.key(line, self._options)
        if key is None or self._how.again:
            return None
        try:
            return cache.find(key, line, self._options.retries)
        except DamagedLine as error:
            self._damage[index] = str(error)
            return None

    def _keep(self, index: int, spoken: Spoken) -> Spoken:
        """Cache a new line; return it with notes on faults of the cache."""
        cache, key, notes = self._how.cache, self._keys.get(index), []
        if damage := self._damage.get(index):
            notes.append(f"The line kept from an earlier run {damage}: it was made again.")
        if cache is not None and key is not None and spoken.report.ended in ENDS:
            try:
                cache.keep(key, spoken, self._options.retries)
            except OSError as error:
                log.warning("a line cannot be kept: %s", error)
                notes.append(f"Lines could not be kept for later: {error.strerror or error}.")
        return spoken.with_notes(*notes)

    def _queue(self, indices: Sequence[int]) -> None:
        """Queue lines: in order if they play, and the first of them streamed; otherwise the longest first."""
        is_played = self._listener.wants_sound
        deliveries = [
            Delivery(
                live=(indices[0] == index >= self._turn and index not in self._listener.complete)
                or (LATER if is_played else False),
                order=index if is_played else -self._likely[index],
                on_change=self._wake_up.set,
            )
            for index in indices
        ]
        lines = [self._lines[index] for index in indices]
        speeches = self._speaks.speak_all(lines, self._options, deliveries)
        self._speeches.update(zip(indices, speeches, strict=True))

    def _collect(self) -> None:
        for index in [index for index, speech in self._speeches.items() if speech.ended]:
            if index == self._turn:
                self._play(index)
            speech = self._speeches.pop(index)
            self._frames += speech.progress.done
            if (spoken := self._result(index, speech)) is not None:
                self._ended += 1
                self._take(index, spoken)

    def _result(self, index: int, speech: Speech) -> Spoken | None:
        """Return an ended line; None for one that failed while it streamed, which is queued again."""
        try:
            spoken = speech.result()
        except (torch.cuda.OutOfMemoryError, OutOfService):
            raise  # the caller can free memory, or start a server; the other lines would fail too
        except Exception as error:
            if index == self._turn and self._is_begun:
                log.warning("a line failed while it was streamed (%s): it is retried offline", error)
                # Delivered audio cannot be taken back: nothing follows where it broke off.
                self._turn, self._is_begun = index + 1, False
                self._queue([index])
                return None
            self.failures[index] = error
            return failed_line(self._lines[index], self._speaks.rate, error)
        return self._keep(index, spoken)

    def _take(self, index: int, spoken: Spoken) -> None:
        self._ready[index] = spoken
        self._listener.on_line(index, spoken)
        if self._how.check is not None:
            self._how.check.transcribe(self._lines[index], spoken)

    def _play(self, index: int) -> bool:
        """Deliver the new samples of a line; return whether the last were among them."""
        if (spoken := self._ready.get(index)) is not None:
            if not self._is_begun:
                self._listener.on_sound(index, spoken.waveform)
            return True
        if index in self._listener.complete:
            return False
        speech = self._speeches[index]
        if not speech.is_streamed:
            speech.stream()
        while speech.unread and (chunk := speech.take()) is not None:
            self._is_begun = True
            self._listener.on_sound(index, chunk.samples)
            if chunk.last:
                return True
        return False

    def _report(self) -> None:
        own = [(one.progress, self._likely[index]) for index, one in self._speeches.items()]
        done = self._frames + sum(progress.done for progress, _ in own)
        expected = self._frames + sum(max(progress.done, likely) for progress, likely in own)
        pieces = sum(progress.pieces for progress, _ in own)
        self._listener.on_frame(done, max(1, expected))
        if not (own or self._ended):
            return
        phase = f"speaking {len(own)} line{'' if len(own) == 1 else 's'}"
        if self._ended:
            phase = f"line {len(self._ready)} of {len(self._lines)}"
        if own and (left := self._estimate.describe(done, expected, pieces, time.perf_counter())):
            phase += f": {left}"
        if phase != self._phase:
            self._phase = phase
            self._listener.on_phase(phase)


class Estimate:
    """How long speech will be, and how long the rest takes at the speed of this run."""

    def __init__(self) -> None:
        self._begun: tuple[int, float] | None = None  # frames, and at what time

    def describe(self, done: int, expected: int, pieces: int, now: float) -> str:
        """Return the estimate in words, "" for short speech. ``done`` and ``expected`` are frames, ``now`` seconds."""
        if expected < LONG_S * FRAME_RATE:
            return ""
        if done and self._begun is None:
            self._begun = done, now
        cut = f" in about {pieces:,} pieces" if pieces > 1 else ""
        length = f"about {in_words(expected / FRAME_RATE)} of speech{cut}"
        if self._begun is None or done - self._begun[0] < MEASURED_FRAMES:
            return length
        begun, since = self._begun
        left = (now - since) / (done - begun) * (expected - done)
        return f"{length}, {100 * done // expected} % done, about {in_words(left)} left"


def in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
