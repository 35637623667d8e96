"""What speaks lines, whichever it is: a device, several, or a server."""

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
    """Speaks lines. Any thread may call it."""

    @property
    def name(self) -> str:
        """The checkpoint's name, with its adapters."""

    @property
    def rate(self) -> int:
        """Of the sound, in Hz."""

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """Return a hash of what decides the line's sound, 64 hexadecimal digits; None: it cannot be kept."""

    def speak(self, line: Line, options: GenerateOptions, delivery: Delivery | None = None) -> Speech:
        """Queue a line; return what reads it. None: live, kept, in the order of the calls.

        Raises:
            ValueError: as ``check``.
        """

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        """Queue lines together, as ``speak``: those that get rows begin with the same frame."""

    def check_words(self) -> None:
        """Raise ValueError if it says of no line when its words are heard."""

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        """Return when the words of a line are heard in its waveform, at any speed; () if it is not known.

        Args:
            spoken: a line of its own, also one that was kept.

        Raises:
            ValueError: as ``check_words``.
        """

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        """Return a report of lines for people; ``elapsed_s`` is the wall-clock time of all."""
