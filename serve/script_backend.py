"""The speech backend and the cast of a script, of a checkpoint on this computer or of a speech server; lists of lines.

A list of lines has a JSON object per line of its file:

    {"text": "Good morning.", "voice": "heart"}
    {"name": "Bob", "voice": "michael", "text": "It is 5:30.", "seed": 7, "pause": 0.5}

``text`` is required and may contain ``[pause 0.4]``. ``voice`` is a voice of the cast, and ``name`` the speaker in the
subtitles; either may be left out. ``language``, ``seed``, ``take``, ``gain`` (dB), ``speed``, ``pitch`` (semitones) and
``instruct`` are as in scripts; ``pause`` is seconds of silence before the line.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..morph.model.names import known_language
from ..morph.options import GenerateOptions
from ..morph.setting import Setting
from ..morph.text.names import name_key
from ..morph.text.scripts.script import LIMITS, Script, ScriptLine, check_script, parse_script, report_faults
from ..morph.text.split import MAX_PAUSE_S, check_encodable, check_spoken
from ..morph.voice.cast import GIVEN, PRESET, SAVED, Cast, Character, join_characters, named_characters
from ..morph.voice.voice import Voice
from .remote.servers import NAMELESS, find_server, server_at
from .terminal import engine
from .terminal.console import Console

if TYPE_CHECKING:
    import numpy as np

    from ..morph.batch.speech import Speaks
    from ..morph.kept.render import WordCheck
    from ..morph.model.adapter import Adapter
    from ..morph.model.model import Model
    from ..morph.synthesizer import Synthesizer
    from .remote.facts import ServerFacts

    CastAdapters = dict[str, tuple[Adapter, float]]
    """Adapters and their strengths by the names of characters, as the command line spells them."""


NARRATOR = "NARRATOR"
ADDRESS = ("http://", "https://")
TEXTS = ("text", "voice", "name", "language", "instruct")
NUMBERS = {name: Setting(low, low=low, high=high, name=name) for name, (low, high, _) in LIMITS.items()}
NUMBERS["pause"] = Setting(0.0, low=0, high=MAX_PAUSE_S, name="pause")
KEYS = (*TEXTS, *NUMBERS)
LINE_BREAK = re.compile(r"\r\n|\r|\n")
Read = TypeVar("Read")
NamedScript = tuple[Script, dict[str, str]]
"""A script with names as the cast spells them, and the voice of each name."""
Reader = Callable[[Cast, Sequence[str]], Read]
"""Reads the user's file for a cast and the languages of a checkpoint; ValueError for names or words that it lacks."""
Named = tuple[Iterable[str], Callable[[str], Voice]]
"""Names of voices, and what makes the voice of a name."""


def find_name(cast: Cast, name: str) -> str:
    """Return a name as the cast spells it, in any case; "" is the narrator. ValueError if there is none."""
    spelled = cast.spelled(name or NARRATOR)
    if spelled is None:
        known = ", ".join(sorted(cast))
        raise ValueError(f"voice {name or NARRATOR!r} is not in the cast: choose one of {known}, or add --cast")
    return spelled


def make_cast(
    speakers: Sequence[str],
    options: argparse.Namespace,
    recording: tuple[np.ndarray, int] | None,
    model: Callable[[], Model],
) -> Cast:
    """Return everybody that a script may name: ``--cast``, the narrator, saved voices, the checkpoint's speakers.

    The first of equal names (``names.name_key``) counts; the options choose the narrator's voice. ``model`` returns the
    checkpoint when a voice needs it: names are known earlier. ValueError for a name twice in ``--cast``, or for nobody.
    """
    folders = engine.folders_of(options)

    def preset(name: str) -> Voice:
        from ..morph.voice.create import preset_voice

        return preset_voice(model(), name)

    narrator = None
    if speakers or options.voice or recording or options.describe:
        named = options.voice or options.speaker or ""
        narrator = Character(GIVEN, lambda: engine.make_voice(model(), options, recording), named)
    saved = folders.library.sources(), lambda name: engine.saved_voice(name, folders, model())
    return _join(options.cast, narrator, saved, (speakers, preset))


