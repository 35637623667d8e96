"""Lines to waveforms, each once: lines that were made before come from a cache, and one that fails ends no others.

A word check may hear them all and ask for other takes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import torch

from ..batch.channel import StreamClosed
from ..options import GenerateOptions
from ..runtime.collector import older_objects_spared
from ..speech.lines import (
    Line,
    LineReport,
    Rendering,
    Spoken,
    check_complete,
    check_lines,
    cut_line,
    normalizer_of,
    piece_limit,
)
from ..speech.progress import OnFrame, Progress
from ..speech.takes import ERROR
from ..synthesizer import Synthesizer
from .heard_words import RememberedEar
from .line_cache import DamagedLine, Kept, LineCache
from .line_key import common_key, line_key
from .word_check import WordCheck

log = logging.getLogger(__name__)

GROUPS_OF = 4  # batches: lines are kept after each such group, so that a cancelled run loses at most one
FAILED_S = 0.5  # of silence in the place of a line that could not be made: no file may be empty


@dataclass
class Watch:
    """Passes progress on, and knows what was raised there: that is the user's wish to end, not a failure."""

    on_frame: OnFrame | None = None
    on_phase: Callable[[str], None] | None = None
    raised: BaseException | None = None

    def frame(self, done: int, expected: int) -> None:
        """See ``OnFrame``."""
        if self.on_frame is not None:
            self._pass_on(lambda report: report(done, expected), self.on_frame)

    def phase(self, words: str) -> None:
        """A phase begins."""
        if self.on_phase is not None:
            self._pass_on(lambda say: say(words), self.on_phase)

    def _pass_on(self, call: Callable[[Callable], None], to: Callable) -> None:
        try:
            call(to)
        except BaseException as error:
            self.raised = error
            raise

    def ends_all(self, error: Exception) -> bool:
        """Return whether an error ends all lines: the user's wish, or no memory, which the caller can free."""
        return error is self.raised or isinstance(error, (StreamClosed, torch.cuda.OutOfMemoryError))


@dataclass(frozen=True)
class Recall:
    """What a cache has of some lines.

    Args:
        found: by the line's index.
        missing: the indices of the others, in their order.
    """

    found: Mapping[int, Spoken]
    missing: tuple[int, ...]
    _cache: LineCache | None = None
    _retries: int = 0
    _keys: tuple[str, ...] = ()
    _damaged: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))

    def keep(self, index: int, spoken: Spoken) -> Spoken:
        """Keep a line that has been made, for later renderings; return it with a note on what went wrong there."""
        notes = []
        if index in self._damaged:
            notes.append(f"The line kept from an earlier run {self._damaged[index]}: it was made again.")
        if self._cache is not None and spoken.report.ended != ERROR:
            try:
                self._cache.keep(self._keys[index], Kept(spoken, self._retries))
            except OSError as error:
                log.warning("a line cannot be kept: %s", error)
                notes.append(f"Lines could not be kept for later: {error.strerror or error}.")
        return replace(spoken, report=replace(spoken.report, notes=(*spoken.report.notes, *notes)))


@dataclass(frozen=True)
class Made:
    """A line that was made, or what stands for it where that failed.

    Args:
        index: of the line.
        spoken: it.
        error: why it could not be made, or None.
    """

    index: int
    spoken: Spoken
    error: Exception | None = None


