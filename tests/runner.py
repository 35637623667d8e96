"""The runs of ``run_tests.py``: which tests each has, in which environments, and what is recorded of them."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import install
from lab.benchmarks.origin import tree_commit
from tests.environments import (
    COMFY,
    COMFY_PYTHON,
    ENVS,
    FRONTEND,
    NEWEST,
    NEWEST_PYTHON,
    NEWEST_TRANSFORMERS,
    PLAIN,
    PYTHONS,
    RAY_PYTHON,
    ROOT,
    TRANSFORMERS_5,
    bring_chromium,
    choose_python,
    make_comfy,
    make_javascript,
    make_newest,
    make_newest_transformers,
    make_plain,
    make_ray,
    make_transformers_5,
    read_versions,
    script_tool,
)
from tests.records import add_tested, describe_versions, last_run, sort_versions, write_record
from tests.steps import KERNELS, Outcome, Suite, end_step, run_pytest, run_step, summarize

GROUPS = ("lint", "unit", "tf5", "comfy")
LEAST_COVERAGE = 95
COVERED = ("morph", "postprocess", "serve")
TYPED = (*COVERED, "nodes")
SCRIPTS = ("web", "serve/page")  # of the pages
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"
# The product imports transformers for one thing, how a recogniser's words are compared, and tokenizers, whose version
# goes with it. The rest is that upstream, with another transformers, still has our codes.
PARITY = "test_parity::test_codes_equal_upstream"
BY_TRANSFORMERS = (
    *(f"{PARITY}[tiny, bf16, greedy, eager]", f"{PARITY}[tiny-1.7B, fp32, filtered, eager]"),
    *(f"{PARITY}[tiny-1.7B, bf16, sampled, sdpa]", "codec/test_complete::test_encoding_equals_upstream"),
    *("model/test_modules", "checkpoint/test_fields", "hearing/test_words"),
    "model/test_tokens::test_ordinary_texts_have_upstreams_ids",
)
# All that compares with upstream: --all runs it on the oldest 5 too, --newest on the newest of all packages.
ON_TRANSFORMERS_5 = (
    *("test_parity", "test_demo_voice", "hearing/test_words"),
    *("checkpoint/test_fields", "model/test_modules", "model/test_rope", "model/test_tokens"),
    *("voice/test_prompt", "codec/test_complete"),
)
MOST_WORKERS = 8  # each loads its own torch
MOST_GPU_WORKERS = 16  # most of their time is the compiler's
GB_PER_WORKER = 4  # of a GPU's memory
FRONTEND_PACKAGE = "comfyui-frontend-package"
GPU_RECORD = ROOT / "tests" / "gpu.json"
NEWEST_RECORD = ROOT / "tests" / "newest.json"
TESTED = ROOT / "morph" / "tested.json"
# What users run with any Python and on any system: not ComfyUI, pages, Ray and the laboratory, which need pinned tools.
PLAIN_TESTS = ("morph", "postprocess", "serve", "nodes", "workflows", "test_install.py", "test_speak.py")
NOT_PLAIN = (KERNELS, "tests/serve/routes/test_page.py", "tests/serve/process/test_ray.py")


@dataclass(frozen=True)
class Request:
    """The command line; ``extra`` goes to pytest."""

    groups: Sequence[str] = GROUPS
    everything: bool = False
    install_browser: bool = False
    extra: Sequence[str] = ()

    @property
    def tier(self) -> list[str]:
        return ["--all"] if self.everything else []


def make_environment(name: str, make: Callable[[], None], unpinned: Path | None = None) -> Outcome:
    """Make an environment; the folder ``unpinned`` has a file with the versions that it got."""
    print(f"\n=== {name}", flush=True)
    started = time.monotonic()
    try:
        make()
    except (subprocess.CalledProcessError, OSError) as problem:
        print(problem, file=sys.stderr)
        return end_step(name, False, started)
    step = end_step(name, True, started)
    return replace(step, note=describe_environment(name, unpinned)) if unpinned else step


def describe_environment(name: str, folder: Path) -> str:
    found = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
    return f"{name.removesuffix(' environment')}: {', '.join(f'{one} {found[one]}' for one in found)}"


def check_code(scripts: bool) -> list[Outcome]:
    """Run ruff, mypy, import contracts and, with ``scripts``, the pages' checks, each on one core beside tests."""
    ruff = [COMFY_PYTHON, "-m", "ruff"]
    return [
        run_step("ruff check", [*ruff, "check", "."], beside=True),
        run_step("ruff format", [*ruff, "format", "--check", "."], beside=True),
        *check_package(),
        *(check_scripts() if scripts else []),
    ]


