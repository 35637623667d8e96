"""Speak a list of lines: reuse cached lines, isolate failures, optionally check words and retake wrong lines."""

import hashlib
import logging
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from ..batch.key import SOUND_VERSION
from ..batch.speech import LATER, Delivery, OutOfService, Speaks, Speech
from ..hearing.whisper import Transcript, Whisper, count_errors
from ..options import FRAME_RATE, MOST_RETAKES, GenerateOptions
from ..runtime.collector import frozen_objects
from ..runtime.threads import WakeUpEvent
from ..setting import Checked, setting
from ..speech.lines import ENDS, ERROR, Line, Spoken, failed_line, take_seed
from ..speech.takes import RetryPolicy
from ..text.duration import likely_frames
from ..text.pronunciation import shown_text
from .cache import DamagedLine, LineCache

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WordCheck(Checked):
    """A recogniser, and how many wrong words a line may have."""

    recogniser: Whisper
    most_errors: float = setting(0.05, "wrong words per word", 0.0, 1.0)
    retakes: int = setting(3, "of a line with more", 0, MOST_RETAKES)
    cache: LineCache | None = None  # of recognised words; the recogniser's name identifies its results

    def apply(
        self,
        lines: Sequence[Line],
        spoken: Sequence[Spoken],
        render: Callable[[Sequence[Line]], Sequence[Spoken]],
        on_phase: Callable[[str], None],
    ) -> list[Spoken]:
        """Return for each line the take with the fewest wrong words, with what was recognised in its report.

        Take N has the seed that ``[take N]`` has in a script. ``render`` makes other takes; a failed one says so in
        its report. ``on_phase`` gets a few words before each line; if it raises, the check ends.
        """
        best = []
        for number, (line, one) in enumerate(zip(lines, spoken, strict=True), start=1):
            on_phase(f"hearing line {number} of {len(lines)}")
            best.append(self.transcribe(line, one))
        for take in RetryPolicy(self.retakes).further:
            again = [index for index, one in enumerate(best) if (own := one.report.heard) and not own.passed]
            if not again:
                break
            on_phase(f"{len(again)} heard wrong: take {take}")
            asked = [replace(lines[index], seed=take_seed(lines[index].seed, take)) for index in again]
            for index, line, made in zip(again, asked, render(asked), strict=True):
                on_phase(f"hearing take {take} of line {index + 1}")
                best[index] = _better(best[index], self.transcribe(line, made), take, line.seed)
        return best

    def transcribe(self, line: Line, spoken: Spoken) -> Spoken:
        """Return a line with the recognised words; unchanged if it failed or has no words."""
        report = spoken.report
        if report.ended == ERROR:
            return spoken
        try:
            text = self._recognise(spoken, line.language)
        except Exception as error:
            log.warning("%.40r could not be heard", report.text, exc_info=True)
            return spoken.with_notes(f"{report.text[:40]!r} could not be heard: {error}")
        shown = shown_text(report.text)
        # The recogniser may write words that are read otherwise as in the text.
        texts = {report.spoken or shown, shown if report.readings else report.spoken or shown}
        errors, words = min(count_errors(one, text, line.language) for one in texts)
        if not words:
            return spoken
        return _with_words(spoken, Transcript(text, errors, words, errors <= self.most_errors * words))

    def _recognise(self, spoken: Spoken, language: str) -> str:
        """Return the words of a line, recognised now or before."""
        waveform, rate = spoken.waveform, spoken.sample_rate
        if self.cache is None:
            return self.recogniser.transcribe(waveform, rate, language)
        about = f"{self.recogniser.name}\0{language.strip().lower()}\0{rate}\0{waveform.dtype}\0"
        key = hashlib.sha256(about.encode() + waveform.tobytes()).hexdigest()
        if (text := self.cache.find_words(key)) is None:
            text = self.recogniser.transcribe(waveform, rate, language)
            self.cache.keep_words(key, text)
        return text


def _better(before: Spoken, after: Spoken, take: int, seed: int) -> Spoken:
    """Return the take with fewer wrong words, of equals the earlier; its report counts all takes.

    The report names the seed of ``after``, as the line may be another ``[take N]`` in a script already.
    """
    first, second, name = before.report.heard, after.report.heard, repr(before.report.text[:40])
    assert first is not None  # only a line with recognised words has another take
    if after.report.ended == ERROR:
        return before.with_notes(f"Take {take} of {name} could not be made: {after.report.error}")
    if second is None or second.rate >= first.rate:
        return _with_words(before, replace(first, takes=first.takes + 1))
    better = after.with_notes(f"{name} is take {take}, with seed {seed}: its words were heard better.")
    return replace(_with_words(better, replace(second, takes=first.takes + 1)), take=take)


def _with_words(spoken: Spoken, words: Transcript) -> Spoken:
    return replace(spoken, report=replace(spoken.report, heard=words))


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

    A line that fails is reported as such (``lines.ERROR``), with half a second of silence; the others go on. Texts
    must be complete.

    Raises:
        ValueError: for a line that cannot be spoken, before any is.
        Exception: the first line's error, if no line could be made.
        torch.cuda.OutOfMemoryError, OutOfService: lines that ended before are in the cache.
    """
    how, listener = how or RenderOptions(), listener or Listener()
    if not lines:
        raise ValueError("there is no line to speak: type a text")
    for line in lines:
        if not isinstance(line.text, str):
            raise ValueError(f"a line's text is {type(line.text).__name__}, not a string: join it, or speak it alone")
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
        self._notes: dict[int, str] = {}  # on damaged files in it
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
            self._notes[index] = f"The line kept from an earlier run {error}: it was made again."
            return None

    def _keep(self, index: int, spoken: Spoken) -> Spoken:
        """Cache a new line; return it with notes on faults of the cache."""
        cache, key, notes = self._how.cache, self._keys.get(index), [self._notes[index]] if index in self._notes else []
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
