"""The tables of the kernel benchmarks run: what they call and record, with kernels that do nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

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
    kernel_table(bench)
    pass_table(bench, contexts=(20,))
    assert [row["table"] for row in bench.rows] == ["kernel"] * 4 + ["pass"] * 3
    assert all(row["mb"] > 0 for row in bench.rows[:4])


def test_tables_of_a_batch(bench: Bench) -> None:
    batch_table(bench, 8)
    assert len(bench.rows) == 7 + 2 + 4  # kernels, heads and sampling, torch's products
    assert all(row["mb"] > 0 for row in bench.rows)
