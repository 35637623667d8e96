"""The commands that the pages print can be read by their programs. They do not run."""

import argparse
import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.test_docs import CURRENT, name, read_current

SPAN = re.compile(r"`(python3? [^`]+)`")
COMMAND = re.compile(r"\bpython3? (-m (lab|serve)\b|speak\.py\b)")
ENDS = ("|", "||", "&", "&&", ";", ">")  # what a shell reads itself


class Parsed(Exception):
    """Raised in the place of what a program does when it has read its command line."""


def blocks(text: str) -> Iterator[str]:
    """Yield the lines of indented and fenced blocks, those that a backslash continues as one."""
    fenced = False
    for line in text.replace("\\\n", " ").splitlines():
        fenced ^= line.lstrip().startswith("```")
        if fenced or line.startswith("    "):
            yield line


def commands(page: Path) -> list[list[str]]:
    """Return the commands of this repository that a page prints with arguments: the words behind ``python``.

    A module without arguments is a name rather than a command.
    """
    text = read_current(page)
    lines = [*blocks(text), *(re.sub(r"\s+", " ", span) for span in SPAN.findall(text))]
    found = (split(line[match.start() :]) for line in lines for match in COMMAND.finditer(line))
    return [words for words in found if len(words) > (2 if words[0] == "-m" else 1)]


def split(line: str) -> list[str]:
    """Return the words of a line's first command, without ``python``."""
    if line.count('"') % 2:  # the command stands in the quotes of another one
        line = line.rpartition('"')[0]
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;>")
    lexer.commenters, lexer.whitespace_split = "#", True
    words = list(lexer)
    if words[-1:] == ["1"] and words[-3:-1] == ["2", ">&"]:
        words = words[:-3]
    end = next((index for index, word in enumerate(words) if word in ENDS), len(words))
    return words[1:end]


def fill(word: str) -> str:
    """Return a word with a number in the place of a placeholder of one letter: ``--rates R``."""
    return "1" if re.fullmatch(r"[A-Z]", word) else word


def parse(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a program read a command line, and stop it there."""
    known = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *given: Any, **more: Any) -> NoReturn:
        known(self, *given, **more)
        raise Parsed

    module, arguments = (words[1], words[2:]) if words[0] == "-m" else ("serve.cli", words[1:])
    module = re.sub(r"^serve(?=$|\.)", "qwen3_tts_morph.serve", module)
    module = "qwen3_tts_morph.serve.cli" if module == "qwen3_tts_morph.serve" else module
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.setattr(sys, "argv", [module, *map(fill, arguments)])
    try:
        program = importlib.import_module(f"{module}.__main__")
    except ModuleNotFoundError:
        program = importlib.import_module(module)
    with pytest.raises(Parsed):
        program.main()


def make_files(words: list[str], folder: Path) -> None:
    """Make the files and folders that a command reads, empty: some are looked for when options are read."""
    for word in words:
        if re.fullmatch(r"[A-Z]{2,}", word):
            (folder / word).mkdir(exist_ok=True)
        elif re.fullmatch(r"[\w-]+\.(wav|srt|txt|jsonl|safetensors)", word):
            (folder / word).touch()


@pytest.mark.parametrize("page", CURRENT, ids=name)
def test_the_commands_of_a_page_can_be_read(page, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands(page):
        make_files(words, tmp_path)
        with monkeypatch.context() as patch:
            try:
                parse(words, patch)
            except SystemExit as error:
                if not error.code:  # --help
                    continue
                pytest.fail(f"{page.name}: python {shlex.join(words)}")


def test_the_pages_have_commands() -> None:
    assert sum(len(commands(page)) for page in CURRENT) > 60
