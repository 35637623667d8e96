"""Check lines with a speech recogniser, and retake those with too many wrong words with other seeds."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..hearing.whisper import Whisper
from ..hearing.words import Transcript, count_errors
from ..options import MOST_RETAKES
from ..setting import Checked, setting
from ..speech.lines import Line, Spoken
from ..speech.takes import ERROR, RetryPolicy, take_seed
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
        try:
            if (known := self.cache.find_words(key)) is not None:
                return known
        except DamagedLine as error:
            log.warning("words kept from an earlier run: %s; the line is transcribed again", error)
        text = self.recogniser.transcribe(waveform, rate, language)
        try:
            self.cache.keep_words(key, text)
        except OSError as error:
            log.warning("words cannot be kept: %s", error)
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