def check_scripts() -> list[Outcome]:
    config = ROOT / "tests" / "javascript"
    oxlint = [script_tool("oxlint"), "--config", config / "oxlint.json", *SCRIPTS]
    return [
        run_step("types of scripts", [script_tool("tsc"), "--project", config], beside=True),
        run_step("lint of scripts", oxlint, beside=True),
    ]


def check_package() -> list[Outcome]:
    """Run mypy and the import contracts (pyproject.toml, [tool.importlinter]) on a copy of the sources, lab included.

    The copy has a valid package name: the repository's folder may have a hyphen. mypy's cache is beside it.
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
        run_step("mypy", mypy, {"MYPYPATH": str(COMFY / "ComfyUI")}, beside=True, cwd=sources),
        run_step("imports", contracts, {"PYTHONPATH": str(sources)}, beside=True, cwd=sources),
    ]


def count_workers() -> int:
    """Return the number of test processes: one per core that this process may use (``taskset`` limits them).

    Each imports everything and starts servers of its own: 20 to 60 s of a processor. Steps beside them fill the cores.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_WORKERS)


def count_gpu_workers(gpu_gb: float) -> int:
    """Return the number of processes for tests that share a GPU, as its memory allows."""
    return max(1, min(os.cpu_count() or 1, MOST_GPU_WORKERS, int(gpu_gb / GB_PER_WORKER)))


def spread(workers: int, how: str = "loadfile") -> list[str]:
    """Return pytest's options for several processes; a file's tests run in one, because they share fixtures."""
    return ["-n", str(workers), "--dist", how] if workers > 1 else []


def test_unit(request: Request) -> Outcome:
    """Run all tests but ComfyUI's and the kernels' on transformers 4.

    ``--all`` measures coverage, unless other arguments choose tests. It makes Python code a quarter slower.
    """
    coverage = [f"--cov={ROOT / name}" for name in COVERED]
    coverage += ["--cov-config=pyproject.toml", "--cov-report=term", f"--cov-fail-under={LEAST_COVERAGE}"]
    options = [
        "tests",
        "--ignore=tests/comfy",
        f"--ignore={KERNELS}",
        *request.tier,
        *spread(count_workers()),
    ]
    options += coverage if request.everything and not request.extra else []
    env = {"COVERAGE_FILE": str(ENVS / "coverage")}
    env |= {"RAY_PYTHON": str(RAY_PYTHON)} if request.everything and RAY_PYTHON.exists() else {}
    return run_pytest(Suite("unit tests", COMFY_PYTHON, options, env), request.extra)


def test_kernels(request: Request, beside: bool = False) -> Outcome:
    """Run the kernels in Triton's interpreter, without coverage, which would make it twice as slow."""
    # No fixture takes long here, and few files have most of the work.
    options = [KERNELS, *request.tier, *spread(count_workers(), "worksteal")]
    suite = Suite("kernel tests", COMFY_PYTHON, options, {"TRITON_INTERPRET": "1"}, beside)
    return run_pytest(suite, request.extra)


def test_transformers_5(request: Request, beside: bool = False) -> Outcome:
    """Run what depends on transformers on the oldest transformers 5; with --all what compares with upstream."""
    names = ON_TRANSFORMERS_5 if request.everything else BY_TRANSFORMERS
    python = install.environment_python(TRANSFORMERS_5)
    return test_engine("oldest transformers 5", python, morph_files(names), request, beside)


