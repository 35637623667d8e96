"""``--help``: every option is explained, with its default, and every command has examples that can be read."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from qwen3_tts_morph.serve import cli

PROGRAM = "speak.py"
FILES = ("recording.wav", "scene.txt", "lines.jsonl", "film.srt", "Anna.safetensors")
IMPLIED = (None, False, argparse.SUPPRESS)


def parsers() -> Iterator[argparse.ArgumentParser]:
    """The parser of each command, and of each action of one."""
    for name in cli.COMMANDS:
        parser = cli.make_parser(name, PROGRAM)
        yield parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices.values()


def unexplained(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of a parser that lack a help text, or their default in it."""
    described = parser._get_formatter()
    for action in parser._actions:
        name = "/".join(action.option_strings) or action.dest
        if action.help is argparse.SUPPRESS:
            continue
        told = described._expand_help(action) if action.help else ""
        if not told.strip():
            yield f"{name} has no help"
        elif any(action.default is one for one in IMPLIED) or action.default == []:
            continue
        elif "default:" not in told and f"default {action.default}" not in told:
            yield f"{name} does not say its default"


@pytest.mark.parametrize("parser", list(parsers()), ids=lambda parser: parser.prog)
def test_every_option_has_a_help_with_its_default(parser: argparse.ArgumentParser) -> None:
    assert list(unexplained(parser)) == []


@pytest.mark.parametrize("parser", list(parsers()), ids=lambda parser: parser.prog)
def test_every_command_has_examples_that_can_be_read(parser, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        Path(name).touch()
    shown = parser.format_help()
    examples = re.findall(rf"^  {PROGRAM} (.+)$", shown.partition("examples:\n")[2], re.M)
    assert examples and all(f"{PROGRAM} {one}".startswith(parser.prog) for one in examples)
    for words in map(shlex.split, examples):
        name, rest = cli.split_command(words)
        assert name == words[0] and cli.parse(name, rest, PROGRAM)


def test_the_servers_help_names_its_environment_and_its_limits() -> None:
    parser = cli.make_parser("serve", PROGRAM)
    assert "MORPH_TTS_HOSTS" in parser.epilog and "MORPH_TTS_API_KEY" in parser.epilog
    told = {action.dest: parser._get_formatter()._expand_help(action) for action in parser._actions}
    limits = {
        "waiting": 64,
        "most_characters": 20000,
        "most_seconds": 600.0,
        "most_pause": 60.0,
        "seq_groups": 5,
    }
    for name, default in limits.items():
        assert told[name].endswith(f"; default: {default}")
