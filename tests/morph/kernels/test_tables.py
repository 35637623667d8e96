"""The tables of the kernel benchmarks run: what they call and record, with kernels that do nothing."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest
import torch

from lab.benchmarks import prompt_kernels
from lab.benchmarks.batch_kernels import batch_table
from lab.benchmarks.bench import Bench
from lab.benchmarks.kernels import pass_table
from lab.benchmarks.line_kernels import kernel_table


@pytest.fixture
def bench() -> Bench:
    made = Bench("tiny", torch.device("cpu"), 1)
    made.plan = replace(made.plan, start=lambda *arguments, **named: None)
    return made


def test_tables_of_one_line(bench: Bench) -> None:
    kernel_table(bench, bench.plan, "plan")
    pass_table(bench, bench.plan, "default plan", contexts=(20,))
    assert [row["table"] for row in bench.rows] == ["kernel"] * 4 + ["pass"] * 3
    assert all(row["mb"] > 0 for row in bench.rows[:4])


def test_tables_of_a_batch(bench: Bench) -> None:
    batch_table(bench, bench.plan, "plan", 8)
    assert len(bench.rows) == 7 + 2 + 4  # kernels, heads and sampling, torch's products
    assert all(row["mb"] > 0 for row in bench.rows)


def test_tables_of_prompts(bench: Bench) -> None:
    given = argparse.Namespace(
        positions=20,
        rows=[20, 66],
        batches=[1],
        seq_groups=[1],
        parts=["pass", "frames", "sweep"],
        plans=prompt_kernels.IN_FRAMES,
    )
    for job in prompt_kernels.jobs_of(bench, given):
        job(bench.plan)
    prompt_kernels.frames_part(bench, given)
    prompt_kernels.sweep_part(bench, given)
    assert not [row for row in bench.rows if "failed" in row]
    assert {row["table"] for row in bench.rows} == {"frame", "sweep"}
