"""Readers of single arguments, and the options that several commands share. Python's own packages only."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from ...morph.audio.formats import FILES
from ...morph.runtime.whole_file import name_beside
from ...morph.text.pauses import check_spoken

Number = TypeVar("Number", int, float)

# The engine's own limits, here because they are checked before there is an engine.
MOST_GROUPS = 15
MOST_SEED = 2**64 - 1
LEAST_TEMPERATURE, MOST_TEMPERATURE = 0.01, 10.0
RECOGNISERS = ("tiny", "base", "small", "medium", "large-v3-turbo")  # as morph/hearing/whisper.py
RESERVED = ":\uff1a[]#\n\r"  # these have a meaning in scripts
MOST_RETAKES = 10  # as morph/kept/word_check.py
MOST_RETRIES = 10
MOST_BATCH = 512
LAYOUTS = ("sentence", "token")
PRECISIONS = ("auto", "bf16", "fp16", "fp32")
ATTENTIONS = ("auto", "sdpa", "flash_attention_2", "eager")
ENGINES = ("auto", "eager", "graph")
WEIGHTS = ("full", "int8")
TAILS = ("auto", "stock")
WRONG_WORDS = ("ignore", "retry", "end")
SHIFT_STRENGTHS = (-2.0, 3.0)


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a reader of whole numbers in ``low``..``high`` for argparse."""
    return _reader(int, low, high, f"a whole number from {low} to {high}")


def number(low: float, high: float) -> Callable[[str], float]:
    """Return a reader of numbers in ``low``..``high`` for argparse."""
    return _reader(float, low, high, f"a number from {low:g} to {high:g}")


def _reader(kind: Callable[[str], Number], low: Number, high: Number, what: str) -> Callable[[str], Number]:
    def read(word: str) -> Number:
        with contextlib.suppress(ValueError):
            if low <= (number := kind(word)) <= high:
                return number
        raise argparse.ArgumentTypeError(f"{word!r} is not {what}")

    return read


def filled(word: str) -> str:
    """Read a value that is not empty, for argparse: an empty one would be as if the option was not given."""
    if not word.strip():
        raise argparse.ArgumentTypeError("it is empty: give a value, or leave the option out")
    return word


def folder(word: str) -> Path:
    """Read the path of a folder, which may not exist, for argparse."""
    return Path(filled(word))


def existing_file(word: str) -> Path:
    """Read the path of a file that exists, for argparse."""
    if not os.path.isfile(word):
        raise argparse.ArgumentTypeError(f"{word} is not a file: give the path of one that exists")
    return Path(word)


def existing_folder(word: str) -> Path:
    """Read the path of a folder that exists, for argparse."""
    if not os.path.isdir(word):
        raise argparse.ArgumentTypeError(f"{word} is not a folder: give the path of one that exists")
    return Path(word)


def sound_file(word: str) -> Path:
    """Read the path of a sound file that can be written, for argparse; checked now, before minutes of rendering."""
    if Path(word).suffix.lower() not in FILES and not os.path.isdir(word):
        raise argparse.ArgumentTypeError(f"{word} does not end in one of {', '.join(FILES)}: rename it")
    return writable_file(word)


def writable_file(word: str) -> Path:
    """Read the path of a file that can be written, for argparse."""
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
        raise argparse.ArgumentTypeError(
            f"{word} cannot be written ({error.strerror}): choose another file or folder"
        ) from error
    return path


def part(word: str) -> tuple[str, str]:
    """Read ``NAME=VOICE``, for argparse."""
    name, equals, voice = (piece.strip() for piece in word.partition("="))
    if not (name and equals and voice):
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=VOICE, e.g. ANNA=heart")
    if any(char in name for char in RESERVED):
        raise argparse.ArgumentTypeError(
            f"{name!r} contains one of : [ ] #, which scripts reserve: remove it"
        )
    return name, voice


def lora(word: str) -> tuple[str, float]:
    """Read ``FOLDER`` or ``FOLDER:STRENGTH``, for argparse; the drive of a path on Windows is no strength."""
    folder, colon, strength = filled(word).rpartition(":")
    if not colon or not folder:
        return word, 1.0
    with contextlib.suppress(ValueError):
        return folder, float(strength)
    return word, 1.0


