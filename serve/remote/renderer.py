"""Lines spoken by a server, as ``LineRenderer`` speaks them here: each once, in order, with takes and a word check."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from ...morph.kept.heard_words import RememberedEar
from ...morph.kept.line_cache import DamagedLine, Kept, LineCache
from ...morph.kept.line_renderer import FAILED_S
from ...morph.kept.word_check import WordCheck
from ...morph.options import GenerateOptions
from ...morph.runtime.collector import older_objects_spared
from ...morph.speech.lines import Line, LineReport, Spoken
from ...morph.speech.listener import Listener
from ...morph.speech.progress import Progress
from ...morph.speech.takes import ERROR
from ...morph.text.normalize import SpokenText
from ...morph.text.pauses import without_pauses
from .attempts import Lost, Made, News, Sound, Speaking, ask
from .background import Background
from .facts import ServerFacts
from .failure import Failure
from .payload import Job, make_job
from .servers import Server

log = logging.getLogger(__name__)

FRAME_SAMPLES = 1920
# Of all lines in flight together, where nobody hears them yet: their events are for the progress.
UNHEARD_EVENTS_A_S = 8
SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S = 0.5, 10.0  # our server takes no longer one
CHARACTERS_PER_TOKEN = 4  # for the progress only


def ask_server(server: Server, on_wait: Callable[[], None] = lambda: None, attempts: int = 1) -> ServerFacts:
    """Return what a server says of itself.

    Args:
        server: which.
        on_wait: called while it is waited for; what it raises ends that.
        attempts: how often it is asked while nobody listens there; ATTEMPTS of them take longer than its start.

    Raises:
        ConnectionError: if it cannot be reached, or is no speech server; one sentence with its name and the fix.
    """

    async def main(tell: Callable[[ServerFacts], None]) -> None:
        tell(await ask(server, attempts))

    with plain_failures(), Background(main) as asked:
        for facts in asked:
            if facts is not None:
                return facts
            on_wait()
    raise ConnectionError(f"server {server} gave no answer")


@contextmanager
def plain_failures() -> Iterator[None]:
    """Turn ``Failure`` into Python's ConnectionError: people see the type's name."""
    try:
        yield
    except Failure as error:
        raise ConnectionError(str(error)) from error


@dataclass(frozen=True)
class RemoteRenderer:
    """Renders lines at one server with one set of options.

    Args:
        facts: of the server.
        options: how lines are spoken; ``batch_size`` of them are in flight.
        consent: whether those whose voices are sent have agreed.
        cache: lines of earlier runs, and where new ones are kept; None makes every line and keeps none.
        check: hears the words of every line, and asks for other takes.
    """

    facts: ServerFacts
    options: GenerateOptions = field(default_factory=GenerateOptions)
    consent: bool = False
    cache: LineCache | None = None
    check: WordCheck | None = None

    def render(self, lines: Sequence[Line], listener: Listener | None = None) -> list[Spoken]:
        """Return lines in the order given: those in the cache as they are, the others made by the server.

        A line that fails is reported as such (``takes.ERROR``), with FAILED_S of silence; the others are made.

        Args:
            lines: one or more, with complete texts.
            listener: hears of progress.

        Raises:
            ValueError: for a line that cannot be spoken, or not by this server; before anything is sent.
            ConnectionError: if the server is gone, or no line could be made. What was made before is in the cache.
        """
        listener = listener or Listener()
        with plain_failures(), older_objects_spared():
            spoken, failures = self._fill(lines, listener)
            if failures and len(failures) == len(lines):
                raise failures[0]
            return self._check_words(lines, spoken, listener)

    def _check_words(
        self, lines: Sequence[Line], spoken: Sequence[Spoken], listener: Listener
    ) -> list[Spoken]:
        if self.check is None:
            return list(spoken)
        check, quiet = self.check, replace(listener, on_sound=Listener.on_sound, on_line=Listener.on_line)
        if self.cache is not None:
            check = replace(check, recogniser=RememberedEar(check.recogniser, self.cache))
        return check.apply(lines, spoken, lambda again: self._fill(again, quiet)[0], listener.on_phase)

    def _fill(self, lines: Sequence[Line], listener: Listener) -> tuple[list[Spoken], list[Failure]]:
        """Return all lines, and the errors of those that could not be made."""
        if not lines:
            raise ValueError("there is no line to speak: type a text")
        jobs = [make_job(self.facts, line, self.options, self.consent) for line in lines]
        kept = _Kept(self.cache, self.facts, self.options.retries)
        made: dict[int, Spoken] = {}
        for index, job in enumerate(jobs):
            listener.on_frame(0, 1)
            if (found := kept.find(job)) is not None:
                made[index] = found
                listener.on_line(index, found)
        missing = [(index, job) for index, job in enumerate(jobs) if index not in made]
        failures: list[Failure] = []
        for news in self._speak(missing, listener):
            if isinstance(news, Made):
                made[news.index] = kept.keep(jobs[news.index], news.spoken)
            else:
                log.warning("a line could not be made: %s", news.error)
                failures.append(news.error)
                made[news.index] = _failed(lines[news.index], self.facts, news.error)
            listener.on_line(news.index, made[news.index])
            listener.on_phase(f"line {len(made)} of {len(lines)}, {self.facts.server.name}")
        return [made[index] for index in range(len(lines))], failures

    def _speak(self, jobs: Sequence[tuple[int, Job]], listener: Listener) -> Iterator[Made | Lost]:
        """Speak jobs; yield what has become of each, as it comes. What the listener raises ends all."""
        if not jobs:
            return
        listener.on_phase(f"speaking {len(jobs)} line{'s' * (len(jobs) > 1)} at {self.facts.server.name}")
        if self.facts.takes_interval and not listener.hears_sound:
            interval_s = unheard_interval(min(self.options.batch_size, len(jobs)))
            jobs = [(index, replace(job, interval_s=interval_s)) for index, job in jobs]
        progress = Progress(listener.on_frame)
        progress.expect([len(str(job.line.text)) // CHARACTERS_PER_TOKEN for _, job in jobs])
        with Background[News](lambda tell: Speaking(self.facts, self.options, tell).run(jobs)) as speaking:
            for news in speaking:
                if isinstance(news, Sound):
                    progress.add(round(len(news.samples) / FRAME_SAMPLES))
                    listener.on_sound(news.index, news.samples)
                elif news is None:
                    progress.add(0)
                else:
                    yield news


def unheard_interval(in_flight: int) -> float:
    """Return the seconds between two events of a line that nobody hears, of so many in flight."""
    return min(max(SHORTEST_INTERVAL_S, in_flight / UNHEARD_EVENTS_A_S), LONGEST_INTERVAL_S)


@dataclass(frozen=True)
class _Kept:
    """The lines of one server in a cache, or none.

    Args:
        cache: of this computer.
        facts: of the server.
        retries: of the options.
    """

    cache: LineCache | None
    facts: ServerFacts
    retries: int

    def _key(self, job: Job, what: str = "line") -> str:
        # What the request does not say: the silence is cut here, and where no seed is taken each one sounds otherwise.
        apart: dict[str, int] = {"trim_ends": True} if job.trim_ends else {}
        apart |= {} if "seed" in job.body else {"seed": job.line.seed}
        parts = [what, self.facts.engine, self.facts.fingerprint, job.body, *([apart] if apart else [])]
        said = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()

    def find(self, job: Job) -> Spoken | None:
        """Return a line of an earlier run; None if there is none, or what is kept is damaged."""
        if self.cache is None or not self.facts.fingerprint:
            return None
        try:
            words = self.cache.find_words(self._key(job, "words"))
            if words is None:
                return None
            text, *notes = json.loads(words)
            kept = self.cache.find(self._key(job), job.line, SpokenText(text, tuple(notes)))
        except DamagedLine as error:
            log.warning("a line of an earlier run %s: it is made again", error)
            return None
        return kept.spoken if kept is not None and kept.fits(self.retries) else None

    def keep(self, job: Job, spoken: Spoken) -> Spoken:
        """Keep a line that has been made; return it, with a note if that failed."""
        if self.cache is None or not self.facts.fingerprint:
            return spoken
        report = spoken.report
        words = [report.spoken or without_pauses(report.text), *report.notes]
        try:
            self.cache.keep_words(self._key(job, "words"), json.dumps(words))
            self.cache.keep(self._key(job), Kept(spoken, self.retries))
        except OSError as error:
            log.warning("a line cannot be kept: %s", error)
            note = f"Lines could not be kept for later: {error.strerror or error}."
            return replace(spoken, report=replace(report, notes=(*report.notes, note)))
        return spoken


def _failed(line: Line, facts: ServerFacts, error: Failure) -> Spoken:
    """Return what stands for a line that could not be made: silence, and why."""
    silence = np.zeros(round(FAILED_S * facts.sample_rate), dtype=np.float32)
    report = LineReport(line.name, str(line.text), 0, FAILED_S, ERROR, 0, error=str(error))
    return Spoken(silence, facts.sample_rate, report)
