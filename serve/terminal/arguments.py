"""Readers of arguments, and options of several commands. Imports only Python's own packages."""

import argparse
import contextlib
import difflib
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ...morph import options as settings
from ...morph.audio.formats import FILES
from ...morph.runtime.atomic_file import name_beside
from ...morph.setting import Setting, settings_of
from ...morph.text.split import check_spoken
from .console import escaped

BAD_INPUT = 2
TEXTS: dict[str, Any] = json.loads(Path(__file__).with_name("help.json").read_text(encoding="utf-8"))
LIKENESS = 0.75  # of a mistyped command to the right one
ONE_WORD = re.compile(r"[A-Za-z_-]+")  # "Yes." is a text
RESERVED = ":\uff1a[]#\n\r"  # syntax of scripts


class Help(argparse.RawDescriptionHelpFormatter):
    """Adds the default to each option that has one, and keeps the layout of examples."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        has_none = default is None or default is False or default == [] or default is argparse.SUPPRESS
        if has_none or "default:" in text or f"default {default}" in text:
            return text
        return f"{text}; default: %(default)s"


class Parser(argparse.ArgumentParser):
    """Reports an error without the list of all options."""

    def __init__(self, **more: Any):
        super().__init__(**{"formatter_class": Help} | more)

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, escaped(f"{self.prog}: {message}; {self.prog} --help lists the options\n"))


def texts_of(command: str) -> dict[str, Any]:
    """Return a command's description and examples, as arguments of its parser."""
    own = TEXTS[command]
    examples = [f"  %(prog)s {one}".rstrip() for one in own["examples"]]
    return {"description": own["about"], "epilog": "\n".join(["examples:", *examples, *own.get("more", ())])}


