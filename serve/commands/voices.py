"""``voices``: the library of saved voices."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from . import arguments, speak
from .clone import choose_path, save
from .console import Console
from .engine import folders_of, load_synthesizer, make_voice, read_reference, saved_voice

if TYPE_CHECKING:
    from pathlib import Path

    from .folders import Folders

PREVIEW = "Hello, this is how I sound. I hope that you like it."
LONGEST_SHOWN = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of ``voices`` and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_list(actions.add_parser("list", help="the saved voices"))
    _add_show(actions.add_parser("show", help="what a saved voice is"))
    _add_save(actions.add_parser("save", help="save a voice: a file's, a preset, a clone or a description"))
    delete = actions.add_parser("delete", help="delete saved voices")
    delete.add_argument("names", nargs="+", metavar="NAME")
    arguments.add_folders(delete)
    _add_preview(actions.add_parser("preview", help="speak a sentence with a saved voice"))
    for action in actions.choices.values():
        action.add_argument("--here", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for other programs")
    arguments.add_folders(parser)


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="or the path of a voice file")
    parser.add_argument("--json", action="store_true", help="for other programs")
    arguments.add_folders(parser)


def _add_save(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--overwrite", action="store_true", help="replace another voice of this name")
    parser.set_defaults(out=None)
    arguments.add_voice(parser)
    arguments.add_model(parser)


def _add_preview(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="or the path of a voice file")
    parser.add_argument("--text", default=PREVIEW)
    parser.add_argument(
        "--out", type=speak.sound_or_stdout, help="a sound file, or - for stdout; default: speech.wav"
    )
    parser.add_argument("--format", choices=speak.KINDS, help="with --out -")
    parser.set_defaults(
        stdin=False,
        layout=arguments.LAYOUTS[0],
        speaker=None,
        reference=None,
        describe=None,
        transcript=None,
        instruct=None,
    )
    arguments.add_settings(parser)
    arguments.add_model(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with an error for options that do not fit together."""
    if options.action == "preview":
        options.voice = options.name
        speak.check(parser, options)
    if options.action == "save":
        arguments.check_voice(parser, options)
        if not (options.voice or options.speaker or options.reference or options.describe):
            parser.error("say which voice: --voice FILE, --speaker, --reference or --describe")


def run(options: argparse.Namespace, console: Console) -> int:
    """Run the action."""
    actions = {"list": list_voices, "show": show, "save": save_one, "delete": delete, "preview": speak.run}
    return actions[options.action](options, console)


def list_voices(options: argparse.Namespace, console: Console) -> int:
    """Print a row for each saved voice."""
    folders = folders_of(options)
    found = {name: about(name, folders) for name in folders.voice_files()}
    if options.json:
        console.result(json.dumps(list(found.values()), indent=2, ensure_ascii=False))
        return 0
    if not found:
        console.note(f"{folders.voices} has no voices: save one with clone")
    width = max(map(len, found), default=0)
    for name, one in found.items():
        rest = (
            f"{one['kind']:8}  {one['model']:5}  {_short(one['transcript'] or one['instruct'] or one['speaker'])}"
            if "kind" in one
            else one["error"]
        )
        console.result(f"{name:{width}}  {rest}".rstrip())
    return 0


def show(options: argparse.Namespace, console: Console) -> int:
    """Print what a saved voice is."""
    folders = folders_of(options)
    voice = about(options.name, folders)
    if "error" in voice:
        raise ValueError(voice["error"])
    if options.json:
        console.result(json.dumps(voice, indent=2, ensure_ascii=False))
    else:
        for key, value in voice.items():
            if value is not None:
                console.result(f"{key.replace('_', ' ')}: {value}")
    return 0


def about(name: str, folders: Folders) -> dict[str, Any]:
    """Return what a voice file has, for people and programs; under "error" why it cannot be read."""
    from ...morph.model.model import SIZE_NAMES
    from ...morph.options import FRAME_RATE

    try:
        voice = saved_voice(name, folders)
    except ValueError as error:
        return {"name": name, "error": str(error)}
    return {
        "name": name,
        "kind": voice.kind,
        "model": SIZE_NAMES.get(voice.model_size, voice.model_size),
        "speaker": voice.speaker,
        "instruct": voice.instruct,
        "transcript": voice.transcript,
        "reference_seconds": None if voice.ref_codes is None else round(len(voice.ref_codes) / FRAME_RATE, 2),
        "file": str(_file(name, folders)),
    }


def _file(name: str, folders: Folders) -> Path:
    from pathlib import Path

    return Path(name).absolute() if Path(name).is_file() else folders.voice_file(name)


def save_one(options: argparse.Namespace, console: Console) -> int:
    """Save a voice; only a preset, a clone and a description need the model."""
    folders = folders_of(options)
    path = choose_path(options, folders, options.name)
    if options.voice:
        return save(saved_voice(options.voice, folders), path, console)
    recording = read_reference(options)
    voice = make_voice(load_synthesizer(options, console).model, options, recording)
    return save(voice, path, console)


def delete(options: argparse.Namespace, console: Console) -> int:
    """Delete voices of the library; none of them if one is unknown."""
    folders = folders_of(options)
    for path in [folders.voice_file(name) for name in options.names]:
        try:
            path.unlink()
        except OSError as error:
            raise ValueError(f"{path} cannot be deleted ({error.strerror}): check its folder") from error
        console.note(f"deleted {path}")
    return 0


def _short(text: str | None) -> str:
    words = " ".join((text or "").split())
    return words if len(words) <= LONGEST_SHOWN else words[: LONGEST_SHOWN - 3] + "..."
