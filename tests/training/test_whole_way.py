"""The command that makes the demo voice: its steps fit each other, and are not done twice."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from qwen3_tts_morph.training import __main__ as whole
from qwen3_tts_morph.training.codec.train import parse_arguments as codec_arguments


def steps(root: Path, *more: str) -> list[whole.Step]:
    return whole.steps(whole.parse_arguments(["--root", str(root), *more]))


def test_each_step_takes_what_an_earlier_one_made(tmp_path: Path) -> None:
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


def test_a_second_try_is_careful_and_has_what_is_left_of_the_minutes(tmp_path: Path) -> None:
    codec = steps(tmp_path)[2]
    again = codec_arguments(list(whole.second_try(codec, 3.5)[1:]))
    assert again.no_capture and not again.resume
    assert (again.minutes, again.whole_minutes) == (21.5, 25.0)
    assert codec.state is not None
    codec.state.parent.mkdir()
    codec.state.touch()
    assert codec_arguments(list(whole.second_try(codec, 3.5)[1:])).resume


def test_a_command_whose_log_stands_still_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "STILL", 2.0)
    monkeypatch.setattr(whole, "LOOK", 0.05)
    growing, child = tmp_path / "log.txt", tmp_path / "child"
    hang = (
        "import os, subprocess, sys, time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(child)!r}, 'w').write(str(other.pid))\n"
        "time.sleep(600)"
    )
    with pytest.raises(subprocess.CalledProcessError):
        whole.watch([sys.executable, "-c", hang], growing)
    until = time.monotonic() + 30
    while not has_ended(int(child.read_text())):
        assert time.monotonic() < until, "the command's child runs on"
        time.sleep(0.05)
    busy = f"import time\nfor _ in range(30): open({str(growing)!r}, 'a').write('step'); time.sleep(0.1)"
    whole.watch([sys.executable, "-c", busy], growing)
    assert growing.read_text() == 30 * "step"


def has_ended(process: int) -> bool:
    """Whether a process is gone, or waits to be collected by whom it was left to."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_what_fails_is_tried_again_carefully(tmp_path: Path) -> None:
    """``speak`` alone lacks arguments; asked for help it ends well."""
    with pytest.raises(subprocess.CalledProcessError):
        whole.run([whole.Step(("corpus", "speak"), tmp_path / "never", careful=("--wrong",))])
    whole.run([whole.Step(("corpus", "speak"), tmp_path / "done", careful=("--help",))])
    assert [path.name for path in tmp_path.iterdir()] == ["done"]


def test_what_is_done_is_not_done_again_and_a_failure_ends_it(tmp_path: Path) -> None:
    version = whole.Step(("corpus", "--help"), tmp_path / "one")
    wrong = whole.Step(("corpus", "no such step"), tmp_path / "two")
    never = whole.Step(("corpus", "--help"), tmp_path / "three")
    with pytest.raises(subprocess.CalledProcessError):
        whole.run([version, wrong, never])
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    (tmp_path / "two").touch()
    whole.run([version, wrong, never])
    assert (tmp_path / "three").exists()
