"""What the test command runs: tiers, workers, Python, and the record of GPU cases."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests import runner


class Steps(list):
    """Records calls of pytest instead of making them; ``beside`` has whether each ran beside another."""

    def __init__(self) -> None:
        self.beside: list[bool] = []

    def __call__(self, suite: runner.Suite, extra: object) -> runner.Outcome:
        self.beside.append(suite.beside)
        self.append((suite.name, [str(option) for option in suite.options]))
        return runner.Outcome(suite.name, True, 1.0, passed=3, skipped=Counter(why=1))

    def options(self) -> list[str]:
        return [option for _, options in self for option in options]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    found = Steps()
    monkeypatch.setattr(runner, "run_pytest", found)
    made = ("make_comfy", "make_ray", "make_transformers_5", "make_newest_transformers", "make_javascript")
    for name in made:
        monkeypatch.setattr(runner, name, lambda: None)
    monkeypatch.setattr(runner, "describe_environment", lambda name, folder: f"{folder.name}: some 1.0")
    monkeypatch.setattr(runner, "bring_chromium", lambda: pytest.fail("the option was not given"))
    return found


PYTEST_GROUPS = ("unit", "tf5", "comfy")


def test_the_default_run_has_every_group_and_no_slow_case(steps: Steps) -> None:
    outcomes = runner.run_groups(runner.Request(PYTEST_GROUPS))
    assert all(step.ok for step in outcomes)
    names = [name for name, _ in steps]
    others = ["oldest transformers 5", "newest transformers 5", "kernel tests"]
    assert [name for name in names if name in others] == others
    assert names.index("unit tests") < min(map(names.index, ("newest transformers 5", "ComfyUI tests")))
    assert "--all" not in steps.options()


def test_the_files_and_cases_of_transformers_5_exist() -> None:
    for path in runner.morph_files((*runner.ON_TRANSFORMERS_5, *runner.BY_TRANSFORMERS)):
        file, _, case = path.partition("::")
        assert f"def {case.partition('[')[0]}" in (runner.ROOT / file).read_text(encoding="utf-8")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str | int]:
    """As if a GPU existed; the record is written to a temporary folder."""
    found = {"gpu": "a GPU", "gpu_gb": 24, "torch": "2.9", "transformers": "5.4", "python": "3.12.1"}
    monkeypatch.setattr(runner, "describe_machine", lambda: found)
    monkeypatch.setattr(runner, "GPU_RECORD", tmp_path / "gpu.json")
    return found


def test_gpu_runs_the_marked_cases_and_records_the_commit(steps, machine, monkeypatch, capsys) -> None:
    monkeypatch.delenv("COMFYUI_GPU", raising=False)
    assert "no run is recorded" in runner.last_on_gpu()
    assert runner.run_gpu("abc", []) == 0
    assert [name for name, _ in steps] == ["kernels on the GPU", "engine on the GPU"]
    assert all("--all" in options for _, options in steps)
    assert "tests/morph/graph/test_engine.py" in steps[1][1] and "tests/morph/text/test_split.py" not in steps[1][1]
    record = json.loads(runner.GPU_RECORD.read_text(encoding="utf-8"))
    assert record["commit"] == "abc" and record["passed"] == 6 and record["skipped"] == 2
    assert machine.items() <= record.items()
    assert "commit abc on a GPU" in capsys.readouterr().out
    assert "last passed on commit abc" in runner.last_on_gpu()


def test_the_summary_ends_with_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [runner.Outcome("unit tests", True, 1.0, 5, 0, Counter({"needs a GPU": 2}))]
    assert runner.summarize([*outcomes, runner.Outcome("lint", True, 1.0)])
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 0 failed, 2 skipped"
    assert not runner.summarize([*outcomes, runner.Outcome("lint", False, 1.0, failed=1)])
