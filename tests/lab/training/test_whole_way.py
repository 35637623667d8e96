"""The command that makes the demo voice: its steps fit together, and finished steps are skipped."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.training import __main__ as whole
from lab.training import steps as runner
from lab.training.codec.train import parse_arguments as codec_arguments

pytestmark = pytest.mark.slow  # this training is finished: --all runs it


def steps(root: Path, *more: str) -> list[runner.Step]:
    return whole.steps(whole.parse_arguments(["--root", str(root), *more]))


def test_each_steps_inputs_are_made_by_an_earlier_one(tmp_path: Path) -> None:
    todo = steps(tmp_path)
    assert [step.arguments[0] for step in todo] == [
        *("corpus", "corpus", "codec.train", "codec.export", "talker.encode", "talker.train"),
        *("talker.redraw", "codec.train", "codec.export", "export"),
    ]
    first, tokenizer, encode, talker, redraw, tuned, tuned_tokenizer, voice = (
        dict(zip(step.arguments, step.arguments[1:], strict=False)) for step in todo[2:]
    )
    assert tokenizer["--checkpoint"] == str(Path(first["--out"], "weights")) == tuned["--start"]
    assert encode["--codec"] == tokenizer["--out"]
    assert talker["--codes"] == redraw["--codes"] == tuned["--codes"] == encode["--out"]
    assert redraw["--talker"] == voice["--talker"] == talker["--out"]
    assert tuned["--drawn"] == redraw["--out"] and Path(tuned["--config"]).name == "codec_drawn.json"
    assert tuned_tokenizer["--checkpoint"] == str(Path(tuned["--out"], "weights"))
    assert voice["--codec"] == tuned_tokenizer["--out"] != tokenizer["--out"]
    codec = codec_arguments(list(todo[2].arguments[1:]))
    assert codec.processes == 0 and codec.fast and codec.minutes == codec.whole_minutes == 25.0
    assert not codec_arguments(list(steps(tmp_path, "--device", "cpu")[2].arguments[1:])).fast


def test_a_second_try_is_careful_and_gets_the_remaining_minutes(tmp_path: Path) -> None:
    codec = steps(tmp_path)[2]
    again = codec_arguments(list(runner.second_try(codec, 3.5)[1:]))
    assert again.no_capture and not again.resume
    assert (again.minutes, again.whole_minutes) == (21.5, 25.0)
    assert codec.state is not None
    codec.state.parent.mkdir()
    codec.state.touch()
    assert codec_arguments(list(runner.second_try(codec, 3.5)[1:])).resume


def test_a_command_whose_log_stalls_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing, child = tmp_path / "log.txt", tmp_path / "child"
    hang = (
        "import os, subprocess, sys, time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        f"open({str(child)!r}, 'w').write(str(other.pid))\n"
        "time.sleep(3600)"
    )
    later = itertools.count(0.0, runner.STALL_SECONDS + 1)  # the clock stops until there is a child

    def now() -> float:
        return next(later) if child.exists() and child.read_text() else 0.0

    monkeypatch.setattr(runner, "time", SimpleNamespace(sleep=lambda _: time.sleep(0.05), monotonic=now))
    with pytest.raises(subprocess.CalledProcessError):
        runner.watch([sys.executable, "-c", hang], growing)
    until = time.monotonic() + 600
    while not has_ended(int(child.read_text())):
        assert time.monotonic() < until, "the command's child runs on"
        time.sleep(0.05)


def test_a_command_whose_log_grows_is_never_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes a step per poll, and the time between polls is just below the limit."""
    growing, looks, over = tmp_path / "log.txt", tmp_path / "looks", tmp_path / "over"
    busy = (
        "import os, time\n"
        "for step in range(1, 6):\n"
        f"    open({str(growing)!r}, 'a').write('step')\n"
        f"    while os.path.getsize({str(looks)!r}) < step: time.sleep(0.01)\n"
        f"open({str(over)!r}, 'w')"
    )
    looks.touch()
    clock = SimpleNamespace(now=0.0, steps=0)

    def sleep(_: float) -> None:
        looks.write_text(clock.steps * "x")
        while not over.exists() and (not growing.exists() or growing.stat().st_size == 4 * clock.steps):
            time.sleep(0.01)
        if not over.exists():
            clock.steps, clock.now = clock.steps + 1, clock.now + 0.9 * runner.STALL_SECONDS

    monkeypatch.setattr(runner, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock.now))
    runner.watch([sys.executable, "-c", busy], growing)
    assert growing.read_text() == 5 * "step" and clock.now > 3 * runner.STALL_SECONDS


def has_ended(process: int) -> bool:
    """Whether a process has exited, or is a zombie waiting to be reaped."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_failed_step_is_retried_carefully(tmp_path: Path) -> None:
    """``speak`` without arguments fails; with ``--help`` it succeeds."""
    with pytest.raises(subprocess.CalledProcessError):
        runner.run([runner.Step(("corpus", "speak"), tmp_path / "never", careful=("--wrong",))])
    runner.run([runner.Step(("corpus", "speak"), tmp_path / "done", careful=("--help",))])
    assert [path.name for path in tmp_path.iterdir()] == ["done"]


def test_finished_steps_are_skipped_and_a_failure_ends_the_run(tmp_path: Path) -> None:
    version = runner.Step(("corpus", "--help"), tmp_path / "one")
    wrong = runner.Step(("corpus", "no such step"), tmp_path / "two")
    never = runner.Step(("corpus", "--help"), tmp_path / "three")
    with pytest.raises(subprocess.CalledProcessError):
        runner.run([version, wrong, never])
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    (tmp_path / "two").touch()
    runner.run([version, wrong, never])
    assert (tmp_path / "three").exists()