def part_lora(word: str) -> tuple[str, str, float]:
    """Read ``NAME=FOLDER`` or ``NAME=FOLDER:STRENGTH``, for argparse."""
    name, adapter = part(word)
    return name, *lora(adapter)


def check_sources(
    parser: argparse.ArgumentParser, sources: Iterable[Path | None], written: Iterable[Path]
) -> None:
    """End with an error where a file that would be written is one that is read: the user's would be lost."""
    there = [path for path in written if path.exists()]
    for source in filter(None, sources):
        for path in there:
            if path.samefile(source):
                parser.error(f"{path} is read and would be overwritten: choose another place with --out")


def free_output(
    parser: argparse.ArgumentParser, read: Callable[[str], Path], path: Path, *endings: str
) -> Path:
    """Return the path given, or a numbered one (speech-2.wav): nothing is there, nor beside it with these endings.

    End with an error where ``read``, the reader of such an argument, refuses it.
    """
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2))
    for free in itertools.chain([path], numbered):
        if not any(one.exists() for one in (free, *map(free.with_suffix, endings))):
            break
    try:
        return read(str(free))
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))


def add_switch(parser: argparse._ActionsContainer, name: str, about: str) -> None:
    """Add an option without a value."""
    parser.add_argument(name, action="store_true", help=about)


def add_choice(parser: argparse._ActionsContainer, name: str, choices: Sequence[str], about: str) -> None:
    """Add an option with one of a few values, the first by default."""
    parser.add_argument(name, choices=choices, default=choices[0], help=about)


class Removed(argparse.Action):
    """Accepts an option that was removed, and says so."""

    def __init__(self, option_strings: Sequence[str], dest: str, nargs: int | None = None):
        hidden = argparse.SUPPRESS
        super().__init__(option_strings, dest, nargs=nargs, default=hidden, help=hidden)

    def __call__(
        self, parser: argparse.ArgumentParser, options: object, values: object, name: str | None = None
    ) -> None:
        sys.stderr.write(f"{parser.prog}: {name} is ignored: it was removed\n")


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Add the option that lets ``--out`` replace files."""
    add_switch(parser, "--overwrite", "replace files that are there already")


def check_new(parser: argparse.ArgumentParser, written: Iterable[Path], overwrite: bool) -> None:
    """End with an error where a file would be replaced that the user did not give up."""
    for path in written:
        if not overwrite and path.exists():
            parser.error(f"{path} exists already: choose another with --out, or add --overwrite")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the checkpoint, where it runs and how it is loaded."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--checkpoint",
        type=filled,
        help="a Qwen3-TTS folder, its name in ComfyUI's models, or a published one such as "
        "Qwen/Qwen3-TTS-12Hz-0.6B-Base, which is downloaded if it is not on this machine; none: the demo voice",
    )
    add_folders(group)
    group.add_argument(
        "--device", default="auto", help="cpu, cuda or cuda:N; auto is CUDA where there is one"
    )
    add_choice(group, "--precision", PRECISIONS, "of the weights; auto is bf16 on GPUs that have it")
    add_choice(group, "--attention", ATTENTIONS, "how attention is computed; auto is sdpa")
    add_choice(group, "--engine", ENGINES, "graph is the fast one on CUDA, eager runs everywhere")
    add_choice(group, "--weights", WEIGHTS, "int8 needs less memory and is approximate")
    add_lora(group)


def add_lora(group: argparse._ActionsContainer) -> None:
    """Add the option that names LoRA adapters."""
    group.add_argument(
        "--lora",
        action="append",
        default=[],
        type=lora,
        metavar="FOLDER[:STRENGTH]",
        help="a LoRA adapter as peft writes it, its folder or its name in ComfyUI's models/loras, and how strong it "
        "is, -4 to 4; without a number 1, as trained; give it again for a second one",
    )


def add_folders(group: argparse._ActionsContainer) -> None:
    """Add the option that says where ComfyUI is."""
    group.add_argument(
        "--comfyui",
        type=existing_folder,
        metavar="FOLDER",
        help="ComfyUI's folder, for its models and voice library; none: COMFYUI_DIR, or the one that the pack is in",
    )


def add_voice(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose who speaks."""
    group = parser.add_argument_group("voice")
    kinds = group.add_mutually_exclusive_group()
    kinds.add_argument("--voice", type=filled, help="a saved voice: its name, or its file; none: a speaker")
    kinds.add_argument("--speaker", type=filled, help="a preset speaker; none: the checkpoint's first")
    kinds.add_argument(
        "--reference",
        type=existing_file,
        help="a recording of 1-30 s to clone (the demo voice, Base checkpoints); none: no clone",
    )
    kinds.add_argument(
        "--describe", type=filled, help="the voice in words (VoiceDesign checkpoints); none: a speaker"
    )
    group.add_argument(
        "--transcript",
        type=filled,
        help="the words of the recording: clones its manner of speaking too (ICL); none: its timbre alone",
    )
    group.add_argument(
        "--instruct",
        help="how to speak, e.g. whispering (1.7B CustomVoice and VoiceDesign); none: the voice's own",
    )


