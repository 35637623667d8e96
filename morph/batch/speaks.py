"""The protocol that every speech backend implements: one device, several devices, or a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..options import GenerateOptions
from ..speech.lines import Line, Spoken
from ..words.timing import WordTime
from .speech import Delivery, Speech


class Checks(Protocol):
    """Knows which lines can be spoken."""

    @property
    def languages(self) -> Sequence[str]:
        """The languages that a line may have."""

    def check(self, line: Line, options: GenerateOptions) -> None:
        """Raise ValueError for a line that cannot be spoken, before any work."""


class Speaks(Checks, Protocol):
    """A speech backend. Any thread may call it."""

    @property
    def name(self) -> str:
        """The checkpoint's name, with its adapters."""

    @property
    def rate(self) -> int:
        """The sample rate in Hz."""

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """Return a hash of everything that decides the line's audio, 64 hexadecimal digits; None: not cacheable."""

    def speak(self, line: Line, options: GenerateOptions, delivery: Delivery | None = None) -> Speech:
        """Queue a line; ValueError as ``check``. The default delivery streams and keeps it, in call order."""

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        """Queue lines together, as ``speak``: those that get rows begin with the same frame."""

    def check_words(self) -> None:
        """Raise ValueError if it knows no word times."""

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        """Return a line's word times in its waveform at any speed, or () if unknown; ValueError as ``check_words``."""

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        """Return a report of lines for people; ``elapsed_s`` is the wall-clock time of all."""


class ByVoice:
    """Routes each line to the backend of its voice (``Voice.by``), or to ``main``; see ``Speaks``.

    ``others`` have the same checkpoint with other adapters, so languages and words are alike. Lines of
    different models cannot share a batch: models that share weights take turns.
    """

    def __init__(self, main: Speaks, others: Mapping[Any, Speaks]):
        self._main, self._others = main, others
        self.name, self.rate, self.languages = main.name, main.rate, main.languages

    def _of(self, line: Line) -> Speaks:
        return self._others.get(line.voice.by, self._main)

    def check(self, line: Line, options: GenerateOptions) -> None:
        self._of(line).check(line, options)

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        return self._of(line).key(line, options)

    def speak(self, line: Line, options: GenerateOptions, delivery: Delivery | None = None) -> Speech:
        return self._of(line).speak(line, options, delivery)

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        speeches: dict[int, Speech] = {}
        for speaks in dict.fromkeys(map(self._of, lines)):
            own = [index for index, line in enumerate(lines) if self._of(line) is speaks]
            made = speaks.speak_all([lines[one] for one in own], options, [deliveries[one] for one in own])
            speeches.update(zip(own, made, strict=True))
        return [speeches[index] for index in range(len(lines))]

    def check_words(self) -> None:
        self._main.check_words()

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        return self._main.words(spoken)

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        """See ``Speaks``; the report ends with the names of the other models."""
        names = ", ".join(dict.fromkeys(one.name for one in self._others.values()))
        return f"{self._main.describe(spoken, options, elapsed_s)}\n- characters with models of their own: {names}"
