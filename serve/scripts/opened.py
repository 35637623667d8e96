"""What speaks the lines of a script: a checkpoint on this computer, or a speech server."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...morph.options import GenerateOptions
from ...morph.voice.cast import Cast
from ..remote.servers import NAMELESS, Server, find_server, server_at
from ..terminal.config import CheckpointConfig, read_config
from ..terminal.console import Console
from ..terminal.engine import (
    check_request,
    facts_of_model,
    facts_of_server,
    find_checkpoint,
    folders_of,
    load_at,
    make_check,
    make_settings,
    read_reference,
)
from .cast import make_cast, server_cast

if TYPE_CHECKING:
    from ...morph.batch.speaks import Speaks
    from ...morph.kept.once import Listener
    from ...morph.kept.word_check import WordCheck
    from ...morph.model.model import Model
    from ...morph.speech.lines import Line, Spoken
    from ..remote.facts import ServerFacts

ADDRESS = ("http://", "https://")


@dataclass(frozen=True)
class Opened:
    """What speaks lines, and how.

    Args:
        speaks: speaks them.
        settings: how.
        cast: who speaks.
        facts: what decides the sound of all lines beside the line itself, as JSON's values.
        check: hears every line that is spoken, and has other takes of it spoken; None hears none.
    """

    speaks: Speaks
    settings: GenerateOptions
    cast: Cast
    facts: dict[str, Any]
    check: WordCheck | None

    def speak(self, lines: Sequence[Line], listener: Listener | None = None) -> list[Spoken]:
        """Return lines; see ``speak_lines``."""
        from ...morph.kept.once import speak_lines

        return speak_lines(self.speaks, lines, self.settings, listener=listener)

    def heard(self, line: Line, spoken: Spoken) -> Spoken:
        """Return a line as the word check leaves it; others are spoken meanwhile."""
        if self.check is None:
            return spoken
        return self.check.apply([line], [spoken], self._speak_again, lambda _: None)[0]

    def _speak_again(self, lines: Sequence[Line]) -> list[Spoken]:
        from ...morph.batch.speech import OutOfService
        from ...morph.speech.lines import failed_line

        try:
            return self.speak(lines)
        except OutOfService:
            raise
        except Exception as error:
            return [failed_line(line, self.speaks.rate, error) for line in lines]


@contextmanager
def opened(
    options: argparse.Namespace, console: Console, check_names: Callable[[Cast, CheckpointConfig], None]
) -> Iterator[Opened]:
    """Yield what speaks by the options of a command.

    Args:
        options: of the command.
        console: shows what is downloaded.
        check_names: raises ValueError for lines that a checkpoint or its speakers cannot speak, before it is loaded.

    Raises:
        ValueError: for what cannot be used, or is not there.
    """
    check = make_check(options)
    if options.server:
        with _at_server(options, check) as one:
            yield one
        return
    recording, path = read_reference(options), find_checkpoint(options, console)
    named: Cast | None = None
    if (config := read_config(path)) is not None:
        named = make_cast(config.speakers, options, recording, _not_loaded)
        check_names(named, config)
    check_request(path, options)
    from .cast_adapters import CastAdapters  # torch, after all that needs none

    own = CastAdapters.read(options)
    if named is not None:
        own.mark(named)
    synthesizer = load_at(path, options)
    model = synthesizer.model
    cast = own.mark(make_cast(model.speakers, options, recording, lambda: model))
    settings = make_settings(model, options, batch_size=options.batch_size)
    facts = own.facts() | facts_of_model(synthesizer, path, settings)
    with own.speaking(synthesizer, path, options.batch_size) as speaks:
        yield Opened(speaks, settings, cast, facts, check)


def _not_loaded() -> Model:
    """Stand for the model while only names are needed."""
    raise AssertionError("the checkpoint is not loaded yet")


@contextmanager
def _at_server(options: argparse.Namespace, check: WordCheck | None) -> Iterator[Opened]:
    from ..remote.speaks import RemoteSpeaks

    server = ask(options.server)
    settings = make_settings(None, options, batch_size=options.batch_size)
    cast = server_cast(server, folders_of(options), options)
    with RemoteSpeaks(server, options.consent, options.batch_size) as speaks:
        yield Opened(speaks, settings, cast, facts_of_server(server, settings), check)


def ask(word: str) -> ServerFacts:
    """Return what a server says of itself; ValueError if it cannot be reached, or is none.

    One that is about to listen is waited for, a few seconds.
    """
    from ..remote import attempts

    try:
        return attempts.ask_server(named_server(word), attempts=attempts.FIRST_ATTEMPTS)
    except ConnectionError as error:
        raise ValueError(str(error)) from error


def named_server(word: str) -> Server:
    """Return a server by its address, or by a name in the environment.

    Its key is in the environment too: ``MORPH_TTS_KEY_NAME``, or ``MORPH_TTS_KEY_SERVER`` for an address.

    Raises:
        ValueError: for an address that cannot be used, or a name that is not listed.
    """
    if not word.startswith(ADDRESS):
        return find_server(word)
    return server_at(NAMELESS, word)
