"""The plan of a lease: which steps run side by side, what a step's limit and an interrupt end, and the kept plans."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.benchmarks import lease
from lab.benchmarks.lease import Running, Step, read_plan, run_plan, startable
from pack import ROOT
from tests.patience import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="rented machines run Linux")

PLANS = sorted((ROOT / "lab" / "benchmarks" / "plans").glob("*.json"))


def step(name: str, *gpus: int, code: str = "pass", seconds: float = PATIENCE) -> Step:
    return Step(name, gpus, seconds, f"-c {shlex.quote(code)}")


def names(steps: list[Step]) -> list[str]:
    return [one.name for one in steps]


def test_a_step_waits_for_its_gpus_and_for_the_steps_before_it() -> None:
    plan = [step("a", 0), step("b", 1), step("both", 0, 1), step("c", 1), step("d", 2)]
    assert names(startable(plan, [])) == ["a", "b", "d"]
    assert names(startable(plan[2:4], [0])) == [], "c must not overtake the step that needs both"
    assert names(startable(plan[2:4], [])) == ["both"]


def test_steps_have_their_own_folder_and_see_their_gpus_only(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES']); open(sys.argv[1] + '/made', 'w')"
    plan = [
        Step("pair", (0, 1), PATIENCE, f'-c "{code}" {{out}}'),
        Step("one", (1,), PATIENCE, f'-c "{code}; sys.exit(3)" {{out}} {{commit}}'),
    ]
    assert run_plan(plan, tmp_path, "abc1234") == {"pair": 0, "one": 3}
    assert (tmp_path / "pair" / "log.txt").read_text().strip() == "0,1"
    assert (tmp_path / "one" / "log.txt").read_text().strip() == "1"
    assert (tmp_path / "pair" / "made").exists() and (tmp_path / "one" / "made").exists()


def test_a_step_whose_time_is_over_ends_and_the_next_one_runs(tmp_path: Path) -> None:
    plan = [step("slow", 0, code="import time; time.sleep(1000)", seconds=0.5), step("next", 0)]
    codes = run_plan(plan, tmp_path, "abc1234")
    assert codes["slow"] and codes["next"] == 0


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN], ids=["terminal", "background"])
def test_a_step_is_interrupted_so_that_it_can_close(
    tmp_path: Path, before: signal.Handlers, interrupts: None
) -> None:
    signal.signal(signal.SIGINT, before)
    code = "import time\ntry: print('on', flush=True); time.sleep(1000)\nfinally: print('closed', flush=True)"
    running = Running(step("one", 0, code=code), tmp_path, "abc1234")
    printed(tmp_path / "one")
    running.stop()
    assert running.code and printed(tmp_path / "one").split()[:2] == ["on", "closed"]


@pytest.fixture
def interrupts() -> Iterator[None]:
    """What Ctrl+C does is put back."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_step_that_ignores_the_interrupt_is_killed_with_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "CLOSING_SECONDS", 0.2)
    code = f"""
import signal, subprocess, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(subprocess.Popen([{sys.executable!r}, "-c", "import time; time.sleep(1000)"]).pid, flush=True)
time.sleep(1000)
"""
    running = Running(step("deaf", 0, code=code), tmp_path, "abc1234")
    pid = int(printed(tmp_path / "deaf"))
    running.stop()
    assert running.code == -signal.SIGKILL
    wait_until(lambda: ended(pid))


def printed(folder: Path) -> str:
    """Return what a step has printed, once it has printed a line."""
    wait_until(lambda: "\n" in (folder / "log.txt").read_text())
    return (folder / "log.txt").read_text()


def ended(pid: int) -> bool:
    """Whether a process is gone, or waits for its parent to ask how it ended."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "../a"}, "a step's name is '../a'"),
        ({"gpus": []}, "needs gpus"),
        ({"seconds": 0}, "seconds above 0"),
        ({"argument": ""}, "argument"),
    ],
)
def test_a_plan_that_cannot_run_is_refused(tmp_path: Path, change: dict[str, object], why: str) -> None:
    entry = {"name": "a", "gpus": [0], "seconds": 1, "arguments": "-V"}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps([entry | change]))
    with pytest.raises(ValueError, match=why):
        read_plan(path)
    path.write_text(json.dumps([entry, entry]))
    with pytest.raises(ValueError, match="same name"):
        read_plan(path)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_command_of_a_kept_plan_is_understood(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their parsers take all arguments; nothing runs."""
    for one in read_plan(path):
        words = one.command(Path("out"), "abc1234")[1:]
        if words[0] == "-m":
            module = importlib.import_module(words[1])
            monkeypatch.setattr(sys, "argv", words[1:])
            assert module.parse_arguments().commit == "abc1234"
        else:
            assert words == ["run_tests.py", "--gpu", "--commit", "abc1234"]
