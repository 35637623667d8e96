"""``voices``: manage the library of saved voices; ``voices shift`` saves one with a mood."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...morph.options import LAYOUTS, SHIFT_STRENGTHS
from ...morph.voice.library import clone_recording, describe_file, load_source
from ...morph.voice.voice import Voice
from ..terminal import arguments
from ..terminal.console import Console, one_line
from ..terminal.engine import find_checkpoint, folders_of, load_synthesizer, load_voice, read_config, saved_file
from ..terminal.folders import Folders
from ..terminal.sound import read_recording, write_atomic
from . import speak
from .clone import VOICE_FILE, choose_path, save, voice_file

if TYPE_CHECKING:
    from ...morph.model.model import Model
PREVIEW = "Hello, this is how I sound. I hope that you like it."
LONGEST_SHOWN = 50
NO_VOICE = ("voice", "speaker", "reference", "describe", "transcript", "instruct")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", help="what to do:")
    for name, one in ACTIONS.items():
        told = arguments.texts_of(f"voices {name}")
        action = actions.add_parser(name, help=told["description"], **told)
        for argument, more in one.arguments:
            action.add_argument(argument, **more)
        one.add(action)
        (arguments.add_model if one.loads else arguments.add_folders)(action)
        arguments.add_help(action, f"voices {name}")


def _add_save(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(out=None)
    arguments.add_voice(parser)


def _add_design(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(**dict.fromkeys(NO_VOICE))
    # ``design TEXT --name NAME --out FILE`` was a command.
    parser.add_argument("--name", dest="named", type=arguments.filled, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=voice_file, help=argparse.SUPPRESS)


def _add_preview(parser: argparse.ArgumentParser) -> None:
    unused = (*NO_VOICE, "check_words", "words")
    parser.set_defaults(stdin=False, layout=LAYOUTS[0], play=False, **dict.fromkeys(unused))
    speak.add_output(parser)
    arguments.add_settings(parser)
    arguments.add_pronunciation(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.action == "preview":
        options.voice = options.name
        speak.check(parser, options)
    elif options.action == "save":
        arguments.check_line(parser, options)
        if not (options.voice or options.speaker or options.reference or options.describe):
            parser.error("say which voice: --voice FILE, --speaker, --reference or --describe")
    elif options.action == "design" and options.describe is None:
        options.name, options.describe = options.named, options.name
        if not options.name and not options.out:
            parser.error("the voice has no name, or no description: give both")


def run(options: argparse.Namespace, console: Console) -> None:
    ACTIONS[options.action].run(options, console)


def list_voices(options: argparse.Namespace, console: Console) -> None:
    library = folders_of(options).library
    found = {name: about(name, path) for name, path in library.voices().items()}
    if options.json:
        console.result(json.dumps(list(found.values()), indent=2, ensure_ascii=False))
        return
    if not found:
        console.note(f"{library.folder} has no voices: save one with clone")
    width = max(map(len, found), default=0)
    fits = max((len(one["fits"]) for one in found.values() if "fits" in one), default=0)
    for name, one in found.items():
        rest = f"{one['kind']:8}  {one['fits']:{fits}}  {_words(one)}" if "kind" in one else one["error"]
        console.result(f"{name:{width}}  {rest}".rstrip())


def about(name: str, path: Path) -> dict[str, Any]:
    """Return the facts of a voice file; under "error" the reason if it cannot be read."""
    try:
        return {**describe_file(name, path), "file": str(path)}
    except ValueError as error:
        return {"name": name, "error": str(error)}


def _words(voice: dict[str, Any]) -> str:
    given = (voice[key] for key in ("description", "recipe", "transcript", "instruct"))
    words = " ".join(next(filter(None, given), "").split())
    return words if len(words) <= LONGEST_SHOWN else words[: LONGEST_SHOWN - 3] + "..."


def show(options: argparse.Namespace, console: Console) -> None:
    voice = about(options.name, saved_file(options.name, folders_of(options)).absolute())
    if "error" in voice:
        raise ValueError(voice["error"])
    if options.json:
        console.result(json.dumps(voice, indent=2, ensure_ascii=False))
    else:
        for key, value in voice.items():
            if value not in (None, ""):
                console.result(f"{key.replace('_', ' ')}: {one_line(str(value))}")


def save_one(options: argparse.Namespace, console: Console) -> None:
    folders = folders_of(options)
    path = choose_path(options, folders, options.name or "")
    if options.voice:
        voice = load_source(saved_file(options.voice, folders))
    else:
        _, voice = load_voice(options, console)
    save(voice, path, console)


def delete(options: argparse.Namespace, console: Console) -> None:
    """Delete voices of the library; none if one is unknown, or without the user's consent."""
    library = folders_of(options).library
    paths = {name: library.find(name) for name in options.names}
    if not options.yes and not console.agrees(f"Delete {', '.join(paths)}?"):
        console.note("deleted nothing")
        return
    for name, path in paths.items():
        library.delete(name)
        console.note(f"deleted {path}")


def rename(options: argparse.Namespace, console: Console) -> None:
    new = folders_of(options).library.rename(options.name, options.new)
    console.note(f"{options.name!r} is now {new!r}: update workflows and scripts that use the old name")


