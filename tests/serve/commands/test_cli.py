"""Which command a command line names, and how runs end."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.serve import cli
from qwen3_tts_morph.serve.commands import speak
from qwen3_tts_morph.serve.terminal.folders import pack_version

import pack


@pytest.mark.parametrize(
    ("words", "command", "rest"),
    [
        (["Hello."], "speak", ["Hello."]),
        (["--seed", "1", "Hello."], "speak", ["--seed", "1", "Hello."]),
        (["speak", "voices"], "speak", ["voices"]),
        ([], None, []),
        (["--help"], None, ["--help"]),
    ],
)
def test_a_first_word_that_is_no_command_is_the_text(words, command, rest) -> None:
    assert cli.split_command(words) == (command, rest)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["vioces"], "voices"),
        (["voice", "list"], "voices"),
        (["speek", "Hello."], "speak"),
        (["--here", "Speak", "Hello."], "speak"),
        (["srve"], "serve"),
    ],
)
def test_a_slip_of_a_command_is_not_spoken(run: Callable, words: list[str], command: str) -> None:
    done = run(*words)
    word = next(one for one in words if one != "--here")
    meant = f"did you mean {command}? To speak the word, type speak.py speak {word}"
    assert (done.code, done.out, done.err) == (2, b"", f"speak.py: unknown command {word!r}: {meant}\n")


@pytest.mark.parametrize("text", ["Hello", "Serve.", "Check!", "Voices in the dark", "Speech", "Ja", "\u8bf4"])
def test_a_word_that_is_no_slip_is_a_text(text: str) -> None:
    assert cli.split_command([text]) == ("speak", [text])


def test_the_overview_names_every_command(run: Callable) -> None:
    done = run("--help")
    assert done.code == 0 and not done.err
    listed = done.lines[done.lines.index("commands:") + 1 :]
    assert [line.split()[0] for line in listed if line.startswith("  ")] == list(cli.COMMANDS)
    assert run("--version").lines == [pack_version()]
    nothing = run()
    assert nothing.code == 2 and not nothing.out and "usage: speak.py" in nothing.err


@pytest.mark.parametrize(
    "words", [["Yes.", "--seed", "x"], ["voices", "fly"], ["voices", "show"], ["script"], ["serve", "--fly"]]
)
def test_bad_input_is_one_sentence(run: Callable, words: list[str]) -> None:
    """All options of ``speak`` are sixteen lines."""
    done = run(*words)
    assert done.code == 2 and not done.out
    [line] = done.err.splitlines()
    assert line.startswith("speak.py ") and line.endswith(" --help lists the options")


def test_an_interrupt_ends_quietly_with_130(run, monkeypatch, tmp_path) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(speak, "run", interrupted)
    done = run("Yes.", "--out", tmp_path / "a.wav")
    assert (done.code, done.out, done.err) == (130, b"", "")


def test_a_missing_package_is_named(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: object) -> int:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(speak, "run", lacks)
    done = run("Yes.")
    assert done.code == 1 and "has no package torch: install torch" in done.err


def test_a_full_memory_is_one_sentence(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(speak, "run", full)
    done = run("Yes.")
    assert done.code == 1 and "the memory is full" in done.err and "Traceback" not in done.err

    def broken(*_: object) -> int:
        raise RuntimeError("another fault")

    monkeypatch.setattr(speak, "run", broken)
    with pytest.raises(RuntimeError, match="another fault"):
        run("Yes.")


def test_what_the_system_refuses_is_one_sentence(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*error: object) -> Callable:
        def fail(*_: object) -> int:
            raise OSError(*error)

        return fail

    monkeypatch.setattr(speak, "run", refused(13, "Permission denied", "voices/a.wav"))
    done = run("Yes.")
    assert done.code == 2 and "Traceback" not in done.err
    assert "voices/a.wav cannot be read or written (Permission denied): choose another place" in done.err
    monkeypatch.setattr(speak, "run", refused("nothing\nanswers"))
    done = run("Yes.")
    assert done.code == 2 and "reading or writing failed (nothing answers): check the disk" in done.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="not run: there is no /dev/full")
@pytest.mark.parametrize(
    ("words", "streams", "code", "sentence"),
    [
        (["--version"], ">/dev/full", 2, "reading or writing failed (No space left on device)"),
        (["--help"], ">/dev/full", 2, "reading or writing failed (No space left on device)"),
        (["--version"], ">&-", 0, ""),
        (["speak", "--help"], ">&-", 0, ""),
        (["--stdin"], "<&-", 2, "stdin is closed: pipe the text in"),
        (["--stdin"], "<&- 2>&-", 2, ""),
        (["--version"], "2>&-", 0, ""),
        ([], "2>/dev/full", 2, ""),
        ([], "2>&-", 2, ""),
    ],
)
def test_standard_streams_that_are_full_or_closed(words, streams, code, sentence) -> None:
    shell = ["sh", "-c", f'exec "$0" "$@" {streams}', sys.executable, "speak.py", "--here", *words]
    done = subprocess.run(shell, capture_output=True, text=True, cwd=pack.ROOT)
    assert done.returncode == code and sentence in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="not run: there is no /dev/full")
@pytest.mark.parametrize(
    ("words", "streams", "code", "sentence"),
    [
        pytest.param(
            ["--out", "-"],
            ">/dev/full",
            2,
            "reading or writing failed (No space left on device)",
            marks=pytest.mark.slow,
        ),
        pytest.param(["--out", "-"], ">&-", 0, "times real time", marks=pytest.mark.slow),
        pytest.param(["--out", "{}/a.wav"], ">&- 2>&-", 0, "", marks=pytest.mark.slow),
        pytest.param(
            ["--out", "{}/a.wav"],
            ">/dev/full",
            2,
            "reading or writing failed (No space left on device)",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_speech_where_standard_streams_are_full_or_closed(
    tiny: list[str], tmp_path: Path, words: list[str], streams: str, code: int, sentence: str
) -> None:
    words = [word.format(tmp_path) for word in words]
    command = [sys.executable, "speak.py", "--here", "Yes.", *words, *tiny]
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {streams}', *command], capture_output=True, text=True, cwd=pack.ROOT
    )
    assert done.returncode == code and sentence in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert (tmp_path / "a.wav").exists() == ("a.wav" in words[1])


@pytest.mark.parametrize("package", ["serve", "speak.py"])
def test_the_package_runs_from_the_packs_folder(package: str) -> None:
    command = ["-m", package] if package == "serve" else [package]
    done = subprocess.run(
        [sys.executable, *command, "--help"],
        capture_output=True,
        text=True,
        cwd=pack.ROOT,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0 and "commands:" in done.stdout, done.stderr


@pytest.mark.parametrize(("word", "fix"), [("check", "python -m lab.check"), ("bench", "use sweep")])
def test_a_removed_command_says_what_to_use(run: Callable, word: str, fix: str) -> None:
    done = run(word, "--checkpoint", "mine")
    assert done.code == 2 and f"command {word} has been removed" in done.err and fix in done.err