@dataclass(frozen=True)
class LineRenderer:
    """Renders lines with one checkpoint and one set of options.

    Args:
        synthesizer: the checkpoint and its engine.
        options: how lines are spoken.
        cache: lines of earlier runs, and where new ones are kept. None makes every line and keeps none.
        check: hears the words of every line, and asks for other takes. None hears none.
    """

    synthesizer: Synthesizer
    options: GenerateOptions = field(default_factory=GenerateOptions)
    cache: LineCache | None = None
    check: WordCheck | None = None

    def recall(self, lines: Sequence[Line], watch: Watch | None = None) -> Recall:
        """Return what the cache has of these lines, whose texts are complete.

        Args:
            lines: one or more.
            watch: it may end the search, which writes out all texts.

        Raises:
            ValueError: as ``render_lines``, but for what only a prompt shows.
        """
        model = self.synthesizer.model
        self.synthesizer.engine.choose(model, self.options)
        check_complete(lines)
        check_lines(model, lines)
        if self.cache is None:
            return Recall({}, tuple(range(len(lines))))
        return self._look_up(self.cache, lines, watch or Watch())

    def _look_up(self, cache: LineCache, lines: Sequence[Line], watch: Watch) -> Recall:
        model, retries = self.synthesizer.model, self.options.retries
        normalizer = normalizer_of(model, self.options, lambda: watch.frame(0, 1))
        limit = piece_limit(model, self.options)
        common, keys = common_key(self.synthesizer, self.options), []
        found: dict[int, Spoken] = {}
        damaged: dict[int, str] = {}
        for index, line in enumerate(lines):
            text, pieces = cut_line(index, line, normalizer, limit)
            keys.append(line_key(common, line, pieces))
            try:
                kept = cache.find(keys[-1], line, text)
            except DamagedLine as error:
                damaged[index] = str(error)
                continue
            if kept is not None and kept.fits(retries):
                found[index] = kept.spoken
        missing = tuple(index for index in range(len(lines)) if index not in found)
        return Recall(found, missing, cache, retries, tuple(keys), damaged)

    def render(
        self,
        lines: Sequence[Line],
        on_frame: OnFrame | None = None,
        on_phase: Callable[[str], None] | None = None,
    ) -> list[Spoken]:
        """Return lines in the order given: those in the cache as they are, the others rendered.

        A line that fails is reported as such (``takes.ERROR``), with FAILED_S of silence; the others are made.

        Args:
            lines: one or more, with complete texts.
            on_frame: see ``OnFrame``; what it raises ends the rendering.
            on_phase: called with a few words when a phase begins.

        Raises:
            ValueError: as ``render_lines``, before the first frame.
            Exception: the first line's error, if no line could be made.
            torch.cuda.OutOfMemoryError: what was made before it is in the cache.
        """
        watch = Watch(on_frame, on_phase)
        return self.check_words(lines, self.fill(lines, self.recall(lines, watch), watch), watch)

    def check_words(
        self,
        lines: Sequence[Line],
        spoken: Sequence[Spoken],
        watch: Watch,
        speak: Callable[[Sequence[Line]], list[Spoken]] | None = None,
    ) -> list[Spoken]:
        """Return the lines as ``check`` leaves them: heard, and some of them as other takes.

        ``speak`` makes those; None makes them here.
        """
        if self.check is None:
            return list(spoken)
        check = self.check
        if self.cache is not None:
            check = replace(check, recogniser=RememberedEar(check.recogniser, self.cache))

        def speak_here(again: Sequence[Line]) -> list[Spoken]:
            return self._fill(again, self.recall(again, watch), watch)[0]

        return check.apply(lines, spoken, speak or speak_here, watch.phase)

    def fill(self, lines: Sequence[Line], recall: Recall, watch: Watch) -> list[Spoken]:
        """Return lines in the order given, those that ``recall`` lacks rendered; see ``render``."""
        spoken, failures = self._fill(lines, recall, watch)
        if len(failures) == len(lines):
            raise failures[0]
        return spoken

    def _fill(
        self, lines: Sequence[Line], recall: Recall, watch: Watch
    ) -> tuple[list[Spoken], list[Exception]]:
        """Return all lines, and the errors of those that could not be made."""
        spoken = dict(recall.found)
        failures: list[Exception] = []
        for made in self.make(lines, recall, watch):
            spoken[made.index] = made.spoken
            if made.error is not None:
                failures.append(made.error)
        return [spoken[index] for index in range(len(lines))], failures

    def make(
        self,
        lines: Sequence[Line],
        recall: Recall,
        watch: Watch,
        preparing: AbstractContextManager[object] | None = None,
    ) -> Iterator[Made]:
        """Make the lines that ``recall`` lacks, and keep them; yield each group of them when it is made.

        Read it to its end: the model is held until then. Errors are those of ``render``. ``preparing`` is entered while
        prompts are built.
        """
        if not recall.missing:
            return
        with self.synthesizer.session(), older_objects_spared():
            missing = [lines[index] for index in recall.missing]
            with preparing or nullcontext():
                whole = Rendering.prepare(self.synthesizer, missing, self.options, Progress(watch.frame))
            size = len(missing) if self.cache is None else GROUPS_OF * self.options.batch_size
            for start in range(0, len(missing), size):
                group = range(start, min(start + size, len(missing)))
                for place, one in zip(group, _speak(whole.only(group), watch), strict=True):
                    index = recall.missing[place]
                    yield replace(one, index=index, spoken=recall.keep(index, one.spoken))


def _speak(rendering: Rendering, watch: Watch) -> list[Made]:
    """Return the lines of a rendering, by their index there; if that fails, each of them alone."""
    count = len(rendering.lines)
    try:
        takes = rendering.speak(watch.phase)
        return [Made(index, spoken) for index, spoken in enumerate(rendering.assemble(takes))]
    except Exception as error:
        if watch.ends_all(error):
            raise
        if count == 1:
            model = rendering.synthesizer.model
            return [Made(0, failed_line(rendering.lines[0], model.sample_rate, error), error)]
        log.warning("%d lines failed together (%s); each is made by itself", count, error)
    return [
        replace(made, index=index)
        for index in range(count)
        for made in _speak(rendering.only([index]), watch)
    ]


def failed_line(line: Line, sample_rate: int, error: Exception) -> Spoken:
    """Return what stands for a line that could not be made: silence, and why."""
    why = say_why(error)
    log.warning("line %.40r could not be made: %s", line.text, why, exc_info=error)
    silence = np.zeros(round(FAILED_S * sample_rate), dtype=np.float32)
    report = LineReport(line.name, str(line.text), 0, FAILED_S, ERROR, 0, error=why)
    return Spoken(silence, sample_rate, report)


def say_why(error: BaseException) -> str:
    """Return an error in words, with its type where only that says what it is."""
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