def test_newest_transformers(request: Request, beside: bool = False) -> Outcome:
    """Run the engine's tests on the newest transformers: all with --all, else what depends on transformers."""
    chosen = morph_files(BY_TRANSFORMERS)
    if request.everything:
        chosen = [f"tests/{name}" for name in ("morph", "postprocess", "lab")]
    python = install.environment_python(NEWEST_TRANSFORMERS)
    return test_engine("newest transformers 5", python, chosen, request, beside)


def morph_files(names: Sequence[str]) -> list[str]:
    """Return the paths of files or of cases in files ("file::case")."""
    parts = [name.partition("::") for name in names]
    return [f"tests/morph/{file}.py{colons}{case}" for file, colons, case in parts]


def test_engine(name: str, python: Path, paths: Sequence[str], request: Request, beside: bool = False) -> Outcome:
    """Run files of engine tests. Beside ComfyUI's tests the default run has one process: each imports everything."""
    workers = 1 if beside and not request.everything else count_workers()
    options = [*paths, *request.tier, *spread(workers)]
    return run_pytest(Suite(name, python, options, beside=beside), request.extra)


def test_comfy(request: Request) -> Outcome:
    comfy = {"COMFYUI_DIR": str(COMFY / "ComfyUI"), "COMFYUI_PYTHON": str(COMFY_PYTHON)}
    if own := os.environ.get("COMFYUI_DIR"):
        comfy = {"COMFYUI_DIR": own, "COMFYUI_PYTHON": os.environ.get("COMFYUI_PYTHON", sys.executable)}
    return test_in_comfy("ComfyUI tests", COMFY_PYTHON, {"COMFYUI_FRONTEND": str(FRONTEND), **comfy}, request)


def test_in_comfy(name: str, python: Path, env: dict[str, str], request: Request) -> Outcome:
    """Run the ComfyUI group; ``env`` names ComfyUI, the Python that runs it, and a frontend."""
    if request.install_browser:
        bring_chromium()
    options = ["tests/comfy", *request.tier, *spread(count_workers())]
    return run_pytest(Suite(name, python, options, env), request.extra)


def run_groups(request: Request) -> list[Outcome]:
    """Run the steps of these groups; skip those whose environment could not be created.

    Two at a time: code checks and the oldest transformers 5 beside the first tests; then the newest transformers and
    the kernels beside ComfyUI's tests, which wait for pages and sound and leave a part of the processor free.
    """
    made, groups = make_environments(request)
    is_beside = "comfy" in groups
    with ThreadPoolExecutor(1) as beside:
        checks = beside.submit(check_code, "scripts" in groups) if "lint" in groups else None
        others = []
        if "oldest" in groups:
            others.append(beside.submit(test_transformers_5, request, is_beside or "unit" in groups))
        tests = [test_unit(request)] if "unit" in groups else []
        if "newest" in groups:
            others.append(beside.submit(test_newest_transformers, request, is_beside))
        if "unit" in groups:
            others.append(beside.submit(test_kernels, request, is_beside))
        tests += [test_comfy(request)] if "comfy" in groups else []
        return [*made, *(checks.result() if checks else []), *tests, *(one.result() for one in others)]


def make_environments(request: Request) -> tuple[list[Outcome], set[str]]:
    """Make the environments of a request; return the outcomes, and the groups that have theirs.

    "oldest" and "newest" stand for "tf5": the newest needs the environment of the oldest. "scripts" is the part of
    "lint" that needs npm.
    """
    made, wanted, ready = [], set(request.groups), set()
    if ours := wanted - {"tf5"}:
        made.append(make_environment("ComfyUI environment", make_comfy))
        ready |= ours if made[-1].ok else set()
    if "lint" in ready:
        made.append(make_script_tools())
        ready |= {"scripts"} if made[-1].ok and not made[-1].skipped else set()
    if "unit" in ready and request.everything:
        made.append(make_environment("Ray environment", make_ray))
    if "tf5" in wanted:
        made.append(make_environment("oldest transformers 5 environment", make_transformers_5))
        ready |= {"oldest"} if made[-1].ok else set()
    if "oldest" in ready:
        name = "newest transformers 5 environment"
        made.append(make_environment(name, make_newest_transformers, NEWEST_TRANSFORMERS))
        ready |= {"newest"} if made[-1].ok else set()
    return made, ready


