"""Several processes on the CPU (gloo): they share what they should, and none outlives another's error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lab.training.parallel import World, launch

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

CASES = Path(__file__).parent / "world_cases.py"
ROOT = Path(__file__).resolve().parents[3]
LIMIT = 1200  # seconds, on a busy core; a process that waits for a dead one sleeps an hour


def run(case: str, processes: int, out: Path) -> subprocess.CompletedProcess[str]:
    """Run one of the cases to its end."""
    return subprocess.run(
        [sys.executable, str(CASES), case, str(processes), str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_processes_average_add_broadcast_and_agree(tmp_path: Path) -> None:
    assert run("collectives", 2, tmp_path).returncode == 0
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    assert torch.equal(first["one"], torch.full((3, 2), 1.5))
    assert first["two"].tolist() == [0.0, 1.5, 3.0, 4.5]
    assert first["summed"].tolist() == [2.0, 1.0]
    assert first["numbers"].tolist() == [5] and first["agreed"].tolist() == [0.25, -1.0]


def test_a_single_process_is_a_world() -> None:
    found: list[World] = []
    launch(found.append, 1, "cpu")
    (world,) = found
    tensor = torch.arange(3.0)
    world.average([tensor])
    world.add([tensor])
    world.broadcast([tensor])
    world.meet()
    assert tensor.tolist() == [0.0, 1.0, 2.0] and world.first and world.agree(0.5) == 0.5
    with pytest.raises(ValueError, match="store"):
        World(torch.device("cpu"), 0, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "said"),
    [("different", "lost differs between 2 processes"), ("error", "the disk is full"), ("death", "1 of 2")],
)
def test_an_error_in_one_process_ends_all_and_is_reported(case: str, said: str, tmp_path: Path) -> None:
    ended = run(case, 2, tmp_path)
    assert ended.returncode == 1
    assert said in ended.stderr and "resume from the last saved state" in ended.stderr
