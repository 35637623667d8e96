"""Run the project's checks on a machine with Python 3.11, 3.12 or 3.13 and git.

    python run_tests.py                      # the default run: what CI runs
    python run_tests.py --all                # also the cases marked slow, and coverage
    python run_tests.py --gpu                # the cases that need a GPU, in this Python; creates no environment
    python run_tests.py --only unit          # lint, unit, tf5 or comfy; may be repeated
    python run_tests.py -- -k sampling -x    # everything after -- goes to pytest

The environments are created once, in .envs/: a real ComfyUI with transformers 4, and one with transformers 5; with
--all also one with Ray. To test your own ComfyUI instead, set COMFYUI_DIR (the folder of its main.py) and
COMFYUI_PYTHON (the Python that runs it). Page tests use the Chromium named by CHROMIUM, or one on the PATH;
--install-browser installs Debian's. Cases that could not run are listed as skipped. --gpu records the last commit that
passed in tests/gpu.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import install
import pack
from tests.environments import (
    COMFY,
    COMFY_PYTHON,
    ENVS,
    FRONTEND,
    PYTHONS,
    RAY_PYTHON,
    ROOT,
    TRANSFORMERS_5,
    bring_chromium,
    choose_python,
    make_comfy,
    make_ray,
    make_transformers_5,
)

GROUPS = ("lint", "unit", "tf5", "comfy")
LEAST_COVERAGE = 90
COVERED = ("morph", "postprocess", "serve")
TYPED = (*COVERED, "nodes")
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"
KERNELS = "tests/morph/kernels"
NOTHING_COLLECTED = 5  # pytest's exit code
# What can differ between transformers 4 and 5.
ON_TRANSFORMERS_5 = (
    *(
        "test_parity",
        "test_demo_voice",
        "checkpoint/test_qwen_tts",
        "checkpoint/test_load",
        "checkpoint/test_find",
    ),
    *(
        "voice/test_prompt",
        "voice/test_voice",
        "decode/test_eager",
        "decode/test_talker",
        "decode/test_predictor",
    ),
    *("codec/test_upstream", "model/test_model", "model/test_rope"),
)
MOST_WORKERS = 8  # each loads its own torch; on an H200's 16 cores 16 compiled the kernels no faster
GB_PER_WORKER = 4  # of a GPU's memory
GPU_RECORD = ROOT / "tests" / "gpu.json"


@dataclass(frozen=True)
class Request:
    """The command line; ``extra`` goes to pytest."""

    groups: Sequence[str] = GROUPS
    everything: bool = False
    install_browser: bool = False
    extra: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    """How one step ended. ``skipped`` counts pytest's reasons."""

    name: str
    ok: bool
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


def run_step(
    name: str,
    command: Sequence[str | Path],
    env: dict[str, str] | None = None,
    fine: tuple[int, ...] = (0,),
) -> Outcome:
    """Run a command with its output on the terminal; an exit code that is not ``fine`` is one failure."""
    print(f"\n=== {name}", flush=True)
    started = time.monotonic()
    done = subprocess.run([str(part) for part in command], cwd=ROOT, env={**os.environ, **(env or {})})
    return end_step(name, done.returncode in fine, started)


def run_beside(
    name: str, command: Sequence[str | Path], cwd: Path = ROOT, env: dict[str, str] | None = None
) -> Outcome:
    """Run a command beside other steps: its output is printed in one piece when it has ended."""
    started = time.monotonic()
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    return end_step(name, done.returncode == 0, started, f"\n=== {name}\n{done.stdout}")


def end_step(name: str, ok: bool, started: float, said: str = "") -> Outcome:
    seconds = time.monotonic() - started
    print(f"{said}--- {name}: {'ok' if ok else 'FAILED'}, {seconds:.1f} s", flush=True)
    return Outcome(name, ok, seconds, failed=0 if ok else 1)


def make_environment(name: str, make: Callable[[], None]) -> Outcome:
    print(f"\n=== {name}", flush=True)
    started = time.monotonic()
    try:
        make()
    except (subprocess.CalledProcessError, OSError) as problem:
        print(problem, file=sys.stderr)
        return end_step(name, False, started)
    return end_step(name, True, started)


def check_code() -> list[Outcome]:
    """Lint, format, types, and which package may import which. Each takes one core, so tests run beside it."""
    ruff = [COMFY_PYTHON, "-m", "ruff"]
    return [
        run_beside("ruff check", [*ruff, "check", "."]),
        run_beside("ruff format", [*ruff, "format", "--check", "."]),
        *check_package(),
    ]