def add_help(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the texts of ``help.json`` to a command's options."""
    own = TEXTS["all"] | TEXTS[command]
    for action in parser._actions:
        if action.help is None:
            action.help = own.get(action.option_strings[-1] if action.option_strings else action.dest)


def meant(word: str, commands: Iterable[str]) -> str | None:
    """Return the command that a mistyped first word means; None for a text."""
    if not ONE_WORD.fullmatch(word) or word.startswith("-"):
        return None
    return next(iter(difflib.get_close_matches(word.lower(), commands, 1, LIKENESS)), None)


def number(low: float, high: float) -> Callable[[str], float]:
    return reader(Setting(float(low), "", low, high))


def reader(one: Setting) -> Callable[[str], Any]:
    def read(word: str) -> Any:
        with contextlib.suppress(ValueError):
            if one.fits(value := one.kind(word)):
                return value
        kind = "a number from " if one.limits[0].isdigit() else ""
        raise argparse.ArgumentTypeError(f"{word!r} is not {kind}{one.limits}")

    return read


def filled(word: str) -> str:
    """Read a value that is not empty: an empty one would count as a missing option."""
    if not word.strip():
        raise argparse.ArgumentTypeError("it is empty: give a value, or leave the option out")
    return word


def folder(word: str) -> Path:
    """Read the path of a folder, which may not exist."""
    return Path(filled(word))


def existing_file(word: str, kind: str = "file") -> Path:
    if not (os.path.isfile if kind == "file" else os.path.isdir)(word):
        raise argparse.ArgumentTypeError(f"{word} is not a {kind}: give the path of one that exists")
    return Path(word)


def writable_file(word: str) -> Path:
    path = Path(word)
    if os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{word} is a folder: name a file, e.g. {path / 'speech.wav'}")
    if not os.path.isdir(path.parent):
        raise argparse.ArgumentTypeError(f"folder {path.parent} does not exist: create it, or choose another")
    try:
        with contextlib.suppress(FileNotFoundError):
            path.open("r+b").close()
        beside = name_beside(path)
        beside.touch(exist_ok=False)
        beside.unlink()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{word} cannot be written ({error.strerror}): choose another") from error
    return path


def ending_in(
    endings: Sequence[str], read: Callable[[str], Path] = writable_file, fix: str = "rename it"
) -> Callable[[str], Path]:
    """Return a reader of paths with one of these endings."""

    def reader(word: str) -> Path:
        path = read(word)
        if path.suffix.lower() not in endings:
            shown = f"one of {', '.join(endings)}" if len(endings) > 2 else " or ".join(endings)
            raise argparse.ArgumentTypeError(f"{word} does not end in {shown}: {fix}")
        return path

    return reader


sound_file = ending_in(tuple(FILES))


def part(word: str) -> tuple[str, str]:
    name, equals, voice = (piece.strip() for piece in word.partition("="))
    if not (name and equals and voice):
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=VOICE, e.g. ANNA=heart")
    if any(char in name for char in RESERVED):
        raise argparse.ArgumentTypeError(f"{name!r} contains one of : [ ] #, which scripts reserve: remove it")
    return name, voice


def lora(word: str) -> tuple[str, float]:
    """Read ``FOLDER`` or ``FOLDER:STRENGTH``; a drive on Windows is no strength."""
    folder, _, strength = filled(word).rpartition(":")
    with contextlib.suppress(ValueError):
        if folder:
            return folder, float(strength)
    return word, 1.0


def part_lora(word: str) -> tuple[str, str, float]:
    name, adapter = part(word)
    return name, *lora(adapter)


def check_sources(parser: argparse.ArgumentParser, sources: Iterable[Path | None], written: Iterable[Path]) -> None:
    """Exit with an error if an output is also an input: the user's file would be lost."""
    there = [path for path in written if path.exists()]
    for source in filter(None, sources):
        for path in there:
            if path.samefile(source):
                parser.error(f"{path} is read and would be overwritten: choose another place with --out")


def free_output(parser: argparse.ArgumentParser, path: Path) -> Path:
    """Return a free path, by adding a number (speech-2.wav); exit with an error if it is unusable."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2))
    free = next(one for one in itertools.chain([path], numbered) if not one.exists())
    try:
        return sound_file(str(free))
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))


def add_switch(parser: argparse._ActionsContainer, name: str) -> None:
    parser.add_argument(name, action="store_true")


def add_setting(parser: argparse._ActionsContainer, one: Setting, **more: Any) -> None:
    """Add the option of a setting; ``more`` are arguments for argparse in place of the table's."""
    if one.kind is bool:
        kind: dict[str, Any] = {"action": "store_true"}
    else:
        kind = {"choices": one.choices} if one.choices else {"type": reader(one)}
    name = f"--{one.name.replace('_', '-')}"
    parser.add_argument(name, **{"default": one.default, "help": one.help, **kind, **more})


class Removed(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, nargs: int | None = None):
        hidden = argparse.SUPPRESS
        super().__init__(option_strings, dest, nargs=nargs, default=hidden, help=hidden)

    def __call__(self, parser: argparse.ArgumentParser, _: object, values: object, name: str | None = None) -> None:
        sys.stderr.write(f"{parser.prog}: {name} is ignored: it was removed\n")


def check_new(parser: argparse.ArgumentParser, written: Iterable[Path], overwrite: bool) -> None:
    """Exit with an error if a file would be replaced without ``--overwrite``."""
    for path in written:
        if not overwrite and path.exists():
            parser.error(f"{path} exists already: choose another with --out, or add --overwrite")


def add_model(parser: argparse.ArgumentParser, attention: bool = True) -> None:
    """Add the options of the checkpoint, its device and its loading."""
    group = parser.add_argument_group("model")
    group.add_argument("--checkpoint", type=filled)
    add_folders(group)
    group.add_argument("--device", default="auto")
    for name, one in settings_of(settings.LoadOptions).items():
        if attention or name != "attention":
            add_setting(group, one)
    group.add_argument("--lora", action="append", default=[], type=lora, metavar="FOLDER[:STRENGTH]")


def add_folders(group: argparse._ActionsContainer) -> None:
    group.add_argument("--comfyui", type=partial(existing_file, kind="folder"), metavar="FOLDER")


def add_voice(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("voice")
    kinds = group.add_mutually_exclusive_group()
    kinds.add_argument("--voice", type=filled)
    kinds.add_argument("--speaker", type=filled)
    kinds.add_argument("--reference", type=existing_file)
    kinds.add_argument("--describe", type=filled)
    group.add_argument("--transcript", type=filled)
    group.add_argument("--instruct")


def check_line(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    text: str | None = getattr(options, "text", None)
    if text is not None:
        check_spoken(text)
    if options.transcript and not options.reference:
        parser.error("--transcript is the words of a recording: give the recording with --reference")


def add_settings(parser: argparse.ArgumentParser, seq_groups: bool = True) -> None:
    group = parser.add_argument_group("decoding")
    group.add_argument("--language", default="auto")
    add_setting(group, settings.SEED)
    for name, one in settings_of(settings.GenerateOptions, settings.ARGUMENT).items():
        if seq_groups or name != "seq_groups":
            add_setting(group, one)
    group.add_argument("--decoding", action=Removed)
    group.add_argument("--continuity", action=Removed, nargs=0)
    for one in settings_of(settings.TokenSampling, settings.ARGUMENT).values():
        add_setting(group, one, default=None, help=f"{one.help}; none: the checkpoint's own")
    for one in settings_of(settings.Sampling, settings.ARGUMENT).values():
        add_setting(group, one)


def add_pronunciation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pronunciation", type=existing_file, metavar="FILE")


def add_word_check(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("word check")
    group.add_argument(
        "--check-words", nargs="?", const=settings.RECOGNISER, choices=settings.RECOGNISERS, metavar="SIZE"
    )
    group.add_argument("--most-errors", type=number(0, 100), default=5)
    group.add_argument("--retakes", type=reader(Setting(0, "", 0, settings.MOST_RETAKES)), default=3)