def make_script_tools() -> Outcome:
    """Make the JavaScript environment, or say why scripts are not checked."""
    if not shutil.which("npm"):
        reason = "not run: npm, which Node.js brings, is not on the PATH"
        return Outcome("scripts of the pages", True, 0.0, skipped=Counter({reason: 1}))
    return make_environment("JavaScript environment", make_javascript)


# With the newest packages


def run_plain(request: Request) -> list[Outcome]:
    """Run what needs neither ComfyUI nor pinned tools, with this Python."""
    made = make_environment(f"plain {PLAIN.name.removeprefix('plain-')} environment", make_plain, PLAIN)
    paths = [f"tests/{name}" for name in PLAIN_TESTS]
    python = install.environment_python(PLAIN)
    options = [*paths, *(f"--ignore={path}" for path in NOT_PLAIN), *spread(count_workers())]
    return [made, run_pytest(Suite("plain tests", python, options), request.extra)] if made.ok else [made]


@dataclass(frozen=True)
class Newest:
    """The ComfyUI of --newest: 0.3.75, or the user's."""

    program: Path
    python: str

    def versions(self) -> dict[str, set[str]]:
        """Return the tested versions by package: the engine's, ComfyUI's, and the newest frontend."""
        found: dict[str, set[str]] = {}
        engine = read_versions(NEWEST_PYTHON)
        engine.pop(FRONTEND_PACKAGE, None)  # its tests open no page
        page = {FRONTEND_PACKAGE: find_frontend().name.partition("-")[2]}
        for here in (engine, read_versions(self.python), {"ComfyUI": self.version()}, page):
            for package, version in here.items():
                found.setdefault(package, set()).add(version)
        return found

    def version(self) -> str:
        """Return ComfyUI's own version; ValueError if it has none."""
        text = (self.program / "comfyui_version.py").read_text(encoding="utf-8")
        if not (found := re.search(r"^__version__ = \"(.+)\"", text, re.M)):
            raise ValueError(f"{self.program / 'comfyui_version.py'} has no __version__")
        return found[1]


def find_frontend() -> Path:
    (found,) = NEWEST.glob("frontend-*")
    return found


def test_newest(chosen: Newest, request: Request) -> list[Outcome]:
    env = {"COMFYUI_DIR": str(chosen.program), "COMFYUI_PYTHON": chosen.python}
    env |= {"COMFYUI_FRONTEND": str(find_frontend())}
    return [
        test_engine("newest packages", NEWEST_PYTHON, morph_files(ON_TRANSFORMERS_5), request),
        test_in_comfy("ComfyUI, newest packages", NEWEST_PYTHON, env, request),
    ]


def run_newest(commit: str, request: Request) -> bool:
    """Make the environment of the newest packages and test in it; record its versions if all passes."""
    own = os.environ.get("COMFYUI_DIR")
    chosen = Newest(Path(own or NEWEST / "ComfyUI").resolve(), os.environ.get("COMFYUI_PYTHON") or str(NEWEST_PYTHON))
    made = make_environment("newest packages environment", lambda: make_newest(chosen.program if own else None), NEWEST)
    if not made.ok:
        return summarize([made])
    versions = {name: sort_versions(found) for name, found in chosen.versions().items()}
    outcomes = [made, *test_newest(chosen, request)]
    passed = summarize(outcomes)
    print(f"ran on commit {commit}, with {describe_versions(versions)}")
    if passed and not request.extra:
        write_record(NEWEST_RECORD, commit, {"versions": versions}, outcomes[1:])
        add_tested(TESTED, versions)
    return passed


