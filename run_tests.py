"""Run every check of the project on a machine with Python 3.11 and git.

    python run_tests.py                      # everything
    python run_tests.py --only unit          # lint, unit, tf5 or comfy; may be repeated
    python run_tests.py -- -k sampling -x    # what follows -- goes to pytest

The environments are made once, in .envs/: a real ComfyUI with transformers 4, and one with transformers 5. A
ComfyUI of your own is tested instead with COMFYUI_DIR (the folder of its main.py) and COMFYUI_PYTHON (the
Python that runs it). Page tests take the Chromium named by CHROMIUM, or one on the PATH. What could not run
is listed as skipped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import install

ROOT = Path(__file__).resolve().parent
ENVS = ROOT / ".envs"
COMFY = ENVS / "comfy"
COMFY_PYTHON = install.environment_python(COMFY / "venv")
TRANSFORMERS_5 = ENVS / "transformers5"
FRONTEND = COMFY / "frontend-1.58.1"  # unpacked by tests/comfy/install.py

GROUPS = ("lint", "unit", "tf5", "comfy")
LEAST_COVERAGE = 90
COVERED = ("morph", "postprocess")
TOOLS = ("pytest==9.2.0", "pytest-cov==7.1.0", "playwright==1.65.2", "ruff==0.17.5", "mypy==2.4.1")
# What the ComfyUI tests hear with; those of the second file are installed without what they ask for.
JUDGES = ROOT / "tests" / "requirements.txt"
JUDGES_ALONE = ROOT / "tests" / "requirements-no-deps.txt"
TRITON = (
    "triton==3.6.0; sys_platform == 'linux' and platform_machine == 'x86_64'"  # elsewhere there are no wheels
)
KERNELS = "tests/morph/kernels"
NOTHING_COLLECTED = 5  # pytest's exit code


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
    cwd: Path = ROOT,
    env: dict[str, str] | None = None,
    fine: tuple[int, ...] = (0,),
) -> Outcome:
    """Run a command with its output on the terminal; an exit code that is not ``fine`` is one failure."""
    print(f"\n=== {name}", flush=True)
    started = time.monotonic()
    done = subprocess.run([str(part) for part in command], cwd=cwd, env={**os.environ, **(env or {})})
    return end_step(name, done.returncode in fine, started)


def end_step(name: str, ok: bool, started: float) -> Outcome:
    seconds = time.monotonic() - started
    print(f"--- {name}: {'ok' if ok else 'FAILED'}, {seconds:.1f} s", flush=True)
    return Outcome(name, ok, seconds, failed=0 if ok else 1)


# Environments


def find_python_311() -> str | None:
    """Give a Python 3.11 on the PATH that can make environments (a version manager's shim may not run)."""
    check = "import sys, ensurepip, venv; sys.exit(sys.version_info[:2] != (3, 11))"
    for folder in os.get_exec_path():
        found = shutil.which("python3.11", path=folder)
        if found and subprocess.run([found, "-c", check], capture_output=True).returncode == 0:
            return found
    return None


def add_packages(
    python: Path, *requirements: str, files: Sequence[Path] = (), alone: Sequence[Path] = ()
) -> None:
    """Install these, requirements.txt and the ``files``, unless the last run did, then the qwen_tts that fits.

    The packages of the files ``alone`` are installed without what they ask for.
    """
    files = [ROOT / "requirements.txt", *files]
    texts = [file.read_text(encoding="utf-8") for file in (*files, *alone)]
    wanted = "\n".join([*requirements, *texts])
    stamp = python.parents[1] / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        install.pip_install(python, *requirements, *(f"--requirement={file}" for file in files))
        for file in alone:
            install.pip_install(python, "--no-deps", f"--requirement={file}")
        stamp.write_text(wanted, encoding="utf-8")
    subprocess.run([python, ROOT / "install.py"], check=True)


def make_comfy() -> None:
    """ComfyUI with transformers 4, our requirements, the tools that run the tests and the judges of speech."""
    subprocess.run([sys.executable, ROOT / "tests" / "comfy" / "install.py", COMFY], check=True)
    add_packages(COMFY_PYTHON, *TOOLS, TRITON, files=[JUDGES], alone=[JUDGES_ALONE])


def make_transformers_5() -> None:
    """An environment as ComfyUI installs of today have it, less ComfyUI."""
    python = install.create_environment(TRANSFORMERS_5)
    if not (TRANSFORMERS_5 / "installed.txt").exists():
        install.pip_install(python, "torch==2.13.0")
    add_packages(python, "transformers==5.17.0", "pytest==9.2.0")


def make_environment(name: str, make: Callable[[], None]) -> Outcome:
    print(f"\n=== {name}", flush=True)
    started = time.monotonic()
    try:
        make()
    except (subprocess.CalledProcessError, OSError) as problem:
        print(problem, file=sys.stderr)
        return end_step(name, False, started)
    return end_step(name, True, started)


def bring_chromium() -> None:
    """Install Debian's Chromium where there is none and we are root; without one, page tests are skipped."""
    there = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    if there or os.environ.get("CHROMIUM") or not shutil.which("apt-get") or os.geteuid() != 0:
        return
    print("\n=== Chromium", flush=True)
    if subprocess.run(["apt-get", "update", "-qq"]).returncode == 0:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "install", "-y", "-qq", "chromium"], env=quiet, stdout=subprocess.DEVNULL)


