"""Which command a command line names, and how runs end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.serve import cli
from qwen3_tts_morph.serve.commands import speak
from qwen3_tts_morph.serve.commands.folders import pack_version

import pack


@pytest.mark.parametrize(
    ("words", "command", "rest"),
    [
        (["Hello."], "speak", ["Hello."]),
        (["--seed", "1", "Hello."], "speak", ["--seed", "1", "Hello."]),
        (["speak", "voices"], "speak", ["voices"]),
        (["--here", "speak", "Hello."], "speak", ["--here", "Hello."]),
        (["Hello.", "--here"], "speak", ["Hello.", "--here"]),
        ([], None, []),
        (["--help"], None, ["--help"]),
    ],
)
def test_a_first_word_that_is_no_command_is_the_text(
    words: list[str], command: str | None, rest: list[str]
) -> None:
    assert cli.split_command(words) == (command, rest)


def test_the_overview_names_every_command(run: Callable) -> None:
    done = run("--help")
    assert done.code == 0 and not done.err
    listed = done.lines[done.lines.index("commands:") + 1 :]
    assert [line.split()[0] for line in listed if line.startswith("  ")] == list(cli.COMMANDS)
    assert run("--version").lines == [pack_version()]
    nothing = run()
    assert nothing.code == 2 and not nothing.out and "usage: speak.py" in nothing.err


def test_an_interrupt_ends_quietly_with_130(
    run: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
