"""What the test command runs: tiers, workers, Python, and the record of GPU cases."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import install
import run_tests
from tests import environments, records
from tests.patience import PATIENCE
from tests.steps import run_step


class Steps(list):
    """Records calls of pytest instead of making them; ``beside`` has whether each ran beside another."""

    def __init__(self) -> None:
        self.beside: list[bool] = []

    def __call__(self, suite: run_tests.Suite, extra: object) -> run_tests.Outcome:
        self.beside.append(suite.beside)
        self.append((suite.name, [str(option) for option in suite.options]))
        return run_tests.Outcome(suite.name, True, 1.0, passed=3, skipped=Counter(why=1))

    def options(self) -> list[str]:
        return [option for _, options in self for option in options]

    def of(self, name: str) -> list[str]:
        return dict(self)[name]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    found = Steps()
    monkeypatch.setattr(run_tests, "run_pytest", found)
    made = ("make_comfy", "make_ray", "make_transformers_5", "make_newest_transformers", "make_javascript")
    for name in made:
        monkeypatch.setattr(run_tests, name, lambda: None)
    monkeypatch.setattr(run_tests, "describe_environment", lambda name, folder: f"{folder.name}: some 1.0")
    monkeypatch.setattr(run_tests, "bring_chromium", lambda: pytest.fail("the option was not given"))
    return found


PYTEST_GROUPS = ("unit", "tf5", "comfy")


def test_the_default_run_has_every_group_and_no_slow_case(steps: Steps) -> None:
    outcomes = run_tests.run_groups(run_tests.Request(PYTEST_GROUPS))
    assert all(step.ok for step in outcomes)
    names = [name for name, _ in steps]
    others = ["oldest transformers 5", "newest transformers 5", "kernel tests"]
    assert [name for name in names if name in others] == others
    assert names.index("unit tests") < min(map(names.index, ("newest transformers 5", "ComfyUI tests")))
    assert "--all" not in steps.options()
    oldest, newest = ({option.partition("::")[0] for option in steps.of(name)} for name in others[:2])
    assert "tests/morph/test_parity.py" in oldest and oldest < newest and "tests/morph" not in newest


def test_the_summary_says_the_newest_versions(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = run_tests.run_groups(run_tests.Request(("tf5",)))
    assert run_tests.summarize(outcomes)
    assert "transformers5-newest: some 1.0" in capsys.readouterr().out.splitlines()


def test_without_the_oldest_there_is_no_newest(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no network")

    monkeypatch.setattr(run_tests, "make_transformers_5", fail)
    outcomes = run_tests.run_groups(run_tests.Request(("tf5",)))
    assert [step.ok for step in outcomes] == [False] and not steps


def test_an_environment_says_what_it_got(tmp_path: Path) -> None:
    (tmp_path / "versions.json").write_text('{"transformers": "5.24.0", "torch": "2.13.0"}', encoding="utf-8")
    step = run_tests.make_environment("newest transformers 5 environment", lambda: None, tmp_path)
    assert step.note == "newest transformers 5: transformers 5.24.0, torch 2.13.0"


def test_the_code_is_checked_beside_the_tests(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()

    def check(scripts: bool) -> list[run_tests.Outcome]:
        assert scripts
        began.set()
        return [run_tests.Outcome("lint", False, 1.0, failed=1)]

    def unit(_: run_tests.Request) -> run_tests.Outcome:
        assert began.wait(PATIENCE)
        return run_tests.Outcome("unit tests", True, 1.0)

    monkeypatch.setattr(run_tests, "check_code", check)
    monkeypatch.setattr(run_tests, "test_unit", unit)
    monkeypatch.setattr(shutil, "which", lambda name: f"/there/{name}")
    outcomes = run_tests.run_groups(run_tests.Request(("lint", "unit")))
    made = ["ComfyUI environment", "JavaScript environment"]
    assert [step.name for step in outcomes] == [*made, "lint", "unit tests", "kernel tests"]
    assert not run_tests.summarize(outcomes)


@pytest.mark.parametrize("npm", [None, "/there/npm"])
def test_scripts_are_checked_or_one_line_says_why_not(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], npm: str | None
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(run_tests, "check_code", lambda scripts: asked.append(scripts) or [])
    monkeypatch.setattr(shutil, "which", lambda name: {"npm": npm}[name])
    assert run_tests.summarize(run_tests.run_groups(run_tests.Request(("lint",))))
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("skipped in")]
    assert asked == [bool(npm)] and len(said) == (0 if npm else 1)
    assert npm or "npm" in said[0]


def test_without_the_tools_of_scripts_the_rest_is_linted(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise subprocess.CalledProcessError(1, ["npm"])

    asked: list[bool] = []
    monkeypatch.setattr(run_tests, "check_code", lambda scripts: asked.append(scripts) or [])
    monkeypatch.setattr(shutil, "which", lambda name: f"/there/{name}")
    monkeypatch.setattr(run_tests, "make_javascript", fail)
    outcomes = run_tests.run_groups(run_tests.Request(("lint",)))
    assert asked == [False] and [step.ok for step in outcomes] == [True, False]


def test_kernels_and_transformers_5_are_tested_beside_comfyui(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other: each of them takes all of the processor that ComfyUI's tests leave."""
    ended = threading.Event()
    running: list[str] = []

    def step(name: str) -> Callable[[run_tests.Request, bool], run_tests.Outcome]:
        def run(_: run_tests.Request, beside: bool) -> run_tests.Outcome:
            assert beside and not running
            running.append(name)
            if name == "kernel tests":
                ended.set()
            running.clear()
            return run_tests.Outcome(name, True, 1.0)

        return run

    def comfy(_: run_tests.Request) -> run_tests.Outcome:
        assert ended.wait(PATIENCE)
        return run_tests.Outcome("ComfyUI tests", True, 1.0)

    monkeypatch.setattr(run_tests, "test_transformers_5", step("oldest"))
    monkeypatch.setattr(run_tests, "test_newest_transformers", step("newest"))
    monkeypatch.setattr(run_tests, "test_kernels", step("kernel tests"))
    monkeypatch.setattr(run_tests, "test_comfy", comfy)
    outcomes = run_tests.run_groups(run_tests.Request(PYTEST_GROUPS))
    assert run_tests.summarize(outcomes)
    assert [step.name for step in outcomes[3:]] == [
        *("unit tests", "ComfyUI tests", "oldest", "newest", "kernel tests"),
    ]