def check_package() -> list[Outcome]:
    """Run mypy and the import contracts (pyproject.toml, [tool.importlinter]) on a copy of the sources, lab included.

    The copy has a name that a package can have: the repository's own folder may have a hyphen. mypy's cache is beside
    it: what has not changed since the last run is not read again.
    """
    sources, config = ENVS / "types", ROOT / "pyproject.toml"
    shutil.rmtree(sources, ignore_errors=True)
    package = sources / "qwen3_tts_morph"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    ignored = shutil.ignore_patterns("__pycache__")
    for name in TYPED:
        shutil.copytree(ROOT / name, package / name, ignore=ignored)
    shutil.copytree(ROOT / "lab", sources / "lab", ignore=ignored)
    shutil.copy(ROOT / "pack.py", sources)  # lab imports it
    mypy = [COMFY_PYTHON, "-m", "mypy", "--config-file", config, "--cache-dir", ENVS / "mypy"]
    mypy += ["-p", package.name, "-p", "lab"]
    contracts = [COMFY_PYTHON, "-c", LINT_IMPORTS, "--config", config, "--no-cache"]
    return [
        run_beside("mypy", mypy, cwd=sources, env={"MYPYPATH": str(COMFY / "ComfyUI")}),
        run_beside("imports", contracts, cwd=sources, env={"PYTHONPATH": str(sources)}),
    ]


