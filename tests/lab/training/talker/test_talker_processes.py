"""The talker trained by two processes on the CPU, compared with one process that gets both their batches."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lab.training.parallel import World
from lab.training.talker.batch import Batch, Fields, pack
from lab.training.talker.layout import NOTHING
from tests.lab.training.talker.talker_cases import PROCESSES, prepared
from tests.lab.training.talker.tiny_talker import write_codes, write_config

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

CASES = Path(__file__).parent / "talker_cases.py"
ROOT = Path(__file__).resolve().parents[4]
LIMIT = 1200  # seconds, on a busy core


def run(case: str, root: Path) -> list[dict[str, torch.Tensor]]:
    """Run a case to its end; return the results of each process."""
    ended = subprocess.run(
        [sys.executable, str(CASES), case, str(root)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [load_file(root / f"{rank}.safetensors") for rank in range(PROCESSES)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_codes(tmp_path / "codes")
    values = json.loads(write_config(tmp_path / "talker.json").read_text(encoding="utf-8"))
    values["mix"] |= {"positions": 120, "lengths": [40, 80], "join": 0.5}
    values["training"] |= {"log_every": 5, "validate_every": 6}
    (tmp_path / "talker.json").write_text(json.dumps(values), encoding="utf-8")
    return tmp_path


def joined(batches: Sequence[Batch]) -> Batch:
    """Join the lines of all batches, padded to the longest."""
    length = max(batch.length for batch in batches)
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in Fields._fields}
    lines = 0
    for batch in batches:
        fields = batch.fields()._asdict()
        row, position = fields["picked"] // batch.length, fields["picked"] % batch.length
        fields["picked"] = (row + lines) * length + position
        lines += batch.lines
        for name, value in fields.items():
            if value.shape[:2] == (batch.lines, batch.length):
                padded = value.new_full((batch.lines, length, *value.shape[2:]), NOTHING)
                padded[:, : batch.length] = value
                value = padded.clamp(min=0) if name == "text" else padded
            parts[name].append(value)
    known = torch.stack(parts.pop("known")).sum(0)
    whole = {name: torch.cat(values).numpy() for name, values in parts.items()}
    return pack({**whole, "known": known.numpy()})


def test_two_processes_learn_the_same_as_one_from_all_lines(folder: Path) -> None:
    first, second = run("steps", folder)
    trainer, batches = prepared(World(torch.device("cpu")), folder)
    known = torch.stack([batch.known() for batch in batches[0]])
    assert (known[0] != known[1]).all()  # otherwise a plain mean of means would pass
    begun = copy.deepcopy(trainer.learner.state_dict())
    for step, group in enumerate(batches):  # each from the same weights: Adam would magnify rounding errors
        trainer.train_step(joined(group))
        ours = trainer.updater.gradient
        assert (first[f"gradient {step}"] - ours).norm() < 1e-3 * ours.norm()
        trainer.learner.load_state_dict(begun)
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_the_command_trains_saves_and_resumes_in_two_processes(folder: Path) -> None:
    first, second = run("training", folder)
    assert torch.equal(first["rates"], second["rates"])  # decided by one clock
    rows = [json.loads(row) for row in (folder / "talker" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [5, 10, 15]  # only process 0 writes
    assert (folder / "talker" / "weights" / "talker.json").is_file()