def test_without_comfyui_they_print_as_they_run(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no network")

    monkeypatch.setattr(run_tests, "make_comfy", fail)
    outcomes = run_tests.run_groups(run_tests.Request(PYTEST_GROUPS))
    assert [step.ok for step in outcomes] == [False, True, True, True, True]
    assert [name for name, _ in steps] == ["oldest transformers 5", "newest transformers 5"]
    assert not any(steps.beside)


def test_a_check_prints_in_one_piece_and_an_exit_code_is_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr); raise SystemExit(3)"
    step = run_step("a check", [sys.executable, "-c", code], beside=True)
    assert (step.ok, step.failed) == (False, 1)
    assert capfd.readouterr().out.startswith("\n=== a check\nout\nerr\n--- a check: FAILED, ")


def test_all_makes_an_environment_with_ray(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(run_tests, "make_ray", lambda: made.append("ray"))
    run_tests.run_groups(run_tests.Request(("unit",)))
    assert made == []
    run_tests.run_groups(run_tests.Request(("unit",), everything=True))
    assert made == ["ray"]


def test_all_measures_coverage_and_the_default_run_does_not(steps: Steps) -> None:
    for everything, extra in ((False, ()), (True, ()), (True, ("-x",))):
        run_tests.test_unit(run_tests.Request(("unit",), everything, extra=extra))
    measured = [any(option.startswith("--cov") for option in options) for _, options in steps]
    assert measured == [False, True, False]


def test_all_runs_every_case_on_both_transformers(steps: Steps) -> None:
    run_tests.run_groups(run_tests.Request(PYTEST_GROUPS, everything=True))
    assert all("--all" in options for _, options in steps)
    assert {"tests/morph", "tests/postprocess", "tests/lab"} <= set(steps.of("newest transformers 5"))
    assert set(run_tests.morph_files(run_tests.ON_TRANSFORMERS_5)) <= set(steps.of("oldest transformers 5"))


def test_a_browser_is_installed_only_with_its_option(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[bool] = []
    monkeypatch.setattr(run_tests, "bring_chromium", lambda: brought.append(True))
    for asked in (False, True):
        run_tests.run_groups(run_tests.Request(("comfy",), install_browser=asked))
        assert brought == [True] * asked


def test_the_files_and_cases_of_transformers_5_exist() -> None:
    names = (*run_tests.ON_TRANSFORMERS_5, *run_tests.ON_OLDEST_TRANSFORMERS_5, *run_tests.OURS_ALONE)
    for path in run_tests.morph_files(names):
        file, _, case = path.partition("::")
        assert f"def {case}" in (run_tests.ROOT / file).read_text(encoding="utf-8")


def test_there_is_one_worker_per_core_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, wanted in (({3}, 1), ({0, 5}, 2), (set(range(64)), run_tests.MOST_WORKERS)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores, raising=False)
        assert run_tests.count_workers() == wanted
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert run_tests.count_workers() == 1
    assert run_tests.spread(1) == [] and run_tests.spread(2)[:2] == ["-n", "2"]


@pytest.mark.parametrize("cores, workers", [(1, 1), (2, 3), (8, 8)])
def test_unit_tests_and_comfyuis_have_a_third_process_on_two_cores(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, cores: int, workers: int
) -> None:
    monkeypatch.setattr(run_tests, "count_workers", lambda: cores)
    for run in (run_tests.test_unit, run_tests.test_comfy):
        options = steps.of(run(run_tests.Request()).name)
        assert ("-n" in options) == (workers > 1)
        assert workers == 1 or options[options.index("-n") + 1] == str(workers)


def own_version() -> str:
    return "{}.{}".format(*sys.version_info[:2])


def test_the_preferred_python_comes_before_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "PYTHONS", ("2.7", own_version()))
    monkeypatch.setattr(environments, "find_python", lambda version: f"/there/python{version}")
    assert environments.choose_python() == "/there/python2.7"


def test_without_it_this_python_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "PYTHONS", ("2.7", own_version()))
    monkeypatch.setattr(environments, "find_python", lambda version: None)
    assert environments.choose_python() == sys.executable