# Steps


def check_code() -> list[Outcome]:
    """Lint, format and types."""
    ruff = [COMFY_PYTHON, "-m", "ruff"]
    return [
        run_step("ruff check", [*ruff, "check", "."]),
        run_step("ruff format", [*ruff, "format", "--check", "."]),
        check_types(),
    ]


def check_types() -> Outcome:
    """Run mypy on a copy under a name that can be a package's: the repository's folder may have a hyphen."""
    package = ENVS / "types" / "qwen3_tts_morph"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in COVERED:
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [COMFY_PYTHON, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "-p", package.name]
    return run_step("mypy", command, cwd=package.parent)


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
    offline = {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg", "PYTHONPATH": "", **(env or {})}
    command = [python, "-m", "pytest", f"--junit-xml={report}", *options, *extra]
    may_be_empty = bool(extra) or KERNELS in options  # without Triton
    step = run_step(name, command, env=offline, fine=(0, NOTHING_COLLECTED) if may_be_empty else (0,))
    if not report.exists():
        return step
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = Counter(mark.get("message", "") for case in cases if (mark := case.find("skipped")) is not None)
    passed = len(cases) - failed - skipped.total()
    # pytest also fails for what is no test: coverage, or nothing collected.
    return Outcome(name, step.ok, step.seconds, passed, failed or step.failed, skipped)


def test_unit(extra: Sequence[str]) -> Outcome:
    """All tests but ComfyUI's and the kernels' on transformers 4, with coverage where all of them run."""
    coverage = [f"--cov={ROOT / name}" for name in COVERED]
    coverage += ["--cov-config=pyproject.toml", "--cov-report=term", f"--cov-fail-under={LEAST_COVERAGE}"]
    options = ["tests", "--ignore=tests/comfy", f"--ignore={KERNELS}", *([] if extra else coverage)]
    return run_pytest("unit tests", COMFY_PYTHON, options, extra, {"COVERAGE_FILE": str(ENVS / "coverage")})


def test_kernels(extra: Sequence[str]) -> Outcome:
    """The kernels in Triton's interpreter; without coverage, which makes it twice as slow."""
    return run_pytest("kernel tests", COMFY_PYTHON, [KERNELS], extra, {"TRITON_INTERPRET": "1"})


def test_transformers_5(extra: Sequence[str]) -> Outcome:
    """The engine's tests again, on transformers 5."""
    folders = [
        path for name in ("morph", "postprocess", "training") if (path := ROOT / "tests" / name).exists()
    ]
    python = install.environment_python(TRANSFORMERS_5)
    return run_pytest("transformers 5 tests", python, folders, extra)


def test_comfy(extra: Sequence[str]) -> Outcome:
    """The tests with a real ComfyUI and a real browser."""
    bring_chromium()
    comfy = {"COMFYUI_DIR": str(COMFY / "ComfyUI"), "COMFYUI_PYTHON": str(COMFY_PYTHON)}
    if own := os.environ.get("COMFYUI_DIR"):
        comfy = {"COMFYUI_DIR": own, "COMFYUI_PYTHON": os.environ.get("COMFYUI_PYTHON", sys.executable)}
    env = {"COMFYUI_FRONTEND": str(FRONTEND), **comfy}
    return run_pytest("ComfyUI tests", COMFY_PYTHON, ["tests/comfy"], extra, env)


def run_groups(groups: Sequence[str], extra: Sequence[str]) -> list[Outcome]:
    """Run the steps of these groups; those whose environment could not be made are left out."""
    outcomes = []
    if {"lint", "unit", "comfy"} & set(groups):
        outcomes.append(make_environment("ComfyUI environment", make_comfy))
        if outcomes[-1].ok:
            outcomes += check_code() if "lint" in groups else []
            outcomes += [test_unit(extra), test_kernels(extra)] if "unit" in groups else []
            outcomes += [test_comfy(extra)] if "comfy" in groups else []
    if "tf5" in groups:
        outcomes.append(make_environment("transformers 5 environment", make_transformers_5))
        outcomes += [test_transformers_5(extra)] if outcomes[-1].ok else []
    return outcomes


def summarize(outcomes: Sequence[Outcome]) -> bool:
    """Print the table, the reasons of what was skipped and the sum; give whether all is well."""
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


def main() -> int:
    if sys.version_info[:2] != (3, 11) and (python := find_python_311()):
        return subprocess.run([python, *sys.argv]).returncode
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=GROUPS, help="run this group of steps alone")
    options = parser.parse_args(sys.argv[1:end])
    ENVS.mkdir(exist_ok=True)
    return 0 if summarize(run_groups(options.only or GROUPS, sys.argv[end + 1 :])) else 1


if __name__ == "__main__":
    sys.exit(main())