def describe(options: argparse.Namespace, console: Console) -> None:
    line = folders_of(options).library.describe(options.name, options.text)
    console.note(f"{options.name!r}: {line}" if line else f"{options.name!r} has no description now")


def export(options: argparse.Namespace, console: Console) -> None:
    content = folders_of(options).library.export(options.name)
    out = options.out or Path(f"{options.name}.safetensors")
    if out.exists() and not options.overwrite:
        raise ValueError(f"{out} exists already: choose another with --out, or add --overwrite")
    write_atomic(out, content)
    console.result(out.absolute())


def take_in(options: argparse.Namespace, console: Console) -> None:
    folders = folders_of(options)
    source = saved_file(str(options.file), folders)
    name = folders.library.take_in(source, options.name or source.stem, options.overwrite)
    console.note(f"imported voice {name!r}: speak with --voice {name!r}")
    console.result(folders.library.path(name).absolute())


def add_shift(parser: argparse.ArgumentParser) -> None:
    needed: dict[str, Any] = {"required": True, "type": arguments.filled, "metavar": "VOICE"}
    parser.add_argument("--of", **needed)
    parser.add_argument("--toward", nargs="+", **needed)
    parser.add_argument("--away", nargs="+", **needed)
    parser.add_argument("--strength", type=arguments.number(*SHIFT_STRENGTHS), default=1.0)
    parser.set_defaults(out=None)


def shift(options: argparse.Namespace, console: Console) -> None:
    """Save a voice with a mood, from the difference of two others; recordings and presets load the model."""
    folders, words = folders_of(options), [options.of, *options.toward, *options.away]
    path = choose_path(options, folders, options.name)
    check_known(words, folders.library.sources(), find_checkpoint(options, console))
    from ...morph.voice.create import NAMED, Shift, shift_voice

    model = cache(lambda: load_synthesizer(options, console).model)
    base, *others = (find_voice(word, folders, model) for word in words)
    difference = Shift(others[: len(options.toward)], others[len(options.toward) :], options.strength)
    needs_model = any(voice.kind in NAMED for voice in (base, *others))
    made = shift_voice(base, difference, model() if needs_model else None)
    save(made, path, console)
    console.note(f"made of: {made.recipe}")


def check_known(words: Collection[str], saved: Collection[str], checkpoint: Path) -> None:
    """Raise ValueError for an unknown voice, before the checkpoint in a folder is loaded."""
    config = read_config(checkpoint)
    known = [*saved, *(() if config is None else config.speakers)]
    for word in words:
        if not os.path.isfile(word) and word.casefold() not in map(str.casefold, known):
            what = f"voice {word!r} is neither a file, a saved voice nor a speaker of {checkpoint.name}"
            raise ValueError(f"{what}: choose one of {', '.join(known) or 'none'}")


def find_voice(word: str, folders: Folders, model: Callable[[], Model]) -> Voice:
    """Return the voice that a word of ``--of`` names; ``model`` loads the checkpoint if needed."""
    from ...morph.voice.create import CloneOptions, clone_voice, preset_voice

    path = Path(word) if os.path.isfile(word) else folders.library.sources().get(word)
    if path and os.path.isfile(word) and path.suffix != VOICE_FILE:
        return clone_voice(model(), *read_recording(path), CloneOptions(name=path.stem))
    if path:
        return load_source(path, lambda recording: clone_recording(model(), recording))
    return preset_voice(model(), word)


class Action(NamedTuple):
    run: Callable[[argparse.Namespace, Console], None]
    arguments: Sequence[tuple[str, dict[str, Any]]] = ()
    add: Callable[[argparse.ArgumentParser], None] = lambda _: None  # adds the others
    loads: bool = False  # whether it may load a model


NAME: tuple[str, dict[str, Any]] = ("name", {"type": arguments.filled, "metavar": "NAME"})
JSON, OVERWRITE, YES = ((name, {"action": "store_true"}) for name in ("--json", "--overwrite", "--yes"))
FILE = ("file", {"type": arguments.existing_file, "metavar": "FILE"})
OUT = ("--out", {"type": voice_file, "metavar": "FILE"})
WORDS = ("describe", {"nargs": "?", "type": arguments.filled, "metavar": "TEXT"})
ACTIONS = {
    "list": Action(list_voices, [JSON]),
    "show": Action(show, [NAME, JSON]),
    "save": Action(save_one, [NAME, OVERWRITE], _add_save, True),
    "design": Action(save_one, [NAME, WORDS, OVERWRITE], _add_design, True),
    "shift": Action(shift, [NAME, OVERWRITE], add_shift, True),
    "delete": Action(delete, [("names", {"nargs": "+", "metavar": "NAME"}), YES]),
    "rename": Action(rename, [NAME, ("new", {"metavar": "NEW"})]),
    "describe": Action(describe, [NAME, ("text", {"metavar": "TEXT"})]),
    "export": Action(export, [NAME, OUT, OVERWRITE]),
    "import": Action(take_in, [FILE, ("--name", {"type": arguments.filled}), OVERWRITE]),
    "preview": Action(speak.run, [NAME, ("--text", {"default": PREVIEW})], _add_preview, True),
}