def server_cast(server: ServerFacts, options: argparse.Namespace) -> Cast:
    """Return the cast if a server speaks: as ``make_cast``, with the server's own voices."""
    folders = engine.folders_of(options)

    def choose(voice: str) -> Voice:
        if voice.casefold() in map(str.casefold, server.voices):
            spelled = server.speaker(voice)
            return Voice("preset", server.size, name=spelled, speaker=spelled)
        return engine.saved_voice(voice, folders)

    narrator = None
    if options.describe:  # the server reads the words with each line
        designed = Voice("design", server.size, name="designed voice", instruct=options.describe.strip())
        narrator = Character(GIVEN, lambda: designed)
    elif name := options.voice or options.speaker or next(iter(server.voices), ""):
        narrator = Character(GIVEN, partial(choose, name), name)
    return _join(options.cast, narrator, (folders.library.voices(), choose), (server.voices, choose))


def _join(named: Iterable[tuple[str, str]], narrator: Character | None, saved: Named, presets: Named) -> Cast:
    speakers = set(map(str.casefold, presets[0]))
    given: dict[str, Character] = {}
    for name, voice in named:
        if name_key(name) in map(name_key, given):
            raise ValueError(f"--cast has {name!r} twice: keep one")
        make = presets[1] if voice.casefold() in speakers else saved[1]
        given[name] = Character(GIVEN, partial(make, voice), voice)
    own = {} if narrator is None else {NARRATOR: narrator}
    cast = join_characters(given, own, named_characters(SAVED, *saved), named_characters(PRESET, *presets))
    if not cast:
        raise ValueError("no voice is set: choose one with --cast NAME=VOICE, --voice or --reference")
    return cast


@dataclass(frozen=True)
class ScriptBackend(Generic[Read]):
    """The backend of a script, its settings, the voices, the word check, and the script as it was read."""

    speaks: Speaks
    settings: GenerateOptions
    cast: Cast
    check: WordCheck | None
    script: Read


@contextmanager
def open_backend(options: argparse.Namespace, console: Console, read: Reader[Read]) -> Iterator[ScriptBackend[Read]]:
    """Yield the backend that the options choose; ValueError for unusable or missing input.

    ``read`` reads the script before the checkpoint is loaded, which takes seconds.
    """
    check = engine.make_check(options)
    if options.server:
        with _remote(options, check, read) as one:
            yield one
        return
    recording, path = engine.read_reference(options), engine.find_checkpoint(options, console)
    load = cache(partial(engine.load_at, path, options))
    known = engine.read_config(path) or load().model
    cast = make_cast(known.speakers, options, recording, lambda: load().model)
    script = read(cast, known.languages)
    engine.check_request(path, options)
    own = read_cast_adapters(options)
    cast = mark_adapters(cast, own)
    settings = engine.make_settings(load().model, options, batch_size=options.batch_size)
    with speaking(load(), path, own, options.batch_size) as speaks:
        yield ScriptBackend(speaks, settings, cast, check, script)


def read_cast_adapters(options: argparse.Namespace) -> CastAdapters:
    """Return those of ``--cast-lora``; ValueError for a name that is there twice, and as ``read_adapter``."""
    names = [name for name, _, _ in options.cast_lora]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--cast-lora has {name!r} twice: keep one")
    given = [(word, strength) for _, word, strength in options.cast_lora]
    found = engine.find_adapters(given, engine.folders_of(options))
    return dict(zip(names, engine.read_adapters(found), strict=True))


def mark_adapters(cast: Cast, own: Iterable[str]) -> Cast:
    """Return a cast whose voices, with their moods, name their adapters; ValueError for other names."""
    for name in own:
        if cast.spelled(name) is None:
            raise ValueError(f"--cast-lora names {name!r}, who is not in the cast: add --cast {name}=VOICE")
    return cast.spoken_by({name: name for name in own})


@contextmanager
def speaking(synthesizer: Synthesizer, path: Path, own: CastAdapters, rows: int) -> Iterator[Speaks]:
    """Yield a backend for up to ``rows`` concurrent lines of the checkpoint in ``path``; errors as ``adapt``."""
    from ..morph.batch.batch import Batch
    from ..morph.batch.speech import ByVoice

    with ExitStack() as batches:
        adapted = [synthesizer.with_adapter(adapter, strength, path) for adapter, strength in own.values()]
        ready = [Batch(one, rows, linger_s=None) for one in (synthesizer, *adapted)]
        main, *others = map(batches.enter_context, ready)
        yield ByVoice(main, dict(zip(own, others, strict=True))) if others else main