def last_with_newest() -> str:
    return last_run(NEWEST_RECORD, "the newest packages", "--newest", lambda last: describe_versions(last["versions"]))


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


def find_commit(record: Path) -> str | None:
    """Return this tree's commit, marked if it has changes besides the record; None if it is not a git checkout."""
    found = tree_commit(ROOT, record)
    return found and f"{found[0]}{' with changes' if found[1] else ''}"


def gpu_files() -> list[str]:
    """Return the test files with cases marked gpu, except the kernels': other files need not be importable."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text("utf-8")]
    names = sorted(path.relative_to(ROOT).as_posix() for path in files)
    return [name for name in names if not name.startswith((KERNELS, "tests/test_", "tests/comfy"))]


def test_on_gpu(workers: int, extra: Sequence[str]) -> list[Outcome]:
    """Run all cases that need a GPU, and the kernels compiled; ComfyUI's if COMFYUI_GPU and COMFYUI_DIR are set."""
    workers = workers if importlib.util.find_spec("xdist") else 1
    env, python = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}, Path(sys.executable)
    kernels = [KERNELS, "--all", *spread(workers, "worksteal")]
    engine = [*gpu_files(), "-m", "gpu", "--all", *spread(workers)]
    outcomes = [
        run_pytest(Suite("kernels on the GPU", python, kernels, env), extra),
        run_pytest(Suite("engine on the GPU", python, engine, env), extra),
    ]
    if os.environ.get("COMFYUI_GPU") and os.environ.get("COMFYUI_DIR"):
        comfy = ["tests/comfy/test_gpu.py", "--all"]
        outcomes.append(run_pytest(Suite("ComfyUI on the GPU", python, comfy, env), extra))
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
        write_record(GPU_RECORD, commit, machine, outcomes)
    return 0 if passed else 1


def last_on_gpu() -> str:
    return last_run(
        GPU_RECORD,
        "cases that need a GPU",
        "--gpu",
        lambda last: f"{last['gpu']}, torch {last['torch']}, transformers {last['transformers']}",
    )


def parse_arguments(words: Sequence[str], description: str | None = None) -> argparse.Namespace:
    """Parse the command line; everything after -- is in ``extra``."""
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    tiers = parser.add_mutually_exclusive_group()
    tiers.add_argument("--all", action="store_true", help="also run the cases marked slow")
    tiers.add_argument("--gpu", action="store_true", help="run the cases that need a GPU, in this Python")
    tiers.add_argument("--newest", action="store_true", help="test the newest packages, and record versions")
    tiers.add_argument("--plain", action="store_true", help="units, in this Python, with the newest packages")
    parser.add_argument("--only", action="append", choices=GROUPS, help="run only this group of steps")
    parser.add_argument("--install-browser", action="store_true", help="apt-get install Chromium, as root")
    parser.add_argument("--commit", help="of this tree, if it is not a git checkout: for --gpu and --newest")
    options = parser.parse_args(words[:end])
    options.extra = list(words[end + 1 :])
    if options.only and (options.gpu or options.newest or options.plain):
        parser.error("--gpu, --newest and --plain have no groups: leave --only out")
    if options.gpu or options.newest:
        options.commit = options.commit or find_commit(GPU_RECORD if options.gpu else NEWEST_RECORD)
        if not options.commit:
            parser.error("this tree is not a git checkout: give its commit with --commit, which is recorded")
    return options


def main(description: str | None = None) -> int:
    options = parse_arguments(sys.argv[1:], description)
    ENVS.mkdir(exist_ok=True)
    if options.gpu:
        return run_gpu(options.commit, options.extra)
    request = Request(options.only or GROUPS, options.all, options.install_browser, options.extra)
    if options.plain:
        return 0 if summarize(run_plain(request)) else 1
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
    if options.newest:
        return 0 if run_newest(options.commit, request) else 1
    print(f"{last_on_gpu()}\n{last_with_newest()}")
    return 0 if summarize(run_groups(request)) else 1
