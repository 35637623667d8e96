"""What speaks the lines of a script: a checkpoint on this computer, or a speech server."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..terminal.engine import facts_of_model

if TYPE_CHECKING:
    from ...morph.options import GenerateOptions
    from ...morph.speech.lines import Line, Spoken
    from ...morph.speech.progress import OnFrame
    from ...morph.synthesizer import Synthesizer
    from ..remote.facts import ServerFacts
    from ..remote.servers import Server

OnLine = Callable[[int, "Spoken"], None]
ON_GPU = 4  # batches that are given together: rows of lines that ended are used again at once
AT_SERVER = 512  # lines that are given together: their sound is in memory until all of them are made
# Of servers that do not say theirs.
PUBLISHED_LANGUAGES = (
    *("auto", "chinese", "english", "japanese", "korean", "german"),
    *("french", "russian", "portuguese", "spanish", "italian"),
)
ADDRESS = ("http://", "https://")


class Maker(Protocol):
    """Speaks lines."""

    @property
    def rate(self) -> int:
        """Of its sound, in Hz."""

    @property
    def together(self) -> int:
        """How many lines to give it at a time."""

    def speak(self, lines: Sequence[Line], on_frame: OnFrame | None, on_line: OnLine) -> None:
        """Speak lines; ``on_line`` is called for each that is made, with its index, in any order."""

    def facts(self) -> dict[str, Any]:
        """Return, as JSON's values, what decides the sound of every line beside the line itself."""

    def describe(self, spoken: Sequence[Spoken], elapsed_s: float) -> str:
        """Return a report of lines for people."""


@dataclass(frozen=True)
class LocalMaker:
    """A checkpoint on this computer.

    Args:
        synthesizer: it, and its engine.
        path: its folder.
        settings: how lines are spoken.
    """

    synthesizer: Synthesizer
    path: Path
    settings: GenerateOptions

    @property
    def rate(self) -> int:
        """See ``Maker``."""
        return self.synthesizer.model.sample_rate

    @property
    def together(self) -> int:
        """See ``Maker``."""
        return self.settings.batch_size * (ON_GPU if self.synthesizer.model.device.type == "cuda" else 1)

    def speak(self, lines: Sequence[Line], on_frame: OnFrame | None, on_line: OnLine) -> None:
        """See ``Maker``."""
        from ...morph.speech.lines import render_lines

        for index, one in enumerate(render_lines(self.synthesizer, lines, self.settings, on_frame)):
            on_line(index, one)

    def facts(self) -> dict[str, Any]:
        """See ``Maker``."""
        return facts_of_model(self.synthesizer, self.path, self.settings)

    def describe(self, spoken: Sequence[Spoken], elapsed_s: float) -> str:
        """See ``Maker``."""
        from ...morph.speech.report import describe

        return describe(self.synthesizer.model, spoken, self.settings, elapsed_s)


@dataclass(frozen=True)
class ServerMaker:
    """A speech server.

    Args:
        server: what it says of itself.
        settings: how lines are spoken; ``batch_size`` of them are in flight.
        consent: whether those whose voices are sent have agreed.
    """

    server: ServerFacts
    settings: GenerateOptions
    consent: bool = False

    @property
    def rate(self) -> int:
        """See ``Maker``."""
        return self.server.sample_rate

    @property
    def together(self) -> int:
        """See ``Maker``."""
        return AT_SERVER

    def check(self, lines: Sequence[Line]) -> None:
        """Raise ValueError for a line that this server cannot speak."""
        from ..remote.payload import make_job

        for line in lines:
            make_job(self.server, line, self.settings, self.consent)

    def speak(self, lines: Sequence[Line], on_frame: OnFrame | None, on_line: OnLine) -> None:
        """See ``Maker``; ConnectionError if the server is gone."""
        from ..remote.renderer import Listener, RemoteRenderer

        listener = Listener(on_frame or Listener.on_frame, on_line=on_line)
        RemoteRenderer(self.server, self.settings, self.consent).render(lines, listener)

    def facts(self) -> dict[str, Any]:
        """See ``Maker``."""
        settings = {
            key: value
            for key, value in asdict(self.settings).items()
            if key not in ("batch_size", "chunk_frames")
        }
        return {
            "server": [self.server.engine, self.server.model, self.server.fingerprint],
            "settings": settings,
        }

    def describe(self, spoken: Sequence[Spoken], elapsed_s: float) -> str:
        """See ``Maker``."""
        from ...morph.speech.report import compose, engines_of

        return compose(spoken, elapsed_s, [*engines_of(spoken), f"made by server {self.server}"])


def named_server(word: str) -> Server:
    """Return a server by its address, or by its name in the environment.

    Its key is in the environment too: ``MORPH_TTS_KEY_NAME``, or ``MORPH_TTS_KEY_SERVER`` for an address.

    Raises:
        ValueError: for an address that cannot be used, or a name that is not listed.
    """
    from ..remote.servers import NAMELESS, Server, find_server, key_variable, plain_address

    if not word.startswith(ADDRESS):
        return find_server(word)
    return Server(NAMELESS, plain_address(word), os.environ.get(key_variable(NAMELESS), "").strip())


def ask(word: str) -> ServerFacts:
    """Return what a server says of itself; ValueError if it cannot be reached, or is none.

    One that may be starting is waited for, as for every line.
    """
    from ..remote import attempts
    from ..remote.renderer import ask_server

    try:
        return ask_server(named_server(word), attempts=attempts.ATTEMPTS)
    except ConnectionError as error:
        raise ValueError(str(error)) from error