def test_without_any_python_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "PYTHONS", ("2.6", "2.7"))
    monkeypatch.setattr(environments, "find_python", lambda version: None)
    monkeypatch.setattr(sys, "argv", ["run_tests.py"])
    assert run_tests.main() == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "3.11, 3.12 or 3.13" in said and "on the PATH" in said


def test_versions_are_read_from_the_python_that_has_them() -> None:
    found = environments.read_versions(sys.executable)
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["torch"]) and "transformers" in found
    assert "ComfyUI" not in found


@pytest.mark.slow
def test_an_environment_beside_another_imports_its_packages_after_its_own(tmp_path: Path) -> None:
    one, two = (install.create_environment(tmp_path / name) for name in ("one", "two"))
    for python, name, text in ((one, "shared", "one"), (one, "both", "one"), (two, "both", "two")):
        file = environments.site_packages(python) / f"{name}.py"
        file.write_text(f"here = {text!r}\n", encoding="utf-8")
    environments.link_packages(two, one)
    code = "import both, shared; print(both.here, shared.here)"
    assert subprocess.check_output([two, "-c", code], text=True).split() == ["two", "one"]


def test_a_python_of_another_version_is_not_used(tmp_path: Path) -> None:
    assert environments.is_python(sys.executable, own_version())
    assert not environments.is_python(sys.executable, "2.7")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--all", "--gpu"], "not allowed with"),
        (["--newest", "--plain"], "not allowed with"),
        *((([mode, "--only", "unit"]), "no groups") for mode in ("--gpu", "--newest", "--plain")),
        (["--fast"], "--fast"),
    ],
)
def test_options_that_exclude_each_other_are_refused(words, said, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_tests.parse_arguments(words)
    assert said in capsys.readouterr().err


def test_arguments_after_the_dashes_go_to_pytest() -> None:
    options = run_tests.parse_arguments(["--only", "unit", "--", "-k", "x", "--all"])
    assert options.extra == ["-k", "x", "--all"] and options.only == ["unit"] and not options.all


@pytest.mark.parametrize("mode", ["--gpu", "--newest"])
def test_a_record_needs_a_commit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    monkeypatch.setattr(run_tests, "find_commit", lambda record: None)
    with pytest.raises(SystemExit):
        run_tests.parse_arguments([mode])
    assert "--commit" in capsys.readouterr().err
    assert run_tests.parse_arguments([mode, "--commit", "abc"]).commit == "abc"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str | int]:
    """As if a GPU existed; the record is written to a temporary folder."""
    found = {"gpu": "a GPU", "gpu_gb": 24, "torch": "2.9", "transformers": "5.4", "python": "3.12.1"}
    monkeypatch.setattr(run_tests, "describe_machine", lambda: found)
    monkeypatch.setattr(run_tests, "GPU_RECORD", tmp_path / "gpu.json")
    return found


