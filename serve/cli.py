"""The command line: commands, their options, and exit codes.

Needs only Python until a command runs: ``speak.py`` reads the command line before there is an environment. Results go
to stdout, everything else to stderr. Exit codes: 0; 1 for full memory or a missing package; 2 for bad input; 130 for an
interrupt; 141 if stdout was closed.
"""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .terminal.arguments import BAD_INPUT, Parser, add_help, meant, texts_of
from .terminal.console import Console, open_missing_streams
from .terminal.folders import pack_version

PROGRAM = "qwen3-tts-morph"
COMMANDS = ("speak", "clone", "voices", "script", "dub", "transcribe", "train", "sweep", "serve")
MOVED = {
    "check": "run `python -m lab.check` in a clone of the repository",
    "bench": "use sweep, which measures the speed at each SEQ_GROUPS",
}
OLD = {"design": "voices design NAME TEXT"}  # new names of former commands, which still run
DEFAULT = "speak"  # for a first word that is no command, but the text
HERE = "--here"
FAILED, INTERRUPTED, READER_LEFT = 1, 130, 141

NO_MEMORY = "the memory is full: close other programs, or choose --batch-size 1, --weights int8 or --device cpu"


def main(
    words: Sequence[str] | None = None, program: str = PROGRAM, elsewhere: Callable[[Sequence[str]], int] | None = None
) -> int:
    """Run a command line, by default the process's; return its exit code.

    ``elsewhere`` runs the arguments in an environment with the engine's packages, except with ``--here``; None: this
    Python has them.
    """
    open_missing_streams()
    console = Console(program, sys.stdout, sys.stderr)
    given = list(sys.argv[1:] if words is None else words)
    asked = respell([word for word in given if word != HERE], console)
    return finish(console, lambda: _run(asked, console, None if HERE in given else elsewhere))


def respell(words: list[str], console: Console) -> list[str]:
    """Return a command line with the command's new name; print a note for a former name."""
    if (now := OLD.get(" ".join(words[:1]))) is None:
        return words
    console.note(f"{words[0]} is now: {console.program} {now}")
    return [*now.split()[:2], *words[1:]]


def finish(console: Console, run: Callable[[], int]) -> int:
    """Run a program; return its exit code. Print one sentence for an error that the user can fix."""
    try:
        try:
            return run()
        finally:
            console.out.flush()  # ``--help``'s output, while errors can still be reported
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        console.forget_stdout()
        return READER_LEFT
    except Exception as error:
        if (explained := explain(error)) is None:
            raise
        code, sentence = explained
        console.note(f"{console.program}: {sentence}")
        if isinstance(error, OSError):
            console.forget_stdout()  # it may be the file with the error
        return code


def explain(error: Exception) -> tuple[int, str] | None:
    """Return the exit code and sentence for an error that the user can fix; None for a bug of the pack."""
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "").startswith(__package__):
            return FAILED, f"this copy of the pack has no {error.name}: install the pack again"
        fix = "install torch and the pack's requirements.txt there"
        return FAILED, f"{sys.executable} has no package {error.name}: {fix}"
    if isinstance(error, ValueError):
        return BAD_INPUT, str(error)
    if isinstance(error, OSError):
        why = error.strerror or " ".join(str(error).split())
        if error.filename is None:
            return BAD_INPUT, f"reading or writing failed ({why}): check the disk, pipe or network, and try again"
        fix = "choose another place, or change its permissions"
        return BAD_INPUT, f"{error.filename} cannot be read or written ({why}): {fix}"
    if isinstance(error, (MemoryError, RuntimeError)):
        from ..morph.checkpoint.verify import is_out_of_memory

        if isinstance(error, MemoryError) or is_out_of_memory(error):
            return FAILED, NO_MEMORY
    return None


def _run(words: list[str], console: Console, elsewhere: Callable[[Sequence[str]], int] | None) -> int:
    name, rest = split_command(words, console.program)
    if name is None:
        return _tell(rest, console)
    try:
        command, options = parse(name, rest, console.program)
    except ModuleNotFoundError:
        if elsewhere is None:  # that environment has what the options need
            raise
    if elsewhere is not None:
        return elsewhere(words)
    with contextlib.redirect_stdout(console.err):  # stdout is for a path or a sound
        command.run(options, console)
    return 0


def split_command(given: list[str], program: str = PROGRAM) -> tuple[str | None, list[str]]:
    """Return the command, None for the overview and the version, and its arguments; ValueError for a typo."""
    if not given or given[0] in ("-h", "--help", "help", "--version"):
        return None, given
    if given[0] not in COMMANDS:
        if given[0] in MOVED:
            raise ValueError(f"command {given[0]} has been removed: {MOVED[given[0]]}")
        if (command := meant(given[0], COMMANDS)) is not None:
            speak = f"To speak the word, type {program} {DEFAULT} {given[0]}"
            raise ValueError(f"unknown command {given[0]!r}: did you mean {command}? {speak}")
        return DEFAULT, given
    return given[0], given[1:]


def parse(name: str, words: Sequence[str], program: str = PROGRAM) -> tuple[Any, argparse.Namespace]:
    """Return a command's module and its options, checked without a model; SystemExit for bad input."""
    command, parser = load(name), make_parser(name, program)
    options = parser.parse_args(words)
    command.check(parser, options)
    return command, options


def make_parser(name: str, program: str = PROGRAM) -> Parser:
    parser = Parser(prog=f"{program} {name}", conflict_handler="resolve", **texts_of(name))
    load(name).add_arguments(parser)
    add_help(parser, name)
    parser.add_argument(HERE, action="store_true", help="use this Python as it is; install nothing")
    return parser


def load(name: str) -> Any:
    """Return a command's module; ``serve/commands/__init__.py`` describes its interface."""
    return importlib.import_module(f".commands.{name}", __package__)


def overview(program: str) -> str:
    width = max(map(len, COMMANDS))
    rows = [f"  {name:{width}}  {texts_of(name)['description']}" for name in COMMANDS]
    usage = [f'usage: {program} "text" [options]', f"       {program} COMMAND [options]"]
    end = f"{program} COMMAND --help lists a command's options; without a command, those are speak's."
    return "\n".join([*usage, "", "commands:", *rows, "", end])


def _tell(given: Sequence[str], console: Console) -> int:
    if not given:
        console.note(overview(console.program))
        return BAD_INPUT
    console.result(pack_version() if given[0] == "--version" else overview(console.program))
    return 0
