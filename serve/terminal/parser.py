"""How the options of a command are read, and what ``--help`` says of them."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from ..plain_text import escaped

BAD_INPUT = 2
LIKENESS = 0.75  # of a mistyped command to the one that is meant
ONE_WORD = re.compile(r"[A-Za-z_-]+")  # "Yes." is a text


class Help(argparse.RawDescriptionHelpFormatter):
    """Adds the default to each option that has one, and leaves the examples as they are."""

    def _get_help_string(self, action: argparse.Action) -> str:
        """Return an option's help; argparse's own formatters of defaults override this too."""
        text, default = action.help or "", action.default
        has_none = default is None or default is False or default == [] or default is argparse.SUPPRESS
        if has_none or "default:" in text or f"default {default}" in text:
            return text
        return f"{text}; default: %(default)s"


class Parser(argparse.ArgumentParser):
    """Reports an error without all options before it: ``--help`` has those."""

    def __init__(self, **more: Any):
        super().__init__(**{"formatter_class": Help} | more)

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, escaped(f"{self.prog}: {message}; {self.prog} --help lists the options\n"))


def examples(*words: str) -> str:
    return "\n".join(["examples:", *(f"  %(prog)s {one}".rstrip() for one in words)])


def meant(word: str, commands: Iterable[str]) -> str | None:
    """Return the command of which a first word is a slip; None if it is a text."""
    if not ONE_WORD.fullmatch(word) or word.startswith("-"):
        return None
    return next(iter(difflib.get_close_matches(word.lower(), commands, 1, LIKENESS)), None)