def test_gpu_runs_the_marked_cases_and_records_the_commit(
    steps: Steps,
    machine: dict[str, str | int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("COMFYUI_GPU", raising=False)
    assert "no run is recorded" in run_tests.last_on_gpu()
    assert run_tests.run_gpu("abc", []) == 0
    assert [name for name, _ in steps] == ["kernels on the GPU", "engine on the GPU"]
    assert all("--all" in options for _, options in steps)
    assert (
        "tests/morph/graph/test_engine.py" in steps[1][1]
        and "tests/morph/text/test_split.py" not in steps[1][1]
    )
    record = json.loads(run_tests.GPU_RECORD.read_text(encoding="utf-8"))
    assert record["commit"] == "abc" and record["passed"] == 6 and record["skipped"] == 2
    assert machine.items() <= record.items()
    assert "commit abc on a GPU" in capsys.readouterr().out
    assert "last passed on commit abc" in run_tests.last_on_gpu()


def test_gpu_includes_comfyui_if_one_is_given(
    steps: Steps, machine: dict[str, str | int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMFYUI_GPU", "tiny")
    monkeypatch.setenv("COMFYUI_DIR", "there")
    run_tests.run_gpu("abc", [])
    assert "tests/comfy/test_gpu.py" in steps[-1][1]


@pytest.mark.parametrize(
    "gb, cores, wanted", [(139, 16, 16), (139, 32, 16), (139, None, 1), (24, 16, 6), (2, 16, 1)]
)
def test_processes_that_share_a_gpu_have_memory_for_each(
    monkeypatch: pytest.MonkeyPatch, gb: int, cores: int | None, wanted: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert run_tests.count_gpu_workers(gb) == wanted


def test_a_failed_or_partial_run_on_a_gpu_is_not_recorded(
    steps: Steps, machine: dict[str, str | int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tests.run_gpu("abc", ["-k", "one"])
    monkeypatch.setattr(run_tests, "test_on_gpu", lambda *_: [run_tests.Outcome("x", False, 1.0, failed=1)])
    assert run_tests.run_gpu("abc", []) == 1
    assert not run_tests.GPU_RECORD.exists()


TESTED = {"transformers": ["5.4.0", "5.9.0"], "torch": ["2.13.0"], "ComfyUI": ["0.3.75"]}
PAGE = "comfyui-frontend-package"


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path | None]:
    """As if environments could be made; records go to a temporary folder. Return the programs they were made for."""
    made: list[Path | None] = []
    for name in ("COMFYUI_DIR", "COMFYUI_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    for name in ("newest/frontend-1.60.0", "newest/ComfyUI"):
        (tmp_path / name).mkdir(parents=True)
    say_version(tmp_path / "newest" / "ComfyUI", "0.3.75")
    monkeypatch.setattr(run_tests, "NEWEST", tmp_path / "newest")
    monkeypatch.setattr(run_tests, "NEWEST_RECORD", tmp_path / "newest.json")
    monkeypatch.setattr(run_tests, "TESTED", tmp_path / "tested.json")
    run_tests.TESTED.write_text(records.format_tested(TESTED), encoding="utf-8")
    monkeypatch.setattr(run_tests, "make_newest", made.append)
    monkeypatch.setattr(run_tests, "read_versions", read_versions)
    return made


def say_version(folder: Path, version: str) -> None:
    (folder / "comfyui_version.py").write_text(f'# by hand\n__version__ = "{version}"\n', encoding="utf-8")


def read_versions(python: str) -> dict[str, str]:
    if python == "their/python":
        return {"transformers": "5.9.0", "torch": "2.15.0", PAGE: "1.49.6"}
    return {"transformers": "5.10.0", "torch": "2.13.0", "qwen-tts-hf": "0.1", PAGE: "1.55.0"}


def test_newest_runs_both_and_records_the_versions(steps: Steps, newest, capsys) -> None:
    assert "no run is recorded" in run_tests.last_with_newest()
    assert run_tests.run_newest("abc", run_tests.Request())
    assert newest == [None]
    assert [name for name, _ in steps] == ["newest packages", "ComfyUI, newest packages"]
    assert set(run_tests.morph_files(run_tests.ON_TRANSFORMERS_5)) <= set(steps[0][1])
    record = json.loads(run_tests.NEWEST_RECORD.read_text(encoding="utf-8"))
    assert record["commit"] == "abc" and record["passed"] == 6 and record["skipped"] == 2
    assert record["versions"]["ComfyUI"] == ["0.3.75"] and record["versions"][PAGE] == ["1.55.0", "1.60.0"]
    assert json.loads(run_tests.TESTED.read_text(encoding="utf-8")) == {
        **TESTED,
        "transformers": ["5.4.0", "5.9.0", "5.10.0"],
    }
    said = "transformers 5.10.0, torch 2.13.0"
    assert said in capsys.readouterr().out and said in run_tests.last_with_newest()


def test_newest_with_a_comfyui_of_yours_records_that_one(
    steps: Steps, newest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (theirs := tmp_path / "theirs").mkdir()
    say_version(theirs, "0.33.0")
    monkeypatch.setenv("COMFYUI_DIR", str(theirs))
    monkeypatch.setenv("COMFYUI_PYTHON", "their/python")
    assert run_tests.run_newest("abc", run_tests.Request())
    assert newest == [theirs.resolve()]
    assert json.loads(run_tests.NEWEST_RECORD.read_text(encoding="utf-8"))["versions"] == {
        "transformers": ["5.9.0", "5.10.0"],
        "torch": ["2.13.0", "2.15.0"],
        "qwen-tts-hf": ["0.1"],
        PAGE: ["1.49.6", "1.60.0"],
        "ComfyUI": ["0.33.0"],
    }


def test_a_failed_or_partial_run_of_the_newest_is_not_recorded(
    steps: Steps, newest, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run_tests.TESTED.read_bytes()
    assert run_tests.run_newest("abc", run_tests.Request(extra=("-k", "one")))
    monkeypatch.setattr(run_tests, "test_newest", lambda *_: [run_tests.Outcome("x", False, 1.0, failed=1)])
    assert not run_tests.run_newest("abc", run_tests.Request())
    assert not run_tests.NEWEST_RECORD.exists() and run_tests.TESTED.read_bytes() == before


def test_plain_runs_what_needs_no_pinned_tool_in_this_python(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests, "make_plain", lambda: None)
    monkeypatch.setattr(environments, "PYTHONS", ())
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--plain"])
    assert run_tests.main() == 0
    [(name, options)] = steps
    paths = [option.removeprefix("--ignore=") for option in options if "tests/" in option]
    assert name == "plain tests" and len(paths) > 5
    assert all((run_tests.ROOT / path).exists() for path in paths)
    assert not {"tests", "tests/comfy", "tests/lab"} & set(options)


def test_a_commit_is_reported_with_changes_and_only_for_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "GPU_RECORD", tmp_path / "gpu.json")
    assert run_tests.find_commit(run_tests.GPU_RECORD) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    commit = run_tests.find_commit(run_tests.GPU_RECORD)
    assert commit is not None and len(commit) == 40
    (tmp_path / "gpu.json").touch()
    assert run_tests.find_commit(run_tests.GPU_RECORD) == commit
    (tmp_path / "new.py").touch()
    assert run_tests.find_commit(run_tests.GPU_RECORD) == f"{commit} with changes"


def test_the_summary_ends_with_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [run_tests.Outcome("unit tests", True, 1.0, 5, 0, Counter({"needs a GPU": 2}))]
    assert run_tests.summarize([*outcomes, run_tests.Outcome("lint", True, 1.0)])
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 0 failed, 2 skipped"
    assert not run_tests.summarize([*outcomes, run_tests.Outcome("lint", False, 1.0, failed=1)])