@contextmanager
def _remote(options: argparse.Namespace, check: WordCheck | None, read: Reader[Read]) -> Iterator[ScriptBackend[Read]]:
    from .remote.connection import FIRST_ATTEMPTS, ask_server
    from .remote.speaks import RemoteSpeaks

    named = options.server
    found = server_at(NAMELESS, named) if named.startswith(ADDRESS) else find_server(named)
    try:  # one that is about to listen is waited for
        server = ask_server(found, attempts=FIRST_ATTEMPTS)
    except ConnectionError as error:
        raise ValueError(str(error)) from error
    settings = engine.make_settings(None, options, batch_size=options.batch_size)
    with RemoteSpeaks(server, options.consent, options.batch_size) as speaks:
        cast = server_cast(server, options)
        yield ScriptBackend(speaks, settings, cast, check, read(cast, speaks.languages))


def read_list(text: str) -> Reader[NamedScript]:
    """Return a reader of a list of lines; ValueError for faults that do not depend on the cast."""
    script, voices = parse_lines(text)

    def read(cast: Cast, languages: Sequence[str]) -> NamedScript:
        for line in script.lines:
            if line.language:
                known_language(line.language, languages, f"the checkpoint (line {line.number})")
        return script, {name: find_name(cast, voice) for name, voice in voices.items()}

    return read


def read_script(text: str) -> Reader[NamedScript]:
    """Return a reader of a script; ValueError for faults that do not depend on the cast."""
    check_script(text)

    def read(cast: Cast, languages: Sequence[str]) -> NamedScript:
        script = parse_script(text, list(cast), languages)
        return script, {line.name: line.name for line in script.lines}

    return read


def parse_lines(text: str) -> tuple[Script, dict[str, str]]:
    """Return lines in JSON as a script, whose names are those of the subtitles, and the voice of each name.

    Voices are names of the cast, "" for the narrator. ValueError names the faulty lines.
    """
    items: list[ScriptLine | float] = []
    voices: dict[str, str] = {}
    errors: list[tuple[int, str]] = []
    # Not splitlines: a string in JSON may have the other line breaks as they are.
    for number, row in enumerate(LINE_BREAK.split(text.removeprefix("\ufeff")), start=1):
        try:
            if row.strip():
                items += _read(number, row, voices)
        except ValueError as error:
            errors.append((number, str(error)))
    if errors:
        raise ValueError(report_faults(errors, "the list"))
    if not voices:
        raise ValueError('there is no line to speak: write objects such as {"text": "Hello."}')
    return Script(tuple(items)), voices


def _read(number: int, row: str, voices: dict[str, str]) -> list[ScriptLine | float]:
    fields = _fields(row)
    name, voice = fields.pop("name", ""), fields.pop("voice", "")
    name, voice = name or voice, voice or name
    if voices.setdefault(name, voice) != voice:
        raise ValueError(f"{name!r} speaks with {voice!r} here and with {voices[name]!r} above: use another name")
    pause, gain = fields.pop("pause", None), fields.pop("gain", None)
    spoken = ScriptLine(number, name, gain_db=gain, **fields)
    return [spoken] if pause is None else [float(pause), spoken]


def _fields(row: str) -> dict[str, Any]:
    try:
        fields = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
        raise ValueError('it has no text: write {"text": "Hello."}')
    if unknown := sorted(set(fields) - set(KEYS)):
        raise ValueError(f"{unknown[0]!r} is not a key: choose of {', '.join(KEYS)}")
    fields = {key: value for key, value in fields.items() if value is not None}
    for key, value in fields.items():
        if key in NUMBERS:
            NUMBERS[key].check(value)
        elif not isinstance(value, str):
            raise ValueError(f"{key} is {value!r}: give text")
        else:
            check_encodable(value, key)
    check_spoken(fields["text"])
    return fields
