"""The protocol that every speech backend implements: one device, several devices, or a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
