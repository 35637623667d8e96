"""The plan of a lease: which steps run side by side, what a step's limit and an interrupt end, and the kept plans."""

import importlib
import os
import shlex
import sys
from pathlib import Path

import pytest

from lab.benchmarks.lease import Step, read_plan
from pack import ROOT
from tests.patience import PATIENCE

pytestmark = pytest.mark.skipif(os.name == "nt", reason="rented machines run Linux")

PLANS = sorted((ROOT / "lab" / "benchmarks" / "plans").glob("*.json"))


def step(name: str, *gpus: int, code: str = "pass", seconds: float = PATIENCE) -> Step:
    return Step(name, gpus, seconds, f"-c {shlex.quote(code)}")


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
