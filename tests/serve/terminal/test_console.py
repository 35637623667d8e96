"""What a run says, and where."""

import io
import os
import subprocess
import sys

import pytest
from qwen3_tts_morph.serve.terminal.console import Console, say

import pack
from pack import ROOT


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_closed_pipe_is_not_an_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        say("nobody hears this", stream)
        say("nor this", stream)


HOSTILE = "a\x1b[2Jb\x9b31m\u202ec\x00\rd\n\te"


def test_no_control_character_reaches_a_terminal() -> None:
    """File names have them too. Other programs get their results as they are."""
    shown = r"a\x1b[2Jb\x9b31m\u202ec\x00\rd" + "\n\te\n"
    terminal, file, notes = Terminal(), io.StringIO(), io.StringIO()
    Console("x", terminal, notes).result(HOSTILE)
    Console("x", file, notes).result(HOSTILE)
    Console("x", file, notes).note(HOSTILE)
    assert (terminal.getvalue(), notes.getvalue(), file.getvalue()) == (shown, shown, HOSTILE + "\n")


def test_progress_is_shown_only_on_a_terminal() -> None:
    terminal, file = Terminal(), io.StringIO()
    with Console("x", io.StringIO(), terminal).progress() as show:
        show(3, 20)
    assert "frame" in terminal.getvalue()
    with Console("x", io.StringIO(), file).progress() as show:
        show(1, 2)
    assert file.getvalue() == ""


@pytest.mark.parametrize(("answer", "agrees"), [("y\n", True), ("Yes\n", True), ("n\n", False), ("", False)])
def test_a_question_is_asked_on_a_terminal_only(monkeypatch, answer: str, agrees: bool) -> None:
    terminal, file = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert Console("x", io.StringIO(), terminal).agrees("sure?") == agrees
    assert terminal.getvalue() == "sure? [y/N] "
    with pytest.raises(ValueError, match=r"^sure\? There is no terminal to ask on: add --yes$"):
        Console("x", io.StringIO(), file).agrees("sure?")
    assert file.getvalue() == ""


def test_sound_does_not_go_to_a_terminal() -> None:
    with (
        pytest.raises(ValueError, match="stdout is a terminal: pipe the sound"),
        Console("x", Terminal(), io.StringIO()).sound(),
    ):
        pytest.fail("a terminal got sound")


SOUND = """
import os, sys
import pack; pack.load()
from qwen3_tts_morph.serve.terminal.console import Console
with Console("x", sys.stdout, sys.stderr).sound() as sink:
    sink.write(b"sound")
    print("from Python", flush=True)
    os.system("echo from elsewhere")
print("after")
"""


def test_nothing_else_reaches_stdout_while_it_has_sound() -> None:
    done = subprocess.run([sys.executable, "-c", SOUND], capture_output=True, cwd=pack.ROOT)
    assert done.stdout.split() == [b"soundafter"]
    assert b"from Python" in done.stderr and b"from elsewhere" in done.stderr


SCRIPT = """
import pack
pack.load()
from qwen3_tts_morph.morph.text.normalize import Normalizer
from qwen3_tts_morph.serve.terminal.console import start_log
import logging

start_log()
for text in ("I owe $5 to ann@example.com.", "My rent is $850, and it is 5/6 of 1/2 @ home.", "The price: $5.25."):
    Normalizer("en").write_out(text)
logging.getLogger("qwen3_tts_morph").info("the log works")
"""


def test_no_sentence_is_logged() -> None:
    """In a process of its own: the log belongs to the whole process."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines() == ["INFO qwen3_tts_morph: the log works"]