def count_workers() -> int:
    """Return how many processes run tests: one per core that this process may use (``taskset`` limits them)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_WORKERS)


def count_gpu_workers(gpu_gb: float) -> int:
    """Return how many processes run tests that share a GPU, as its memory allows."""
    return max(1, min(os.cpu_count() or 1, MOST_WORKERS, int(gpu_gb / GB_PER_WORKER)))


def spread(workers: int, how: str = "loadfile") -> list[str]:
    """Return pytest's options for n processes; a file's tests run in one process, because they share fixtures."""
    return ["-n", str(workers), "--dist", how] if workers > 1 else []


def run_pytest(
    name: str,
    python: Path,
    options: Sequence[str | Path],
    extra: Sequence[str],
    env: dict[str, str] | None = None,
) -> Outcome:
    """Run pytest and read its counts from its report; ``extra``, the user's own, may leave no test to run."""
    report = ENVS / f"{name.replace(' ', '_')}.xml"
    report.unlink(missing_ok=True)
    alone = {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg", "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    alone["PYTHONDONTWRITEBYTECODE"] = ""  # else every worker and every server compiles each file again
    command = [python, "-m", "pytest", f"--junit-xml={report}", *options, *extra]
    may_be_empty = bool(extra) or KERNELS in options  # without Triton
    step = run_step(
        name, command, env=alone | (env or {}), fine=(0, NOTHING_COLLECTED) if may_be_empty else (0,)
    )
    if not report.exists():
        return step
    if KERNELS in options and not extra and step.ok and not _cases(report):
        return replace(step, skipped=Counter({"not run: no Triton": 1}))
    cases = _cases(report)
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = Counter(mark.get("message", "") for case in cases if (mark := case.find("skipped")) is not None)
    passed = len(cases) - failed - skipped.total()
    # pytest also fails for other reasons than tests: coverage, or nothing collected.
    return Outcome(name, step.ok, step.seconds, passed, failed or step.failed, skipped)


def _cases(report: Path) -> list[ElementTree.Element]:
    """Return the cases in pytest's report."""
    return list(ElementTree.parse(report).getroot().iter("testcase"))


def tier(request: Request) -> list[str]:
    """Return the pytest options of every step of the request."""
    return ["--all"] if request.everything else []


def test_unit(request: Request) -> Outcome:
    """Run all tests but ComfyUI's and the kernels' on transformers 4.

    ``--all`` measures coverage, if no other arguments choose tests. It makes Python code a quarter slower.
    """
    coverage = [f"--cov={ROOT / name}" for name in COVERED]
    coverage += ["--cov-config=pyproject.toml", "--cov-report=term", f"--cov-fail-under={LEAST_COVERAGE}"]
    options = [
        "tests",
        "--ignore=tests/comfy",
        f"--ignore={KERNELS}",
        *tier(request),
        *spread(count_workers()),
    ]
    options += coverage if request.everything and not request.extra else []
    env = {"COVERAGE_FILE": str(ENVS / "coverage")}
    env |= {"RAY_PYTHON": str(RAY_PYTHON)} if request.everything and RAY_PYTHON.exists() else {}
    return run_pytest("unit tests", COMFY_PYTHON, options, request.extra, env)


def test_kernels(request: Request) -> Outcome:
    """Run the kernels in Triton's interpreter, without coverage, which would make it twice as slow."""
    # No fixture takes long here, and few files have most of the work.
    options = [KERNELS, *tier(request), *spread(count_workers(), "worksteal")]
    return run_pytest("kernel tests", COMFY_PYTHON, options, request.extra, {"TRITON_INTERPRET": "1"})


def test_transformers_5(request: Request) -> Outcome:
    """Run the engine's tests on transformers 5: all of them with --all, else those of what can differ there."""
    paths = [f"tests/morph/{name}.py" for name in ON_TRANSFORMERS_5]
    if request.everything:
        paths = [f"tests/{name}" for name in ("morph", "postprocess", "lab")]
    options = [*paths, *tier(request), *spread(count_workers())]
    python = install.environment_python(TRANSFORMERS_5)
    return run_pytest("transformers 5 tests", python, options, request.extra)


def test_comfy(request: Request) -> Outcome:
    """Run the tests with a real ComfyUI and a real browser."""
    if request.install_browser:
        bring_chromium()
    comfy = {"COMFYUI_DIR": str(COMFY / "ComfyUI"), "COMFYUI_PYTHON": str(COMFY_PYTHON)}
    if own := os.environ.get("COMFYUI_DIR"):
        comfy = {"COMFYUI_DIR": own, "COMFYUI_PYTHON": os.environ.get("COMFYUI_PYTHON", sys.executable)}
    env = {"COMFYUI_FRONTEND": str(FRONTEND), **comfy}
    # Pages wait for servers, and listeners for sound: a third process keeps two cores busy. Each starts two servers, so
    # more cores get no more processes than cores.
    workers = count_workers()
    options = ["tests/comfy", *tier(request), *spread(max(workers, 3) if workers > 1 else 1)]
    return run_pytest("ComfyUI tests", COMFY_PYTHON, options, request.extra, env)


def run_in_comfy(request: Request) -> list[Outcome]:
    """Run the steps of ComfyUI's environment, the checks of the code beside the tests."""
    groups = request.groups
    with ThreadPoolExecutor(1) as beside:
        checks = beside.submit(check_code) if "lint" in groups else None
        tests: list[Outcome] = []
        if "unit" in groups and request.everything:
            tests.append(make_environment("Ray environment", make_ray))
        if "unit" in groups:
            tests += [test_unit(request), test_kernels(request)]
        tests += [test_comfy(request)] if "comfy" in groups else []
        return [*(checks.result() if checks else []), *tests]


def run_groups(request: Request) -> list[Outcome]:
    """Run the steps of these groups; skip those whose environment could not be created."""
    outcomes, groups = [], request.groups
    if {"lint", "unit", "comfy"} & set(groups):
        outcomes.append(make_environment("ComfyUI environment", make_comfy))
        outcomes += run_in_comfy(request) if outcomes[-1].ok else []
    if "tf5" in groups:
        outcomes.append(make_environment("transformers 5 environment", make_transformers_5))
        outcomes += [test_transformers_5(request)] if outcomes[-1].ok else []
    return outcomes


# On a GPU


def describe_machine() -> dict[str, Any] | None:
    """Return the GPU and the package versions of this Python; None without a GPU or without torch."""
    names = ("torch", "transformers", "triton", "flash-attn")
    code = (
        "import importlib.metadata as m, json, torch\n"
        "if not torch.cuda.is_available(): raise SystemExit('torch finds no GPU')\n"
        f"names = set({names!r}) & {{d.metadata['Name'] for d in m.distributions()}}\n"
        "gpu = torch.cuda.get_device_properties(0)\n"
        "found = {'gpu': gpu.name, 'gpu_gb': round(gpu.total_memory / 1e9)}\n"
        "print(json.dumps({**found, **{n: m.version(n) for n in sorted(names)}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        print(f"--gpu needs a GPU: {(done.stderr.splitlines() or ['?'])[-1]}", file=sys.stderr)
        return None
    return {**json.loads(done.stdout.splitlines()[-1]), "python": "{}.{}.{}".format(*sys.version_info[:3])}


def find_commit() -> str | None:
    """Return this tree's commit and whether it has changes; None if the tree is not a git checkout itself."""
    found = pack.find_commit(ROOT, GPU_RECORD)
    return found and f"{found[0]}{' with changes' if found[1] else ''}"


def gpu_files() -> list[str]:
    """Return the test files with cases marked gpu, except the kernels': other files need not be importable."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text("utf-8")]
    names = sorted(path.relative_to(ROOT).as_posix() for path in files)
    return [name for name in names if not name.startswith((KERNELS, "tests/test_", "tests/comfy"))]


def test_on_gpu(workers: int, extra: Sequence[str]) -> list[Outcome]:
    """Run all cases that need a GPU, and the kernels compiled; ComfyUI's if COMFYUI_GPU and COMFYUI_DIR are set."""
    processes = spread(workers) if importlib.util.find_spec("xdist") else []
    env, python = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}, Path(sys.executable)
    engine = [*gpu_files(), "-m", "gpu", "--all", *processes]
    outcomes = [
        run_pytest("kernels on the GPU", python, [KERNELS, "--all", *processes], extra, env),
        run_pytest("engine on the GPU", python, engine, extra, env),
    ]
    if os.environ.get("COMFYUI_GPU") and os.environ.get("COMFYUI_DIR"):
        comfy = ["tests/comfy/test_gpu.py", "--all"]
        outcomes.append(run_pytest("ComfyUI on the GPU", python, comfy, extra, env))
    return outcomes


def run_gpu(commit: str, extra: Sequence[str]) -> int:
    """Run the cases that need a GPU, and record the commit if they pass."""
    machine = describe_machine()
    if machine is None:
        return 1
    print(f"commit {commit} on {machine['gpu']}", flush=True)
    outcomes = test_on_gpu(count_gpu_workers(machine["gpu_gb"]), extra)
    passed = summarize(outcomes)
    print(f"ran on commit {commit}")
    if passed and not extra:
        counts = {"passed": sum(step.passed for step in outcomes)}
        counts |= {"skipped": sum(step.skipped.total() for step in outcomes)}
        steps = {step.name: {"passed": step.passed, "skipped": step.skipped.total()} for step in outcomes}
        date = datetime.now(timezone.utc).date().isoformat()
        record = {"commit": commit, "date": date, **machine, **counts, "steps": steps}
        GPU_RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0 if passed else 1


def last_on_gpu() -> str:
    """Return one line: when the cases that need a GPU last passed."""
    if not GPU_RECORD.exists():
        return "cases that need a GPU: no run is recorded (python run_tests.py --gpu)"
    last = json.loads(GPU_RECORD.read_text(encoding="utf-8"))
    return (
        f"cases that need a GPU last passed on commit {last['commit']}, {last['date']}: {last['passed']} passed, "
        f"{last['skipped']} skipped ({last['gpu']}, torch {last['torch']}, transformers {last['transformers']})"
    )


def summarize(outcomes: Sequence[Outcome]) -> bool:
    """Print the table, why cases were skipped and the totals; return whether every step passed."""
    print(f"\n{'step':28} {'result':8} {'time':>8} {'passed':>7} {'failed':>7} {'skipped':>8}")
    for step in outcomes:
        result, skipped = "ok" if step.ok else "FAILED", step.skipped.total()
        print(f"{step.name:28} {result:8} {step.seconds:6.1f} s {step.passed:7} {step.failed:7} {skipped:8}")
    for step in outcomes:
        for reason, count in step.skipped.items():
            print(f"skipped in {step.name}, {count}: {reason}")
    passed, failed = sum(step.passed for step in outcomes), sum(step.failed for step in outcomes)
    print(f"{passed} passed, {failed} failed, {sum(step.skipped.total() for step in outcomes)} skipped")
    return all(step.ok for step in outcomes)


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; everything after -- is in ``extra``."""
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tiers = parser.add_mutually_exclusive_group()
    tiers.add_argument("--all", action="store_true", help="also run the cases marked slow")
    tiers.add_argument("--gpu", action="store_true", help="run the cases that need a GPU, in this Python")
    parser.add_argument("--only", action="append", choices=GROUPS, help="run only this group of steps")
    parser.add_argument("--install-browser", action="store_true", help="apt-get install Chromium, as root")
    parser.add_argument("--commit", help="with --gpu: the commit of this tree, if it is not a git checkout")
    options = parser.parse_args(words[:end])
    options.extra = list(words[end + 1 :])
    if options.gpu and options.only:
        parser.error("--gpu has no groups: leave --only out")
    if options.gpu and not (options.commit or find_commit()):
        parser.error("this tree is not a git checkout: give its commit with --commit, which --gpu records")
    return options


def main() -> int:
    options = parse_arguments(sys.argv[1:])
    ENVS.mkdir(exist_ok=True)
    if options.gpu:
        return run_gpu(options.commit or find_commit() or "", options.extra)
    python = choose_python()
    if python is None:
        versions = f"{', '.join(PYTHONS[:-1])} or {PYTHONS[-1]}"
        print(
            f"the tests need Python {versions} with venv and ensurepip, and none is on the PATH",
            file=sys.stderr,
        )
        return 1
    if python != sys.executable:
        return subprocess.run([python, *sys.argv]).returncode
    request = Request(options.only or GROUPS, options.all, options.install_browser, options.extra)
    print(last_on_gpu())
    return 0 if summarize(run_groups(request)) else 1


if __name__ == "__main__":
    sys.exit(main())