def check_line(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with an error for a text without words, or options of the voice that do not fit together."""
    text: str | None = getattr(options, "text", None)
    if text is not None:
        check_spoken(text)
    if options.transcript and not options.reference:
        parser.error("--transcript is the words of a recording: give the recording with --reference")


def add_settings(parser: argparse.ArgumentParser, seq_groups: bool = True) -> None:
    """Add the options of the decoding."""
    group = parser.add_argument_group("decoding")
    group.add_argument(
        "--language", default="auto", help="one of the checkpoint's, e.g. german; auto leaves it to the model"
    )
    if seq_groups:
        group.add_argument(
            "--seq-groups",
            type=whole_number(1, MOST_GROUPS),
            default=5,
            help="1-15; 15 is exact, less is approximate and faster",
        )
    group.add_argument(
        "--seed", type=whole_number(0, MOST_SEED), default=0, help="the same seed gives the same speech"
    )
    add_choice(group, "--tail", TAILS, "auto takes the trained tail if there is one, stock none")
    group.add_argument("--decoding", action=Removed)
    group.add_argument(
        "--retries",
        type=whole_number(0, MOST_RETRIES),
        default=1,
        help="how often speech that went wrong is spoken again",
    )
    follows = "where the model is seen to skip, repeat or invent words: retry speaks again, end also ends it at once"
    add_choice(group, "--wrong-words", WRONG_WORDS, follows)
    group.add_argument("--continuity", action=Removed, nargs=0)
    add_switch(group, "--trim-ends", "cut the silence at both ends of a line")
    group.add_argument(
        "--temperature",
        type=number(LEAST_TEMPERATURE, MOST_TEMPERATURE),
        help="lower is steadier, higher livelier; none: the checkpoint's own",
    )
    group.add_argument(
        "--top-p",
        type=number(0.01, 1),
        help="draw from the likeliest codes that have this probability together; none: the checkpoint's own",
    )
    group.add_argument(
        "--top-k",
        type=whole_number(0, 10_000),
        help="draw from this many of the likeliest codes, 0 from all; none: the checkpoint's own",
    )
    group.add_argument(
        "--max-seconds",
        type=number(0.08, 3600),
        help="longest line, in seconds of audio; none: what its text can need",
    )


def add_pronunciation(parser: argparse.ArgumentParser) -> None:
    """Add the option that says how words are read."""
    parser.add_argument(
        "--pronunciation",
        type=existing_file,
        metavar="FILE",
        help="how words are read: a text file, 'word = as it is read' in each line; a saved voice may have its own, "
        "VOICE.pronunciation.txt beside it",
    )


def add_word_check(parser: argparse.ArgumentParser) -> None:
    """Add the options that have a speech recogniser hear what was spoken."""
    group = parser.add_argument_group("word check")
    group.add_argument(
        "--check-words",
        nargs="?",
        const=RECOGNISERS[1],
        choices=RECOGNISERS,
        metavar="SIZE",
        help="let a speech recogniser hear every line that is spoken, and speak one with too many wrong words again: "
        f"{', '.join(RECOGNISERS)} ({RECOGNISERS[1]}); needs faster-whisper; none: nobody hears them",
    )
    group.add_argument(
        "--most-errors", type=number(0, 100), default=5, help="wrong words that a line may have, in percent"
    )
    group.add_argument(
        "--retakes",
        type=whole_number(0, MOST_RETAKES),
        default=3,
        help="other takes of a line with more wrong words; the best one is kept. 0 only reports",
    )
